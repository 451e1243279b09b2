"""What is on a device's disk: private, whole after a crash, and the same for all processes that share it."""

from pathlib import Path

import numpy as np
from fake_hub import HUB

from fedrank.deploy.device.outbox import Outbox
from fedrank.deploy.device.trial import Interaction, Trial, keep_order
from fedrank.deploy.terms import Terms

FEATURES = 4


TERMS = Terms(hub=HUB, n_features=FEATURES)


LIE = np.array([2**32 - 1, 0], np.uint32)  # always a lie: the lowest value that is not the truth


def pages(folder: Path) -> list[bytes]:
    """All content that SQLite has written, page by page, those of the write-ahead log too; not its random salts."""
    found = []
    for path in sorted(folder.iterdir()):
        data = path.read_bytes()
        if path.name.endswith("-wal"):
            found += [data[i + 24 : i + 24 + 4096] for i in range(32, len(data), 24 + 4096)]
        elif not path.name.endswith("-shm"):  # an index of the log by checksums; no content
            found += [data[i : i + 4096] for i in range(0, len(data), 4096)]
    return found


def lying(shape):
    return np.array([77], np.uint32) if shape == (1,) else LIE


def message(box: Outbox, round_: int, terms: Terms = TERMS) -> None:
    """A round from its first interaction to its message."""
    trial = Trial(terms.hub, round_, 5)
    for _ in range(terms.interactions):
        after, counts = box.add(terms, Interaction(keep_order(3), trial, 0.0, 1), None, lying)
        assert counts
        trial = after or trial
    assert after is None
