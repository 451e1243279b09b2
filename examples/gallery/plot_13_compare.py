"""
Two runs side by side
=====================

Runs with the same seeds are compared seed by seed, and the difference has an interval of its own.
"""

import tempfile
from pathlib import Path

import fedrank
from fedrank.cli.main import call
from fedrank.report.figures import comparison_figure

# %%
# One run sends rewards as they are, the other one privatises them with ε = 1 of all that a user does.

folder = Path(tempfile.mkdtemp())
runs = {}
size = {"clients": 200, "rounds": 30, "interactions": 64, "server": {"learning_rate": 0.01}}
for name, privacy in (("open", {"p": 1.0}), ("private", {"epsilon_user": 1.0})):
    runs[name] = fedrank.run("foltr-es", privacy=privacy, seeds=3, evaluation__every=10, folder=folder / name, **size)

# %%
# What each ranker reaches on test queries, round by round; the dashed line is a ranker from labels.

chart = comparison_figure({name: one.run for name, one in runs.items()}, "test", "nDCG(dcg='exp-log2')@10")

# %%
# ``fedrank compare`` says first what differs, then the final values.

call(["compare", str(folder / "open"), str(folder / "private")])
