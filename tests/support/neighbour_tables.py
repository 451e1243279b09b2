"""Tables that differ in one record: every kind of cell that a reader of whole columns would treat in another way."""

import numpy as np
import pytest

NAMES = ("age", "sex", "ward", "hiv", "ill", "silo")
#: Records in another one's place.
RECORDS = {
    "an ordinary one": ("50", "f", "A", "0", "1", "north"),
    "the only one with hiv": ("50", "f", "A", "1", "1", "north"),
    "a level that no other has": ("50", "x", "Z", "0", "1", "north"),
    "an empty one": ("", "", "", "", "", ""),
    "without a label": ("50", "f", "A", "0", "", "north"),
    "a third label": ("50", "f", "A", "0", "unknown", "north"),
    "text for a number": ("old", "f", "A", "no", "1", "north"),
    "a limit of detection": ("<0.3", "f", "A", "<1", "1", "north"),
    "a decimal comma": ('"1.204,5"', "f", "A", '"0,5"', "1", "north"),
    "a date": ("03-Mar-2024", "f", "A", "0", "1", "north"),
    "beyond every range": ("1e300", "F", "a", "-inf", "1.0", "north"),
    "names as numbers": ("50", "1", "2", "0", "1", "north"),
}


@pytest.fixture
def tables(tmp_path):
    """The path of a table of one hospital for each record in the place of its eighth."""
    rng = np.random.default_rng(0)
    rows = [
        (str(rng.integers(20, 90)), "fm"[rng.integers(2)], "ABC"[rng.integers(3)], "0", str(rng.integers(2)), "north")
        for _ in range(40)
    ]
    paths = {}
    for number, (name, record) in enumerate(RECORDS.items()):
        lines = [NAMES, *rows[:7], record, *rows[8:]]
        paths[name] = tmp_path / f"{number}.csv"
        paths[name].write_text("\n".join(map(",".join, lines)) + "\n")
    return paths
