"""The state of a running device: token, terms, model, the trial of its round; and whether it may send."""

from __future__ import annotations

import dataclasses
import json
import logging
import math
import os
import sqlite3
import threading

from fedrank.core.trees import Json
from fedrank.deploy.device.outbox import Outbox, exceeds
from fedrank.deploy.device.trial import Limits, Round, Words, objection
from fedrank.deploy.terms import Terms
from fedrank.ranking.on_device import Request

_log = logging.getLogger("fedrank.device")
#: In place of a seed: the device is not due in a round.
IDLE = -1


class Memory:
    """The state of the device, in memory and in its file. Call its methods with :attr:`lock` held.

    Args:
        folder: Folder of the file.
        url: URL of the hub.
        limits: What the app allows.
        words: Source of random words for seeds and randomised response.
        relayed: Whether requests go through an oblivious relay.

    Attributes:
        lock: Lock of the state; never held while the network is used.
        token: Token of the device; None: it has to enrol.
        leaving: A token that the hub is still to forget.
        over: Whether training is over.
        out: Whether the user has opted out.
        unsaved: Whether the opting out could not be written.
        spent: Sum of the ε of all messages that left.
        disagrees: Whether the hub offers terms that the app has not agreed to.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        url: str,
        limits: Limits,
        words: Words,
        relayed: bool = False,
    ):
        self.lock, self.relayed = threading.RLock(), relayed
        self.url, self.limits, self.words = url, limits, words
        self.token: str | None = None
        self.leaving: str | None = None
        self.terms: Terms | None = None
        self.round: Round | None = None
        self.over = self.out = self.unsaved = self.closed = self.disagrees = False
        self.spent = 0.0
        self._said: set[str] = set()
        self.outbox = Outbox(folder)
        if not self.outbox.lasting:
            self.complain(f"the folder cannot be used, nothing outlives this process ({self.outbox.trouble})")

    def complain(self, message: str) -> None:
        """Log an error, the same message only once."""
        if message not in self._said and len(self._said) < 100:
            self._said.add(message)
            _log.error("%s", message)

    def load(self) -> None:
        """Read the state from the file."""
        get = self.outbox.get
        if get("url") not in (None, self.url):
            self.outbox.forget_hub()  # a token never goes to another hub
        self.out, self.disagrees = bool(get("out")) or self.unsaved, get("offered") is not None
        terms, model = get("terms"), get("model")
        try:
            self.terms = Terms.from_json(terms) if terms else None
            kept = self.terms.request.decode(model) if self.terms and model else None
            best = self.terms.request.decode(get("best")) if self.terms and get("best") else None
        except Exception as error:
            self.complain(f"what was kept is damaged and is fetched again ({type(error).__name__})")
            self.outbox.forget_hub(leaving=get("leaving"), leaving_terms=get("leaving_terms"))
            self.terms = kept = best = None
        self.token, self.leaving, self.spent = get("token"), get("leaving"), self.outbox.spent()
        self.use(kept, bool(get("over")), get("part"), best)

    def use(self, model: Request | None, over: bool, part: int | None = None, best: Request | None = None) -> None:
        """Rank with a model from now on.

        Args:
            model: The model; None: there is none.
            over: Training is over.
            part: The seed that was drawn for the device, :data:`IDLE` where it is not due in the model's round, or
                None: it draws a seed by itself.
            best: The best model so far, where the device was drawn to compare.
        """
        self.over = over
        if self.terms is None or model is None:
            self.round = None
            return
        hub, number = self.terms.hub, int(model.round)
        trial, reported = self.outbox.trial(hub, number), self.outbox.has_report(hub, number)
        now, due = self.round, part != IDLE
        seed = part if due else None
        here = None if now is None else (now.due, now.seed, now.best is None)
        if now is None or not now.is_about(self.terms, model) or here != (due, seed, best is None):
            self.round = Round(self.terms, model, trial, reported, due, None if best is None else best.weights, seed)
        else:
            now.trial, now.reported = trial or now.trial, reported

    def disagreement(self, terms: Terms) -> str:
        """Reason why nothing is sent under terms that the hub hands out now; empty if they are those agreed to.

        The first terms of a hub are agreed to by enrolling, within the app's limits. A hub of another name may have
        the same terms. What else is offered is kept for :meth:`agree`.
        """
        agreed = self.terms_agreed()
        if agreed is None or dataclasses.replace(terms, hub=agreed.hub) == agreed:
            return ""
        if terms.hub == agreed.hub:
            return "the hub changed its terms and kept its name, which is not allowed; nothing is sent under them"
        self.outbox.put(offered=json.dumps(terms.as_json()))
        changed = ", ".join(f"{name}: {old} → {new}" for name, (old, new) in changes(agreed, terms).items())
        return f"the hub's terms changed ({changed}); nothing is sent until the app agrees (Device.agree)"

    def terms_agreed(self) -> Terms | None:
        """The terms that the app agreed to; None before the first. Of a former version, ``wire`` says which."""
        kept = self.outbox.get("agreed") or self.outbox.get("terms")
        if not kept:
            return None
        said = json.loads(kept)
        agreed = Terms.from_json(json.dumps({**said, "wire": 0}))
        object.__setattr__(agreed, "wire", said.get("wire", agreed.wire))  # frozen; no device speaks a former one
        return agreed

    def terms_offered(self) -> Terms | None:
        """Terms that the hub hands out and that the app has not agreed to; None if there are none."""
        kept = self.outbox.get("offered")
        return Terms.from_json(kept) if kept else None

    def agree(self) -> bool:
        """Agree to what is offered; returns whether there was something."""
        offered = self.outbox.get("offered")
        if offered is None:
            return False
        with self.outbox.transaction(durable=True):
            self.outbox.put(agreed=offered, offered=None, backoff=None)
        self.load()
        _log.warning("the app agreed to the hub's new terms")
        return True

    def drop(self) -> int:
        """Drop the trial; returns the number of its interactions that were in memory only and are lost."""
        if self.round is None:
            return 0
        lost = self.round.lost
        self.round.drop()
        return lost

    def learns(self) -> bool:
        """True if the next interaction will count for learning."""
        now = self.round
        return now is not None and now.due and not (now.reported or self.over or self.closed or self.silence())

    def silence(self) -> str:
        """Reason why nothing is sent; empty if messages may be sent."""
        if self.out:
            return "the user has opted out"
        if self.outbox.unreadable:
            return "what was kept cannot be read: whether the user has opted out is not known"
        if self.disagrees:
            return "the hub's terms changed, and the app has not agreed to them"
        if self.terms is None:
            return ""
        if no := objection(self.terms, self.limits):
            return no
        if self.terms.batch and not self.relayed:
            return "the hub's terms have reports go through an oblivious relay; give the device its address (relay)"
        if self.limit < math.inf and not self.outbox.lasting:
            lifetime = self.limits.lifetime_epsilon
            what = "lifetime_epsilon" if lifetime < math.inf else "the terms' number of messages"
            return f"{what} cannot be kept to: the ledger does not outlive the process"
        if exceeds(self.spent, self.terms.epsilon_message, self.limit):
            if self.limits.lifetime_epsilon <= self.terms.epsilon_life:
                most = f"lifetime_epsilon = {self.limits.lifetime_epsilon:g}"
            else:
                most = f"the {self.terms.participations} of the hub's terms (ε = {self.terms.epsilon_life:.4g})"
            return f"ε = {self.spent:.4g} was spent; another message would exceed {most}"
        return ""

    @property
    def limit(self) -> float:
        """Largest sum of the ε of all messages: the app's, or that of the messages which the terms allow."""
        lifetime = self.limits.lifetime_epsilon
        return lifetime if self.terms is None else min(lifetime, self.terms.epsilon_life)

    def end(self) -> bool:
        """End the open interaction; returns whether it counts."""
        now = self.round
        if now is None or now.open is None:
            return False
        over, now.open = now.open, None
        try:
            now.trial, counts = self.outbox.add(now.terms, over, now.trial, self.words)
            now.reported = now.trial is None
            return counts
        except sqlite3.Error as error:
            self.complain(f"an interaction is lost, the file cannot be written: {error}")
            if not now.terms.at_once:
                now.drop()  # what was not committed may be on the disk, with its noise: no second noise on these sums
            return False


def changes(agreed: Terms, offered: Terms) -> dict[str, tuple[Json, Json]]:
    """The terms that differ, without the hub's name: by name, the agreed value and the offered one."""
    old, new = dataclasses.asdict(agreed), dataclasses.asdict(offered)
    return {name: (old[name], new[name]) for name in old if name != "hub" and old[name] != new[name]}
