"""A limit of connections per network address, so that one address cannot take them all."""

from __future__ import annotations

import collections

from fedrank.deploy.http.guard import limited_network


class ConnectionLimiter:
    """Counts open connections by network address; an address is forgotten with its last connection.

    Args:
        limit: Connections of one address at once; 0: any number.
    """

    def __init__(self, limit: int):
        self._limit = limit
        self._open: collections.Counter[str] = collections.Counter()

    def __len__(self) -> int:
        return len(self._open)

    def add(self, address: str) -> bool:
        """Count a new connection. Returns whether it is within the limit; it counts until :meth:`remove` anyway."""
        network = limited_network(address) if self._limit else None
        if network is None:
            return True
        self._open[network] += 1
        return self._open[network] <= self._limit

    def remove(self, address: str) -> None:
        """Count a connection that was closed."""
        network = limited_network(address) if self._limit else None
        if network is not None:
            self._open[network] -= 1
            if self._open[network] <= 0:
                del self._open[network]
