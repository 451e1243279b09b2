"""Train a ranker from the clicks of simulated devices, and look at what it learned and what left the devices.

Generated data, two seeds, a few rounds: seconds. Run it with ``python examples/01_quickstart.py``.
"""

import tempfile
from pathlib import Path

import polars as pl

import fedrank
from fedrank.core.ledger import Ledger


def main(folder: Path) -> None:
    """Run one experiment into ``folder`` and print three things about it."""
    fedrank.run("foltr-es", folder=folder, rounds=20, clients=200, seeds=2)

    rows = pl.read_parquet(folder / "metrics.parquet")
    online = rows.filter(pl.col("split") == "online").group_by("round").agg(pl.col("value").mean()).sort("round")
    print("mean reward of the first round:", round(online["value"][0], 3))
    print("mean reward of the last round: ", round(online["value"][-1], 3))

    ledger = Ledger.read(folder / "ledger.jsonl")
    sent = [entry for entry in ledger if entry.sender == "parties"]
    print("bytes in a device's message:   ", sent[0].bytes_each)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        main(Path(folder) / "quickstart")
