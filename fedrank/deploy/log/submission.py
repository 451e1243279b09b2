"""Cosignatures of a hub's log: every new head is shown to its witnesses, in the background (C2SP tlog-witness)."""

from __future__ import annotations

import base64
import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from fedrank.core.errors import ConfigError, FedrankError
from fedrank.deploy.http.client import ClientResponse, HttpClient
from fedrank.deploy.log.note import WITNESS, Checkpoint, Key

_log = logging.getLogger("fedrank.hub")

#: Seconds after which a head is shown again, so that its cosignatures stay recent, and between tries after a failure.
REFRESH, _AGAIN = 3600.0, 5.0
#: Longest silence of a witness, in seconds.
_TIMEOUT = 10.0


@dataclass(frozen=True)
class Witness:
    """A witness: its address and its public key."""

    url: str
    key: Key

    @classmethod
    def parse(cls, text: str) -> Witness:
        """From an address and a public key with a space in between.

        Raises:
            ConfigError: It is not of this form.
        """
        url, _, key = text.strip().partition(" ")
        if not key:
            raise ConfigError(f"a witness is an address and a public key with a space in between, got {text!r:.120}.")
        HttpClient(url)  # refuses what is no address
        return cls(url, Key.parse(key, WITNESS))


def body_of(old: int, proof: list[bytes], note: str) -> bytes:
    """The body of a request to cosign a head."""
    lines = [f"old {old}", *(base64.b64encode(one).decode() for one in proof), "", note]
    return "\n".join(lines).encode()


class Submission:
    """Shows heads to witnesses, one thread for each, so that a slow one holds up no other.

    Args:
        witnesses: Addresses and keys, as the setting has them.
        proof: Returns the consistency proof between two sizes.
        cosigned: Called with the size of a head and the signature lines that it has so far.

    Raises:
        ConfigError: A witness cannot be read.
    """

    def __init__(
        self,
        witnesses: tuple[str, ...],
        proof: Callable[[int, int], list[bytes]],
        cosigned: Callable[[int, str], None],
    ):
        self._witnesses = [Witness.parse(one) for one in witnesses]
        self._proof, self._cosigned = proof, cosigned
        self._changed = threading.Condition()
        self._head: tuple[str, int] = ("", 0)
        self._lines: dict[str, str] = {}  # by the witness's key, under the newest head
        self._reading = threading.Lock()  # proofs are read from one connection
        self._stopped = False
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        """Begin to show heads."""
        for witness in self._witnesses:
            made = threading.Thread(target=self._run, args=(witness,), name="fedrank-witness", daemon=True)
            self._threads.append(made)
            made.start()

    def submit(self, note: str, size: int) -> None:
        """Show a new head; returns at once."""
        with self._changed:
            self._head, self._lines = (note, size), {}
            self._changed.notify_all()

    def stop(self) -> None:
        """Show no further head; does not wait for witnesses that are being asked."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()

    def _run(self, witness: Witness) -> None:
        client, old, done, failed = HttpClient(witness.url, timeout=_TIMEOUT), 0, 0, False
        due = 0.0
        while True:
            with self._changed:
                while not self._stopped and (self._head[1] == done or not self._head[1]) and time.monotonic() < due:
                    self._changed.wait(max(0.0, due - time.monotonic()))
                if self._stopped:
                    return
                note, size = self._head
            if not size:
                due = time.monotonic() + _AGAIN
                continue
            line, old, why = self._ask(client, witness, note, size, old)
            if line:
                done, due, failed = size, time.monotonic() + REFRESH, False
                with self._changed:
                    if self._head[1] == size:
                        self._lines[str(witness.key)] = line
                        self._cosigned(size, "".join(self._lines.values()))
                continue
            if not failed:
                _log.warning("witness %s does not cosign: %s", witness.key.name, why)
            failed, done, due = True, size, time.monotonic() + _AGAIN

    def _ask(self, client: HttpClient, witness: Witness, note: str, size: int, old: int) -> tuple[str, int, str]:
        """Ask for a cosignature; returns its line, the size that the witness knows, and why there is none."""
        why = ""
        for _ in range(3):  # the first may learn what the witness has seen; another hub process may be at it as well
            try:
                with self._reading:
                    proof = self._proof(old, size)
                answer: ClientResponse = client.request("POST", "/add-checkpoint", "", body=body_of(old, proof, note))
                if answer.status == 200:
                    line = _line(witness.key, note, answer.body.decode())
                    return line, size if line else old, "its signature is not its own"
                why = f"status {answer.status}"
                if answer.status != 409:
                    break
                seen = int(answer.body.decode("ascii", "replace").strip())
                if not 0 <= seen <= size:
                    return "", old, f"it has seen a head of size {seen}, this log has {size}"
                old = seen
            except (OSError, ValueError, FedrankError) as error:
                return "", old, f"{type(error).__name__}: {error}"
        return "", old, why


def _line(key: Key, note: str, lines: str) -> str:
    """The one valid signature line of a witness among lines that came; empty if there is none."""
    text = Checkpoint.parse(note).text
    for line in lines.splitlines(keepends=True):
        if Checkpoint.parse(f"{text}\n{line}").cosigned_by(key) is not None:
            return line
    return ""
