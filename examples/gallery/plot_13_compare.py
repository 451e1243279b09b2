"""
Two runs side by side
=====================

Runs with the same seeds are compared seed by seed.
"""

import tempfile
from pathlib import Path

import fedrank
from fedrank.cli.main import call

folder = Path(tempfile.mkdtemp())
for name, p in (("open", 1.0), ("private", 0.5)):
    fedrank.run("foltr-es", clients=200, rounds=30, seeds=3, evaluation__every=30, privacy__p=p, folder=folder / name)
call(["compare", str(folder / "open"), str(folder / "private")])
