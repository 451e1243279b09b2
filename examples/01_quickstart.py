"""Train a ranker from the clicks of simulated devices, and look at what it learned and what left the devices.

Generated data, two seeds, a few rounds: seconds. Run it with ``python examples/01_quickstart.py``.
"""

import tempfile
from pathlib import Path

import fedrank


def main(folder: Path) -> None:
    """Run one experiment into ``folder`` and print three things about it."""
    result = fedrank.run("foltr-es", folder=folder, rounds=20, clients=200, seeds=2)

    online = list(result.metrics.where(split="online").means("round").values())
    print("mean reward of the first round:", round(online[0], 3))
    print("mean reward of the last round: ", round(online[-1], 3))

    sent = [entry for entry in result.ledger if entry.sender == "parties"]
    print("bytes in a device's message:   ", sent[0].bytes_each)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        main(Path(folder) / "quickstart")
