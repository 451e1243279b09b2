"""The tests that ``make test`` leaves to ``make test-all``."""

from pathlib import Path

_FILE = Path(__file__).resolve().parents[1] / "slow.txt"


def slow_tests() -> list[str]:
    """The lines of ``tests/slow.txt``: a file, a test, or one case of a parametrised test."""
    lines = _FILE.read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line and not line.startswith("#")]
