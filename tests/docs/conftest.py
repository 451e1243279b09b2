"""Lets the tests of this folder import the helpers beside them, and the programs of the documentation."""

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
DOCS = HERE.parents[1] / "docs"
for folder in (HERE, DOCS, DOCS / "explanation"):
    sys.path.insert(0, str(folder))
