"""The tests that ``make test`` leaves to ``make test-slow``, and the longer ones for ``make test-minutes``."""

from pathlib import Path

_FOLDER = Path(__file__).resolve().parents[1]


def listed_tests(mark: str) -> list[str]:
    """The lines of ``tests/slow.txt`` or ``tests/minutes.txt``: a file, a test, or one case of a parametrised test."""
    lines = (_FOLDER / f"{mark}.txt").read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line and not line.startswith("#")]
