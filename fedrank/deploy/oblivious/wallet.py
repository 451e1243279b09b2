"""A device's tokens, in its file: drawn, bought, and bound to a message before they are shown.

Each step is on the disk before anything leaves that follows from it, so that a device which ends at any point goes on
with the same bytes:

*drawn*    nonce and blinding of an epoch's token; the same request is sent until it is answered
*bought*   the answer made a token of it; what undoes the blinding is deleted
*bound*    the token belongs to the message of one round, and is shown with no other
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Protocol, runtime_checkable

from fedrank.core.errors import WireError
from fedrank.deploy.oblivious.tokens import Asked, ask_for, epoch_challenge

_TABLES = (
    """CREATE TABLE IF NOT EXISTS token (
    hub TEXT NOT NULL, epoch INTEGER NOT NULL,
    key BLOB NOT NULL, content BLOB NOT NULL, inverse BLOB, request BLOB,
    token BLOB,     -- NULL: not bought yet, or, without a request, never
    ripe REAL,      -- seconds since 1970 before which it is not shown
    round INTEGER,  -- whose message it is shown with; NULL: none yet
    PRIMARY KEY (hub, epoch))""",
    "CREATE TABLE IF NOT EXISTS issuer (hub TEXT NOT NULL, epoch INTEGER NOT NULL, key BLOB, PRIMARY KEY (hub, epoch))",
)


@runtime_checkable
class DeviceFile(Protocol):
    """The part of a device's SQLite file that a wallet uses; the file's own package imports this module."""

    def execute(self, statement: str, values: tuple = ()) -> list[tuple]:
        """Run one SQL statement with its values; returns the rows of its result, empty if it has none."""
        ...

    def transaction(self, *, durable: bool = False) -> AbstractContextManager[None]:
        """Context in which statements are committed together, or not at all; ``durable``: synced to disk at its end."""
        ...


class Wallet:
    """The tokens of a device; call its methods with the device's lock held.

    Args:
        outbox: The device's file. Methods raise what it raises.
    """

    def __init__(self, outbox: DeviceFile):
        self._outbox = outbox
        for table in _TABLES:
            outbox.execute(table)

    def objection(self, hub: str, keys: dict[int, bytes]) -> str:
        """Why published keys are not used; empty if they are those that were published before.

        Args:
            hub: Name of the hub.
            keys: Keys by epoch, as the hub publishes them now.
        """
        with self._outbox.transaction():
            for epoch, key in keys.items():
                self._outbox.execute("INSERT OR IGNORE INTO issuer VALUES (?, ?, ?)", (hub, epoch, key))
                ((known,),) = self._outbox.execute("SELECT key FROM issuer WHERE (hub, epoch) = (?, ?)", (hub, epoch))
                if known != key:
                    return f"the hub changed the key of the tokens of epoch {epoch}; none is bought or shown"
        return ""

    def wants(self, hub: str, epoch: int) -> bool:
        """Whether the token of an epoch is still to be bought."""
        rows = self._rows("token IS NULL AND request IS NOT NULL", hub, epoch)
        return bool(rows) or not self._rows("1", hub, epoch)

    def begun(self, hub: str, epoch: int) -> bool:
        """Whether the token of an epoch was drawn, so that the hub may know of it."""
        return bool(self._rows("1", hub, epoch))

    def draw(self, hub: str, epoch: int, key: bytes) -> Asked:
        """What to ask the hub for: the same as before, or drawn now and written down.

        Raises:
            WireError: The key is none.
        """
        with self._outbox.transaction(durable=True):
            if not self._rows("1", hub, epoch):
                asked = ask_for(key, epoch_challenge(hub, epoch))
                self._outbox.execute(
                    "INSERT INTO token (hub, epoch, key, content, inverse, request) VALUES (?, ?, ?, ?, ?, ?)",
                    (hub, epoch, key, asked.content, asked.inverse, asked.request),
                )
        ((key, content, inverse, request),) = self._rows("1", hub, epoch, "key, content, inverse, request")
        return Asked(key, content, inverse, request)

    def bought(self, hub: str, epoch: int, asked: Asked, response: bytes, ripe: float) -> bool:
        """Make the token from the hub's answer; False if the answer makes none.

        Args:
            hub: Name of the hub.
            epoch: Number of the epoch.
            asked: As :meth:`draw` returned it.
            response: The answer.
            ripe: Seconds since 1970 before which the token is not shown.
        """
        try:
            token = asked.token(response)
        except WireError:
            return False
        self._outbox.execute(
            "UPDATE token SET token = ?, ripe = ?, inverse = NULL, request = NULL WHERE (hub, epoch) = (?, ?)",
            (token, ripe, hub, epoch),
        )
        return True

    def give_up(self, hub: str, epoch: int) -> None:
        """There will be no token of this epoch: the hub sold this device another."""
        self._outbox.execute(
            "UPDATE token SET inverse = NULL, request = NULL WHERE (hub, epoch) = (?, ?)", (hub, epoch)
        )

    def spendable(self, hub: str, epoch: int, round_: int, now: float, longest: float) -> bytes | None:
        """The token that may be shown with the message of a round; None if there is none.

        Args:
            hub: Name of the hub.
            epoch: Epoch of the round.
            round_: Number of the round.
            now: Seconds since 1970.
            longest: Longest time from buying a token to showing it that is ever drawn, in seconds.
        """
        rows = self._rows("token IS NOT NULL", hub, epoch, "token, ripe, round")
        if not rows:
            return None
        token, ripe, bound = rows[0]
        # One that seems to ripen later than any does was bought while the clock was ahead.
        ripens = now < ripe <= now + longest
        return None if ripens or bound not in (None, round_) else token

    def bind(self, hub: str, epoch: int, round_: int) -> bool:
        """Bind the epoch's token to the message of a round, in the caller's transaction; False if it cannot be."""
        query = (
            "UPDATE token SET round = ? WHERE (hub, epoch) = (?, ?) AND token IS NOT NULL AND coalesce(round, ?) = ?"
        )
        self._outbox.execute(query, (round_, hub, epoch, round_, round_))
        return bool(self._rows("round = " + str(int(round_)), hub, epoch))

    def forget(self, hub: str, before: int) -> None:
        """Delete a hub's tokens and keys of epochs before this one."""
        for table in ("token", "issuer"):
            self._outbox.execute(f"DELETE FROM {table} WHERE hub = ? AND epoch < ?", (hub, before))

    def _rows(self, where: str, hub: str, epoch: int, columns: str = "1") -> list[tuple]:
        return self._outbox.execute(
            f"SELECT {columns} FROM token WHERE (hub, epoch) = (?, ?) AND {where}", (hub, epoch)
        )
