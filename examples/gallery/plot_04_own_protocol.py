"""
A protocol of your own
======================

Federated averaging of rankers, complete: two messages, what a device answers, what the server does with the answers.
The ledger counts it, the report shows it, and Flower can carry it, without a line for any of these.
"""

import tempfile
from pathlib import Path
from typing import Any

import fedrank
from fedrank.cli.main import call
from fedrank.ranking.rankers.linear import Linear

# %%
# ``fedrank new my-idea`` writes a package: such a protocol in one file, its test, and an entry point by which
# the command line finds it. Fields of the class are its settings. This is the file:

with tempfile.TemporaryDirectory() as folder:
    call(["new", "my-idea", "--out", f"{folder}/my-idea"])
    source = Path(folder, "my-idea", "my_idea.py").read_text()
print(source)

# %%
# The module is used as it stands: an object needs no registration.

module: dict[str, Any] = {"__name__": "my_idea"}
exec(compile(source, "my_idea.py", "exec"), module)
result = fedrank.run(
    module["MyIdea"](ranker=Linear(46), learning_rate=0.25), clients=20, rounds=10, seeds=2, evaluation={"every": 5}
)
print({(entry.sender, entry.message): entry.bytes_each for entry in result.ledger})

# %%
# Its page opens like that of any other protocol.

result
