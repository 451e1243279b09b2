"""Why a device may rank with a model: the hub's log has it, and everybody sees the same log."""

from __future__ import annotations

import hashlib
import json

from fedrank.deploy.device.connection import HubClient, Refusal
from fedrank.deploy.device.memory import Memory
from fedrank.deploy.log.proof import Answer, Head, TooShortError, Trust, UnprovenError
from fedrank.deploy.terms import Terms

#: Most pairs of heads that contradict each other that are kept.
_MOST_CONFLICTS = 16


class Prover:
    """Checks what a hub says about its log, and keeps the newest head that was checked.

    Args:
        memory: State of the device.
        connection: Client of the hub.
        trust: Witnesses that the app trusts.

    Attributes:
        told: It told the hub which size of the log it saw last, since this was last set to False. A hub could have
            given each device a size of its own, so that a size tells who asks as a token does.
    """

    told = False

    def __init__(self, memory: Memory, connection: HubClient, trust: Trust):
        self._memory, self._connection, self._trust = memory, connection, trust

    def objection(self, terms: Terms, model: bytes, best: bytes | None) -> str | Refusal:
        """Why a model is not used; empty if it is proven. A refusal is an answer that says nothing about it.

        Args:
            terms: Terms of the hub.
            model: The model message, as it came.
            best: The message of the best model, if it is to be used too.

        Raises:
            OSError: The hub does not answer.
        """
        if not terms.log:
            return "its terms have no log, and the app asks for witnesses" if self._trust.witnesses else ""
        head = self._checked(terms)
        if not isinstance(head, Head):
            return head
        if not head.holds(model, best):
            return "the newest model in the log is another"
        return ""

    def objection_to_key(self, terms: Terms, epoch: int, key: bytes) -> str | Refusal:
        """Why no token is bought with a key; empty if everybody sees the same. A refusal says nothing about it.

        Args:
            terms: Terms of the hub, which has tokens.
            epoch: Number of the epoch.
            key: The issuer's key, as published.

        Raises:
            OSError: The hub does not answer.
        """
        if not terms.log:
            return ""
        head = self._checked(terms)
        if not isinstance(head, Head):
            return head
        if head.keys.get(epoch) != hashlib.sha256(key).digest():
            return f"the log has no such key of the tokens of epoch {epoch}"
        return ""

    def _checked(self, terms: Terms) -> Head | str | Refusal:
        """The newest head, which is kept; or why there is none."""
        try:
            head = self._newest(terms, self.seen(terms))
            if isinstance(head, Head):
                self._keep(terms, head)
            return head
        except UnprovenError as error:
            if error.conflict is not None:
                self._keep_conflict(terms, error.conflict)
            return str(error)
        except ImportError:
            return "the package cryptography is not installed, which verifies signatures"

    def seen(self, terms: Terms) -> Head | None:
        """The newest head of the hub's log that was checked; None before the first.

        Raises:
            UnprovenError: It cannot be read any more, so that nobody can tell whether the log only grew.
        """
        with self._memory.lock:
            kept = self._memory.outbox.get(_name("head", terms))
        if kept is None:
            return None
        try:
            return Head.from_json(kept)
        except (ValueError, KeyError, TypeError) as error:
            raise UnprovenError("what this device kept of the log is damaged") from error

    def conflicts(self, terms: Terms) -> list[list[str]]:
        """Pairs of signed heads of the log that cannot both be true."""
        kept = self._memory.outbox.get(_name("conflicts", terms))
        return json.loads(kept) if kept else []

    def _newest(self, terms: Terms, seen: Head | None) -> Head | Refusal:
        asked = None if seen is not None else 0
        answer = self._connection.log(asked)
        if isinstance(answer, Refusal):
            return answer
        try:
            return Answer.parse(answer).checked(terms, seen, self._trust)
        except TooShortError:
            assert seen is not None  # nothing was too short before the first
            self.told = True
            answer = self._connection.log(seen.size)
            return answer if isinstance(answer, Refusal) else Answer.parse(answer).checked(terms, seen, self._trust)

    def _keep(self, terms: Terms, head: Head) -> None:
        outbox = self._memory.outbox
        with self._memory.lock, outbox.transaction():
            kept = outbox.get(_name("head", terms))  # another process may have seen a newer one
            if kept is None or Head.from_json(kept).size <= head.size:
                outbox.put(**{_name("head", terms): head.as_json()})

    def _keep_conflict(self, terms: Terms, conflict: tuple[str, str]) -> None:
        with self._memory.lock:
            found = self.conflicts(terms)
            if list(conflict) not in found and len(found) < _MOST_CONFLICTS:
                self._memory.outbox.put(**{_name("conflicts", terms): json.dumps([*found, list(conflict)])})


def _name(what: str, terms: Terms) -> str:
    """Name of a fact about a hub's log. It outlives the hub's token: a hub cannot have its log forgotten."""
    return f"{what} {terms.hub}"
