"""How many connections each network address has, so that one alone cannot take them all."""

from __future__ import annotations

import collections
import ipaddress

from fedrank.deploy.hub.guard import network_of


class Crowd:
    """Connections by network address; forgotten with the last of each.

    Args:
        most: Connections of one address at once; 0: any number.
    """

    def __init__(self, most: int):
        self._most = most
        self._now: collections.Counter[str] = collections.Counter()

    def __len__(self) -> int:
        return len(self._now)

    def enter(self, address: str) -> bool:
        """One more connection. Returns whether it may stay; it counts until :meth:`leave` in any case."""
        network = _counted_as(address) if self._most else None
        if network is None:
            return True
        self._now[network] += 1
        return self._now[network] <= self._most

    def leave(self, address: str) -> None:
        """One less."""
        network = _counted_as(address) if self._most else None
        if network is not None:
            self._now[network] -= 1
            if self._now[network] <= 0:
                del self._now[network]


def _counted_as(address: str) -> str | None:
    """The network of an address; None for what may have any number: this machine, and what has no address."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return None
    mapped = getattr(parsed, "ipv4_mapped", None)
    return None if (mapped or parsed).is_loopback else network_of(address)
