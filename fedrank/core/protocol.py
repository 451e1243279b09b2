"""ask → answer → tell: the one abstraction that every protocol is written in.

A protocol is a short list of *exchanges*. In each, the server asks, every party answers with its own data, and the
server is told the replies::

    state = protocol.init(key)
    for each round, for each exchange in protocol.exchanges that is due:
        request      = exchange.ask(state)                    # server -> the parties that exchange.asked names
        party, reply = exchange.answer(request, party, key)   # at ONE party: the only code that sees its data
        state        = exchange.tell(state, replies, arrived) # parties -> server; who was heard in time

``answer`` is a pure function of arrays for *one* party, in two steps: ``draw`` its random numbers, ``respond``. A
simulator draws from keys and maps ``answer`` over a cohort with ``jax.vmap``; a deployed party draws from its operating
system.
Where a simulator also plays the party's user, a protocol keeps that apart from what privatises and reports, so that a
device calls the latter with what its own user did. Requests and replies are messages (:mod:`fedrank.core.messages`);
what leaves a party is a type.

A protocol of one exchange can be written in one class, a :class:`SingleExchangeProtocol`; federated averaging of a
linear model needs no more than this::

    import jax.numpy as jnp

    from fedrank.core.messages import Array, f4, field, message, u4
    from fedrank.core.protocol import SingleExchangeProtocol

    @message(kind=1)
    class Model:
        \"\"\"Server to parties: the model to start from.\"\"\"

        weights: Array = field(f4["parameters"], "the model to start from")

    @message(kind=2)
    class Trained:
        \"\"\"Party to server: the model after training on the party's rows.\"\"\"

        weights: Array = field(f4["parameters"], "the model after training")
        rows: Array = field(u4, "number of rows that the party trained on")

    class FedAvg(SingleExchangeProtocol, request=Model, reply=Trained):
        name = "my-fedavg"
        sizes = {"parameters": 3}

        def init(self, key):
            return jnp.zeros(3)

        def ask(self, state):
            return Model(state)

        def respond(self, request, party, draws):
            features, target = party.own
            step = 0.1 * features.T @ (features @ request.weights - target) / len(target)
            return party, Trained(request.weights - step, jnp.uint32(len(target)))

        def tell(self, state, replies, arrived):
            rows = replies.rows * arrived
            return jnp.where(rows.any(), rows @ replies.weights / rows.sum(), state)

        def weights(self, state):
            return state
"""

from __future__ import annotations

import abc
import dataclasses
import functools
from collections.abc import Mapping
from dataclasses import fields
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

import numpy as np
from jaxtyping import Bool, Float, Key, Shaped, UInt32

from fedrank.core.arrays import AnyArray, AnyInt, JaxArray, PyTree
from fedrank.core.errors import ConfigError, NotNativeError
from fedrank.core.lazy import register_waiting
from fedrank.core.messages import Layout, sizes_of
from fedrank.core.privacy_report import PrivacyReport

State = TypeVar("State")
Request = TypeVar("Request")
Reply = TypeVar("Reply")
M = TypeVar("M")

#: Source of a simulated party's random numbers: a typed key of JAX, a generator where the exchange is on the host, or
#: both words of each party's key where it is batched.
Randomness: TypeAlias = Key[JaxArray, ""] | np.random.Generator | UInt32[np.ndarray, "*parties 2"]


class Party(NamedTuple):
    """The data and the local state of a party, which never leave it.

    Attributes:
        shared: Data that a simulator holds once for all its parties, such as the queries of a collection; a deployed
            party holds its own part only.
        own: What this party has for itself: which of the data is its own, its local state. A pytree of arrays; in a
            simulator each leaf has a leading axis of parties.
    """

    shared: PyTree
    own: PyTree


class Environment(abc.ABC):
    """Events for all parties at once between two exchanges, such as the visits of users that they share.

    Only a simulator runs it. In a deployment it happens by itself: no message of it crosses, and no server sees it.
    """

    @abc.abstractmethod
    def begin(self, key: Key[JaxArray, ""], own: PyTree) -> tuple[PyTree, PyTree]:
        """The state before the first round.

        Args:
            key: Consumed.
            own: What each party has for itself; leaves [parties, ...].

        Returns:
            The environment's state, and ``own``.
        """

    @abc.abstractmethod
    def happen(
        self, world: PyTree, own: PyTree, key: Key[JaxArray, ""], number: AnyInt
    ) -> tuple[PyTree, PyTree, dict[str, Shaped[AnyArray, "..."]]]:
        """Run the events of one round.

        Args:
            world: The environment's state.
            own: What each party has for itself; leaves [parties, ...].
            key: Consumed.
            number: Number of the round, from 0; may be traced.

        Returns:
            The environment's state, ``own``, and what a simulator's curves show of it: arrays by name.
        """


@functools.lru_cache(maxsize=1024)  # a server asks for the same few with every message that comes
def _layout(message: type, sizes: tuple[tuple[str, int], ...]) -> Layout[Any]:
    return Layout(message, **dict(sizes))


class Exchange(abc.ABC, Generic[State, Request, Reply]):
    """One question of the server and the parties' answers to it.

    A subclass is final: it fills in these members and nothing else overrides them. It names the messages that cross,
    and the lengths of their axes come from :attr:`sizes`::

        class Average(Exchange, request=Model, reply=Trained): ...

    Where a message depends on settings, ``request`` or ``reply`` is a property that returns ``self.layout(…)`` of one
    message or another.

    Attributes:
        name: Short name, used in ledgers and errors.
        silent: Nothing crosses: each party does it by itself, and no message is counted.
        host: It computes on the host, with NumPy, for one party at a time: text, keys and hashes are no work for a
            compiled program. Its ``draw`` gets a ``numpy.random.Generator``, its ``draw_from_os`` returns None.
        batched: ``draw`` and ``respond`` compute with NumPy, for several parties at once: keys are uint32 [parties, 2],
            and ``own``, draws, the request's fields and the reply's have a leading axis of parties.
        personal: ``ask`` returns a question for each party: leaves with a leading axis of parties.
        environment: What happens among the parties once the exchange, which must be due in every round, is over.
        turn: What of a round it is, where several exchanges stand for each other, of which a round has one; empty: it
            is itself. A party that keeps its answers answers one of them.
    """

    name: str
    silent: bool = False
    host: bool = False
    batched: bool = False
    personal: bool = False
    environment: Environment | None = None
    turn: str = ""

    def __init_subclass__(cls, request: type | None = None, reply: type | None = None, **more: Any):
        super().__init_subclass__(**more)
        register_waiting()
        for side, message in (("request", request), ("reply", reply)):
            if isinstance(written := cls.__dict__.get(side), type):
                raise ConfigError(f"write class {cls.__name__}(…, {side}={written.__name__}) instead of {side} = ….")
            if message is not None:
                sizes_of(message)  # refuses what is no message
                setattr(cls, side, property(lambda self, message=message: self.layout(message)))
        if (cls.draw is Exchange.draw) != (cls.draw_from_os is Exchange.draw_from_os):
            raise ConfigError(
                f"{cls.__name__} has one of draw and draw_from_os; what a simulated party draws, a real one must, too."
            )

    @property
    def sizes(self) -> Mapping[str, int]:
        """Lengths of axes and largest values that the messages leave open, by name.

        By default those of ``settings``, the attribute by which an exchange in a separate class knows its protocol.
        """
        return getattr(getattr(self, "settings", None), "sizes", {})

    def layout(self, message: type[M]) -> Layout[M]:
        """The layout of a message under :attr:`sizes`."""
        sizes = self.sizes
        return _layout(message, tuple((name, sizes[name]) for name in sizes_of(message) if name in sizes))

    @property
    def request(self) -> Layout[Request]:
        """Layout of what the server sends to each party."""
        raise ConfigError(f"{type(self).__name__} names no request; write class {type(self).__name__}(…, request=…).")

    @property
    def reply(self) -> Layout[Reply]:
        """Layout of what a party sends back."""
        raise ConfigError(f"{type(self).__name__} names no reply; write class {type(self).__name__}(…, reply=…).")

    @abc.abstractmethod
    def ask(self, state: State) -> Request:
        """The server's question, the same for every party of the round; of a ``personal`` exchange one for each."""

    def address(self, state: State, party: int) -> Request:
        """The server's question to one party; by default the one to all parties, or its row of a personal question.

        Args:
            state: The server's state.
            party: Number of the party, from 0.
        """
        request: PyTree = self.ask(state)
        if not self.personal:
            return request
        return dataclasses.replace(request, **{f.name: getattr(request, f.name)[party] for f in fields(request)})

    def due(self, number: AnyInt) -> bool | Bool[AnyArray, ""]:
        """True if the exchange takes place in a round; depends on public values only.

        Args:
            number: Number of the round, from 0; may be traced.

        Returns:
            True for every round, or a bool made from ``number``.
        """
        return True

    def asked(self, state: State, parties: int) -> Bool[AnyArray, "{parties}"] | None:
        """The parties that are asked: bool [parties], or None for all. Nothing crosses to or from the others."""
        return None

    def max_asked(self, parties: int) -> int:
        """An upper bound of how many :meth:`asked` asks, so that a simulator need not answer for the others."""
        return parties

    def extra_messages(self, parties: int) -> tuple[tuple[str, str, Layout], ...]:
        """Messages that cross in addition to request and reply, such as the keys and shares of a secure sum.

        Args:
            parties: Parties of the round.

        Returns:
            Name of the step, sender (``"server"`` or ``"parties"``) and layout of each message of one party.
        """
        return ()

    def answer(self, request: Request, party: Party, key: Randomness) -> tuple[Party, Reply]:
        """One simulated party's answer, and what the party remembers.

        Args:
            request: What the server asked.
            party: What the party keeps: its data and its local state.
            key: The party's key for this round; consumed.
        """
        return self.respond(request, party, self.draw(key))

    def draw(self, key: Randomness) -> PyTree:
        """All random numbers of a simulated party in a round, from its key: a pytree of arrays; by default none."""
        return ()

    def draw_from_os(self) -> PyTree:
        """The same for a real party, from the operating system: what protects people comes from nowhere else."""
        return ()

    @abc.abstractmethod
    def respond(self, request: Request, party: Party, draws: PyTree) -> tuple[Party, Reply]:
        """:meth:`answer` with its random numbers given; arguments as there, ``draws`` as :meth:`draw` returns them."""

    @abc.abstractmethod
    def tell(self, state: State, replies: Reply, arrived: Bool[AnyArray, " parties"]) -> State:
        """The server's state after the replies.

        Args:
            state: The state that was asked from.
            replies: Leaves have a leading axis of parties.
            arrived: bool [parties]: False for a party that was not heard; its row of ``replies`` must not matter. If
                no party was heard, the model stays as it is.
        """


class Protocol(abc.ABC, Generic[State]):
    """A federated algorithm: an initial state of the server, and its exchanges.

    Attributes:
        name: Short name, as in the registry.
        task: Name of the task that it is a protocol of, where it is handed to the engine as an object.
        paper: Key of its publication in ``core/references.bib``; empty if there is nothing to cite.
        published: Author, title, venue and year of it, for tables.
        crosses: What leaves a party, for tables.
        caveat: A reason to take results with care, for pages, such as a published fault; empty: none.
        recommended: It is the one to take for its task where nothing speaks for another. Subclasses do not inherit it.
        modes: Settings that promise something else about privacy than the defaults do
            (:class:`fedrank.engine.methods.PrivacyMode`).
        sizes: Lengths of the axes and largest values that its messages leave open, by name.
        setup: What takes place once, before the first round: a protocol of exchanges on the host, of one round.
        quick: Its rounds compute little, so that a simulator compiles them with less optimisation, in half the time.
        wide: Its rounds compute networks mostly, so that a simulator compiles them for the processor's widest vectors,
            and with less optimisation.
    """

    name: str
    task: str = "ranking"
    paper: str = ""
    published: str = "for comparison"
    crosses: str = ""
    caveat: str = ""
    recommended: bool = False
    modes: tuple[Any, ...] = ()
    sizes: Mapping[str, int] = {}
    setup: Protocol | None = None
    quick: bool = False
    wide: bool = False

    @property
    @abc.abstractmethod
    def exchanges(self) -> tuple[Exchange, ...]:
        """The exchanges of one round, in order."""

    @abc.abstractmethod
    def init(self, key: Key[JaxArray, ""] | UInt32[np.ndarray, "2"] | None) -> State:
        """The server's state before the first round; ``key`` is consumed."""

    @abc.abstractmethod
    def weights(self, state: State) -> PyTree:
        """The model that the server would hand out now."""

    def cohort(self, parties: Party) -> Any:
        """Answers of all parties with compiled kernels, a :class:`fedrank.core.native.Cohort`.

        Args:
            parties: All parties, as they are simulated.

        Raises:
            NotNativeError: There are none, or none for these settings.
        """
        del parties
        raise NotNativeError(f"the protocol {self.name!r}")

    def watch(self, state: State) -> dict[str, Shaped[AnyArray, "..."]]:
        """The server's observations of the finished round, for curves and reports: arrays by name."""
        return {}

    def account(self, rounds: int, delta: float) -> PrivacyReport:
        """The protocol's promise to a party that took part in ``rounds`` rounds; by default none.

        Args:
            rounds: Rounds.
            delta: δ of the tighter bound over all of them, in (0, 1).
        """
        del delta
        return PrivacyReport.none(rounds)

    def epsilon_round(self, delta: float) -> float:
        """The ε of what a party sends in one round, as :meth:`account` has it.

        Args:
            delta: δ, in (0, 1).
        """
        return self.account(1, delta).epsilon_round

    def experience(self, party: Party) -> dict[str, Shaped[AnyArray, ""]]:
        """Measures of the round at one party, for a simulator's curves: scalars by name. No server ever sees them."""
        return {}

    def own_models(self, state: State, own: PyTree) -> Float[AnyArray, "parties n"] | None:
        """The models that parties themselves use; None: the server's, at every party.

        Args:
            state: The server's.
            own: What parties keep, with leading axis [parties].
        """
        del state, own
        return None


class SingleExchangeProtocol(Protocol[State], Exchange[State, Request, Reply]):
    """A protocol whose rounds have one exchange, in one object: it is the protocol and the exchange."""

    @property
    def exchanges(self) -> tuple[Exchange, ...]:
        """The only exchange of a round: the protocol itself."""
        return (self,)
