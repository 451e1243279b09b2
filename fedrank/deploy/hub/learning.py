"""The stage that learns, and a server's mathematics on messages as they came: ask, tell, and a model from a log.

Both are the exchange's own, in NumPy, as in rounds without JAX (:mod:`fedrank.core.native`). The hub and ``fedrank hub
replay`` go through the same function, so that on one machine the log of messages gives the very model, bit by bit.
Messages are applied in the order of their devices' numbers, never in that of their arrival.
"""

from __future__ import annotations

import abc
import hashlib
import logging
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float32

from fedrank.core.arrays import PyTree
from fedrank.core.errors import ConfigError, RunError
from fedrank.core.protocol import Exchange, Protocol
from fedrank.core.trees import Json
from fedrank.deploy.hub.checks import Comparing
from fedrank.deploy.hub.settings import HubSettings, fingerprint
from fedrank.deploy.hub.stages import Stage
from fedrank.deploy.hub.store import Judgement, States, Store
from fedrank.deploy.terms import Terms
from fedrank.privacy.randomised_response import debias
from fedrank.ranking.foltr_es import FoltrES

_log = logging.getLogger("fedrank.hub")


class Reward(NamedTuple):
    """Estimate of a round's reward from its messages.

    Attributes:
        mean: Estimate of the true mean reward of all interactions, at θ ± σv; None where it cannot be estimated.
        error: Standard error over the messages; None for fewer than two.
    """

    mean: float | None
    error: float | None


class Learning:
    """The server's side of a protocol with one exchange, whose messages are bytes.

    Args:
        protocol: Protocol with one exchange and no further messages than request and reply.

    Raises:
        ConfigError: The protocol needs more than one message of a device.
    """

    def __init__(self, protocol: Protocol):
        if len(protocol.exchanges) != 1 or protocol.exchanges[0].extra_messages(2):
            raise ConfigError(
                f"a hub hears one message of a device in a round; {protocol.name} needs more. Run it on Flower."
            )
        self.protocol = protocol
        self.exchange: Exchange = protocol.exchanges[0]

    def init(self) -> PyTree:
        """The state before the first round."""
        return self.protocol.init(np.zeros(2, np.uint32))

    def request(self, state: PyTree) -> bytes:
        """The request that devices get, as bytes."""
        return self.exchange.request.encode(self.exchange.ask(state))

    def weights(self, state: PyTree) -> Float32[np.ndarray, " parameters"]:
        """Weights of the model, float32 [parameters]."""
        return np.asarray(self.protocol.weights(state), np.float32)

    def digest(self, state: PyTree) -> bytes:
        """SHA-256 of the model's bytes, 32 bytes."""
        return hashlib.sha256(self.weights(state).astype("<f4").tobytes()).digest()

    def tell(self, state: PyTree, messages: Sequence[bytes]) -> PyTree:
        """The state after messages, each of which :meth:`~fedrank.core.messages.Layout.decode` accepts.

        Args:
            state: Before.
            messages: Messages in the order of the devices' numbers; without any the model stays as it is.
        """
        replies = self.exchange.reply.decode_all(b"".join(messages))
        return self.exchange.tell(state, replies, np.ones(len(messages), bool))

    def restart(self, state: PyTree, number: int) -> PyTree:
        """An earlier state, optimiser and all, as the one before round ``number``."""
        return state._replace(round=np.asarray(number, state.round.dtype))


def protocol_of(settings: HubSettings, store: Store) -> FoltrES:
    """The protocol of a hub, with the weights that it started from."""
    return settings.protocol(np.frombuffer(store.start(), "<f4").tolist())


def reward_of(protocol: FoltrES, messages: Sequence[bytes]) -> Reward:
    """Estimate the reward of a round from its messages."""
    if protocol.shown.halves == 1 or not messages or protocol.privacy.one_number:  # of which messages say nothing
        return Reward(None, None)
    replies = protocol.exchanges[0].reply.decode_all(b"".join(messages))
    sums = np.asarray(replies.plus, np.float64) + np.asarray(replies.minus, np.float64)
    each = sums / (protocol.interactions * protocol.metric.scale)
    if (p := protocol.clicks_to_reply.p) < 1:
        if p == 1 / protocol.metric.n:
            return Reward(None, None)
        each = np.asarray(debias(each, protocol.metric.values, p))
    error = float(each.std(ddof=1) / math.sqrt(len(each))) if len(each) > 1 else None
    return Reward(float(each.mean()), error)


def rebuild(
    learning: Learning,
    state: PyTree,
    rounds: Iterable[tuple[int, Sequence[tuple[int, bytes]]]],
    *,
    without: frozenset[int] = frozenset(),
    check: Callable[[int, Any], None] | None = None,
    returns: Mapping[int, int] | None = None,
) -> Any:
    """Rebuild the model from a log.

    Leaving devices out *removes their messages*. It is not training without them: the other devices were asked about
    models to which these messages contributed.

    Args:
        learning: The protocol.
        state: State before the first of the rounds.
        rounds: Of each round its number, and device and message of each report, by device.
        without: Numbers of devices that are left out.
        check: Called with each round's number and the state before it.
        returns: Rounds before which the model went back to that before an earlier round, one of those given; the state
            after the last of the rounds goes back as well.

    Returns:
        The state after the last round.

    Raises:
        RunError: The rounds do not follow each other.
    """
    back, kept, following = dict(returns or {}), {}, None
    wanted = set(back.values())
    for number, reports in rounds:
        if number in back:
            state = learning.restart(kept[back[number]], number)
        if number in wanted:
            kept[number] = state
        following = number + 1
        if check is not None:
            check(number, state)
        at = int(np.asarray(state.round)) if hasattr(state, "round") else number
        if at != number:
            raise RunError(f"the log goes on with round {number} where round {at} should be; rounds are missing.")
        state = learning.tell(state, [message for device, message in reports if device not in without])
    if following in back:
        state = learning.restart(kept[back[following]], following)
    return state


class Learnt(NamedTuple):
    """Result of a round.

    Attributes:
        messages: Number of messages that the model learnt from.
        reward: Their mean reward.
        following: State of the hub afterwards: ``"open"``, ``"done"``, ``"halted"``, or ``"between"`` where a
            coordinator opens the next round.
        judged: What its checks said, and the state of the tests after it; None: it had none.
    """

    messages: int
    reward: Reward
    following: str
    judged: tuple[Judgement, str] | None = None


class Model(Stage, abc.ABC):
    """The model that a hub hands out, round by round.

    Args:
        settings: Settings of the hub.
        terms: Terms of the hub.
        store: The log.

    Attributes:
        own: The hub trains it and opens the rounds itself.
    """

    own = True

    def __init__(self, settings: HubSettings, terms: Terms, store: Store):
        self.settings, self.terms, self.store, self.protocol = settings, terms, store, protocol_of(settings, store)

    @abc.abstractmethod
    def question(self) -> bytes:
        """The request that devices get, as bytes."""

    @abc.abstractmethod
    def digest(self) -> bytes:
        """SHA-256 of the request's weights, 32 bytes."""

    def best(self) -> bytes | None:
        """The request of the best model, as it was handed out; None where devices do not compare."""
        return None

    @property
    def is_halted(self) -> bool:
        """True if the hub is halted because its model sank."""
        return False

    def warm(self) -> None:
        """Load or compile what rounds need."""

    @abc.abstractmethod
    def learn(self, number: int, reports: Sequence[tuple[int, bytes]]) -> Learnt:
        """Learn from a closed round; what was learnt is on the disk when this returns. May be repeated.

        Args:
            number: Number of the round.
            reports: Device and message of each report that is used, by device.

        Raises:
            RunError: It cannot be written.
        """

    def confirm(self, number: int, learnt: Learnt) -> None:
        """Go on after the result of a round was written to the log."""

    def resume(self, number: int, entry: bytes | None) -> None:
        """Write the end of a halt before a round; nothing where a hub never halts. ``entry`` is of the public log."""


class OwnModel(Model):
    """A model that the hub trains: every round updates it.

    Args:
        folder: Folder where earlier versions kept states.
        settings: Settings of the hub.
        terms: Terms of the hub.
        store: The log, from which the model is rebuilt where checkpoints are missing.
    """

    def __init__(self, folder: Path, settings: HubSettings, terms: Terms, store: Store):
        super().__init__(settings, terms, store)
        self._learning = Learning(self.protocol)
        self._checkpoints = self._states(folder)
        self._state = self._learning.init()
        self._last = -1  # the last round that updated the model

    def _states(self, folder: Path) -> States:
        return States(self.store, folder.name, fingerprint(self.settings, self.store.name), folder)

    def recover(self, number: int) -> None:
        """Restore the model before a round from the newest checkpoint up to there, and the log from there on."""
        self._last = -1  # a later process may have gone on with other reports
        self._state = self._before(self._checkpoints, number)

    def _before(self, checkpoints: States, number: int) -> Any:
        """The state before a round."""
        # A state beyond the log's round belongs to a round that was not marked as applied: it is made again.
        halts = [halt for halt in self.store.halts() if halt.round <= number]
        start, state = next(checkpoints.states(self._state, number), (0, self._learning.init()))
        if any(halt.best < start < halt.round for halt in halts):
            start, state = 0, self._learning.init()
        returns = {halt.round: halt.best for halt in halts if halt.round > start}
        todo = [(n, learnable(self.store.reports(n), self.terms)) for n in range(start, number)]
        if todo:
            _log.warning("no checkpoint of round %d; the model is made again from round %d of the log", number, start)
        return rebuild(self._learning, state, todo, returns=returns)

    def question(self) -> bytes:
        """The protocol's request, as bytes."""
        return self._learning.request(self._state)

    def digest(self) -> bytes:
        """SHA-256 of the model's weights, 32 bytes."""
        return self._learning.digest(self._state)

    def warm(self) -> None:
        """Load the kernels that an update takes, or compile them."""
        self._learning.tell(self._state, [])

    def learn(self, number: int, reports: Sequence[tuple[int, bytes]]) -> Learnt:
        """Do one step of the protocol and write a checkpoint."""
        messages = [message for _, message in learnable(reports, self.terms)]
        reward = reward_of(self.protocol, messages)
        if self._last != number:  # else it was the log that could not be written
            self.tell(number, messages)
            self._last = number
        return Learnt(len(messages), reward, "done" if 0 < self.settings.rounds <= number + 1 else "open")

    def tell(self, number: int, messages: Sequence[bytes]) -> None:
        """Update the model with the messages of a round; errors as :meth:`learn`."""
        self._save(number + 1, self._learning.tell(self._state, messages))

    def _save(self, number: int, state: PyTree) -> None:
        """Write a state and make it the one before a round."""
        self._checkpoints.save(number, state)
        self._state = state


class ComparedModel(OwnModel):
    """A model that devices compare with the best one so far; where it sinks, the hub halts and returns to that one.

    Arguments as of :class:`OwnModel`.
    """

    def __init__(self, folder: Path, settings: HubSettings, terms: Terms, store: Store):
        super().__init__(folder, settings, terms, store)
        self._checks = Comparing(settings, store)
        self._bests, self._best = self._states(folder / "best"), None

    def recover(self, number: int) -> None:
        """Restore the model and the best one."""
        super().recover(number)
        self._checks.recover()
        self._promote(self._checks.watch.best)

    def best(self) -> bytes | None:
        """The request of the best model, as it was handed out."""
        return None if self._best is None else self._learning.request(self._best[1])

    @property
    def is_halted(self) -> bool:
        """True if the hub is halted because its model sank."""
        return self._checks.is_halted

    def _promote(self, number: int) -> None:
        """Take the model before a round for the best one; it is kept apart, however old it gets."""
        if self._best is not None and self._best[0] == number:
            return
        current = int(np.asarray(self._state.round)) == number
        state = self._state if current else self._before(self._bests, number)
        if self.store.leads:
            self._bests.save(number, state)
        self._best = (number, state)

    def learn(self, number: int, reports: Sequence[tuple[int, bytes]]) -> Learnt:
        """Judge the model by the round's checks, then learn or return to the best model."""
        found = self._checks.judge(number, [message for _, message in reports if self.terms.is_check(message)])
        if found is not None and self._last != number:
            if found.promoted:
                self._promote(number)
            if found.sinks:
                assert self._best is not None
                self._save(number + 1, self._learning.restart(self._best[1], number + 1))
                self._last = number
        learnt = super().learn(number, reports)
        if found is None:
            return learnt
        following = "halted" if found.sinks else learnt.following
        return learnt._replace(following=following, judged=(found, self._checks.watch.state))

    def confirm(self, number: int, learnt: Learnt) -> None:
        """Say that the hub has halted, where it has."""
        if learnt.following == "halted":
            self._checks.halt(number + 1)

    def resume(self, number: int, entry: bytes | None) -> None:
        """Begin the tests anew and open the round that was not opened."""
        self._checks.watch.restart()
        self.store.resume(self._checks.watch.state, number, self.digest(), entry)
        self._checks.resume()

    def status(self) -> dict[str, Json]:
        """``checks`` and ``alert`` of the status."""
        return self._checks.as_json()


class CollectedModel(Model):
    """A model that a coordinator trains: the hub hands out the requests that it is given, and keeps them in its log."""

    own = False

    def __init__(self, settings: HubSettings, terms: Terms, store: Store):
        super().__init__(settings, terms, store)
        self._question = b""

    def number_of(self, question: bytes) -> int:
        """Number of the round that a request is about.

        Raises:
            WireError: It does not fit this hub's terms.
        """
        return int(self.terms.request.decode(question).round)

    def take(self, number: int, question: bytes, entry: bytes | None) -> None:
        """Open a round with this request, ``entry`` of the public log; errors as :meth:`Model.learn`."""
        self.store.open_round(number, _digest_of_question(question), question, entry)
        self._question = question

    def recover(self, number: int) -> None:
        """Read the request of a round from the log."""
        self._question = self.store.question(number) or b""

    def question(self) -> bytes:
        """The coordinator's newest request; empty before the first."""
        return self._question

    def digest(self) -> bytes:
        """SHA-256 of the request's weights, 32 bytes."""
        return _digest_of_question(self._question)

    def learn(self, number: int, reports: Sequence[tuple[int, bytes]]) -> Learnt:
        """Estimate the reward; the coordinator collects the messages from the log."""
        messages = [message for _, message in reports]
        return Learnt(len(messages), reward_of(self.protocol, messages), "between")


def _digest_of_question(question: bytes) -> bytes:
    """SHA-256 of the weights in a request: what follows its header and its round."""
    return hashlib.sha256(question[5:]).digest()


def learnable(reports: Sequence[tuple[int, bytes]], terms: Terms) -> list[tuple[int, bytes]]:
    """Reports of a round that the model learns from, as device and message: all but the checks."""
    return [(device, message) for device, message in reports if not terms.is_check(message)]
