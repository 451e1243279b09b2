"""Which node answers for which parties, where not everybody is asked everything.

A node's number in Flower says nothing about its parties. So each node is asked once who is there, without a model, and
only those whose parties are asked are sent one.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np


class Holders:
    """What nodes have said about who they answer for. Who came first keeps its parties, as long as it is there."""

    def __init__(self):
        self._blocks: dict[int, np.ndarray] = {}  # in the order in which they came
        self._again: dict[int, float] = {}
        self._columns: bytes | None = None

    def strangers(self, nodes: Iterable[int], now: float) -> list[int]:
        """Nodes to be asked who they are: they never said, or were asked in vain long enough ago."""
        return [node for node in nodes if node not in self._blocks and self._again.get(node, now) <= now]

    def in_vain(self, node: int, again: float) -> None:
        """A node gave no good answer; it is to be asked again at that time."""
        self._again[node] = again

    def alike(self, columns: bytes) -> bool:
        """Whether a node's tables have the columns of the first node that was heard, by their hash."""
        if self._columns is None:
            self._columns = columns
        return columns == self._columns

    def introduced(self, node: int, numbers: np.ndarray) -> bool:
        """A node has said who it answers for; whether nobody else has said so of these parties."""
        free = not any(np.isin(numbers, block).any() for block in self._blocks.values())
        self._blocks[node] = numbers
        return free

    def of(self, nodes: Iterable[int]) -> dict[int, np.ndarray]:
        """The nodes that are there and have parties of their own, and the parties' numbers, int64 [parties]."""
        there, taken = set(nodes), np.zeros(0, np.int64)
        found = {}
        for node, numbers in self._blocks.items():
            if node in there and not np.isin(numbers, taken).any():
                found[node], taken = numbers, np.union1d(taken, numbers)
        return found
