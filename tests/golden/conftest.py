"""The package ``golden.runs`` can be imported by its tests, from whichever folder they are started."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
