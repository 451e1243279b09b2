"""Which node answers for which parties, where only some parties are asked.

A node's number in Flower says nothing about its parties. So each node is asked once which parties it has, without a
model, and a model is sent only to nodes whose parties are asked.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from jaxtyping import Int64


class Holders:
    """The parties that nodes have said they answer for. The first node of a party keeps it while it is connected."""

    def __init__(self):
        self._blocks: dict[int, Int64[np.ndarray, " parties"]] = {}  # in the order in which they came
        self._again: dict[int, float] = {}
        self._columns: bytes | None = None

    def strangers(self, nodes: Iterable[int], now: float) -> list[int]:
        """Nodes to be asked which parties they have: new ones, and ones that were asked in vain long enough ago."""
        return [node for node in nodes if node not in self._blocks and self._again.get(node, now) <= now]

    def in_vain(self, node: int, again: float) -> None:
        """Note that a node gave no usable answer, and is to be asked again at time ``again``."""
        self._again[node] = again

    def alike(self, columns: bytes) -> bool:
        """Whether a node's data has the same hash of columns as that of the first node that was heard."""
        if self._columns is None:
            self._columns = columns
        return columns == self._columns

    def introduced(self, node: int, numbers: Int64[np.ndarray, " parties"]) -> bool:
        """Note the parties of a node; returns whether no other node has said to answer for one of them."""
        free = not any(np.isin(numbers, block).any() for block in self._blocks.values())
        self._blocks[node] = numbers
        return free

    def of(self, nodes: Iterable[int]) -> dict[int, Int64[np.ndarray, " _"]]:
        """The connected nodes with parties of their own, and the numbers of their parties, int64 [parties]."""
        there, taken = set(nodes), np.zeros(0, np.int64)
        found = {}
        for node, numbers in self._blocks.items():
            if node in there and not np.isin(numbers, taken).any():
                found[node], taken = numbers, np.union1d(taken, numbers)
        return found
