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
# One run sends rewards as they are, the other one in two of them at random.

folder = Path(tempfile.mkdtemp())
runs = {}
for name, p in (("open", 1.0), ("private", 0.5)):
    runs[name] = fedrank.run(
        "foltr-es", clients=200, rounds=30, seeds=3, privacy__p=p, evaluation__every=10, folder=folder / name
    )

# %%
# What each ranker reaches on test queries, round by round; the dashed line is a ranker from labels.

chart = comparison_figure({name: one.run for name, one in runs.items()}, "test", "nDCG(dcg='exp-log2')@10")

# %%
# ``fedrank compare`` says first what differs, then the final values.

call(["compare", str(folder / "open"), str(folder / "private")])
