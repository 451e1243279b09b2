"""The terms of a hub, which a device agrees to before it sends anything. Needs NumPy and the standard library only.

A hub hands its terms out when a device enrols, and never changes them: other terms need another hub, with other
devices. A device computes itself what they promise its user (:attr:`Terms.epsilon_message`), sends nothing where that
is not enough, and does not rely on an ε that another party computed.

Some settings cannot be had together: start-up errors and documentation are made of the table of :class:`Exclusion`.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import typing
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from fedrank.core.errors import ConfigError, WireError
from fedrank.core.fields import setting
from fedrank.core.messages import WIRE_VERSION, Layout
from fedrank.core.trees import Json
from fedrank.metrics.online import REWARDS, OnlineMetric, discretise
from fedrank.privacy.piecewise import Piecewise
from fedrank.privacy.randomised_response import epsilon
from fedrank.ranking.on_device import ClicksToReply, Request, weights_of


class Case(NamedTuple):
    """A setting that says something.

    Attributes:
        words: How it is named in an error and in the documentation.
        holds: Whether settings have it.
    """

    words: str
    holds: Callable[[Any], bool]


class Exclusion(NamedTuple):
    """Settings that exclude one another: any of the first with any of the others.

    Attributes:
        first: A case.
        others: Further cases.
        why: The reason, a sentence without its stop.
    """

    first: Case
    others: tuple[Case, ...]
    why: str


#: All of them. Terms have no ``collect``.
EXCLUSIONS: tuple[Exclusion, ...] = (
    Exclusion(
        Case("batch", lambda s: s.batch),
        (Case("tokens = 0", lambda s: not s.tokens),),
        "a relay hides nothing while devices show their own tokens",
    ),
    Exclusion(
        Case("checks", lambda s: s.checks),
        (
            Case("mechanism = laplace", lambda s: s.mechanism == "laplace"),
            Case("collect", lambda s: getattr(s, "collect", False)),
        ),
        "a check is a privatised difference of the hub's newest and its best model: there is none with the noise of "
        "sums, and a hub that collects for a coordinator has no best model",
    ),
    Exclusion(
        Case("interleaved", lambda s: s.interleaved),
        (Case("a mechanism other than piecewise", lambda s: s.mechanism != "piecewise"),),
        "interleaved lists tell of each interaction twice, once for each ranker",
    ),
)


def refuse_excluded(settings: Any) -> None:
    """Refuse settings that have what excludes one another.

    Args:
        settings: Settings of a hub, or terms.

    Raises:
        ConfigError: Two exclude one another.
    """
    for first, others, why in EXCLUSIONS:
        for other in others:
            if first.holds(settings) and other.holds(settings):
                raise ConfigError(f"{first.words} and {other.words} cannot be had together: {why}. Leave one out.")


#: Rankers that a device can compute, and whether they have hidden units.
RANKERS = {"linear": False, "mlp": True}
#: Mechanisms that privatise rewards. Gaussian noise is left out: a device could not compute its ε by itself.
MECHANISMS = ("randomised-response", "laplace", "piecewise")
#: Those of them by which a message has one number.
ONE_NUMBER = ("piecewise",)
#: Versions of terms which ask a device to do what one of an earlier version does not: it refuses them, and sends
#: nothing. Version 2 has draws; version 3 has tokens that are bought an epoch ahead and draw.
_DRAWS, _TOKENS = 2, 3
#: Multiple of the noise's scale that it practically never exceeds; sums with noise are sent in 32 bits.
_TAIL = 40
#: Largest model that a hub hands out, in weights: 4 MB.
LARGEST_MODEL = 1_000_000


@dataclass(frozen=True)
class Agreement:
    """Terms that a hub and its devices agree on about the protocol: settings of a hub, and terms that it hands out."""

    n_features: int = setting(0, "Features of a document; needed to make a hub.")
    ranker: Literal["linear", "mlp"] = setting("linear", "Ranker: linear or mlp.")
    hidden: int = setting(0, "Hidden units of the mlp; 0: 10 for the mlp.")
    reward: str = setting("MaxRR", "Metric of an interaction's clicks that is maximised: MaxRR, DCG, nDCG or MeanRR.")
    reward_values: int | None = setting(None, "Number of values that the reward is rounded to.")
    depth: int = setting(10, "Ranks that are shown and looked at.")
    interactions: int = setting(4, "B, interactions in a message; even unless interleaved.")
    sigma: float = setting(0.01, "σ, standard deviation of the perturbation.")
    mechanism: Literal["randomised-response", "laplace", "piecewise"] = setting(
        "randomised-response",
        "Randomised response for each interaction, Laplace noise on the sums that are sent, or one privatised number "
        "about the whole message (piecewise).",
    )
    p: float = setting(0.9, "Probability that an interaction's metric is sent as it is; 1 with other mechanisms.")
    epsilon: float | None = setting(None, "ε of one interaction with Laplace noise, of a whole message with piecewise.")
    inside: int = setting(0, "Reports inside the window of piecewise; 0: by the smallest variance.")
    outside: int = setting(0, "Reports outside the window of piecewise; 0: by the smallest variance.")
    clip: float = setting(1.0, "Largest difference that a piecewise message tells, as a part of the largest there is.")
    interleaved: bool = setting(False, "Both rankers make each list that is shown, by team drafting; for piecewise.")
    participations: int | None = setting(None, "Most messages that a device ever sends; any number if nothing is said.")
    tokens: int = setting(
        0,
        "Rounds of an epoch, in each of which a device reports once, with a token not linked to it, in a round that is "
        "drawn by the token; 0: none.",
    )
    least_sales: int = setting(
        1, "Fewest tokens that an epoch sells: with fewer it is void, and no device reports in it."
    )
    gateway: str = setting("", "Public key of the gateway behind an oblivious relay; made with the hub.")
    batch: int = setting(0, "Fewest reports that an oblivious relay passes on together; 0: there is no relay.")
    log: str = setting("", "Public key of the public log of terms and models, made with the hub; no: there is no log.")
    operator: str = setting(
        "",
        "Public key of the operator, made with the hub: only with its other half, kept elsewhere, is the hub put back "
        "from a backup, or the log's key changed.",
    )
    due: float = setting(1.0, "Part of the devices that are due in a round, by a draw of each; others do not report.")
    drawn_seeds: bool = setting(
        False, "The seed of a device's perturbation is a draw, so that no one can search for a favourable one."
    )
    checks: float = setting(
        0.0, "Part of the devices, by a draw of each, that compare the newest model with the best one in a round."
    )


#: Names of what is agreed on.
AGREED = tuple(one.name for one in dataclasses.fields(Agreement))
#: Terms that the first version of the format did not have; further ones are added at the end.
_LATER = AGREED[AGREED.index("inside") :]


@dataclass(frozen=True)
class Terms(Agreement):
    """Everything about the protocol, FOLtR-ES, that a device must know. An mlp has its hidden units, at least one.

    Attributes:
        hub: Name of the hub: 32 random hexadecimal digits.
        protocol: ``"foltr-es"``.
        wire: Version of the terms: 1; 2 with draws and 3 with tokens, which a device of version 1 does not know; 0: as
            they need it.

    Raises:
        ConfigError: A term is out of range or contradicts another.
    """

    hub: str = field(kw_only=True)
    protocol: str = field(default="foltr-es", kw_only=True)
    wire: int = field(default=0, kw_only=True)

    def __post_init__(self):
        keys = {"log": self.log, "operator": self.operator, "gateway": self.gateway}
        for name, text, digits in (("hub", self.hub, 32), *((name, key, 64) for name, key in keys.items() if key)):
            if len(text) != digits or set(text) - set("0123456789abcdef"):
                raise ConfigError(f"{name} must be {digits} hexadecimal digits, got {text!r}.")
        if self.protocol != "foltr-es":
            raise ConfigError(f"protocol {self.protocol!r} cannot be spoken by a device; foltr-es can.")
        version = _TOKENS if self.tokens else _DRAWS if self.draws else WIRE_VERSION
        if self.wire not in (0, version):
            raise ConfigError(f"wire version {self.wire} is not spoken here, or not that of these terms, {version}.")
        object.__setattr__(self, "wire", version)  # frozen: resolved once, here
        if self.ranker not in RANKERS or RANKERS[self.ranker] != (self.hidden > 0):
            raise ConfigError(
                f"ranker must be linear without hidden units or mlp with some, got {self.ranker!r} with {self.hidden}."
            )
        if weights_of(self.n_features, self.hidden) > LARGEST_MODEL:
            raise ConfigError(f"a model of more than {LARGEST_MODEL:,} weights is not handed out to devices.")
        least = 1 if self.interleaved else 2
        if not least <= self.interactions <= 10_000 or self.interactions % least:
            even = "" if self.interleaved else "even and "
            raise ConfigError(f"interactions must be {even}in {least}..10,000, got {self.interactions}.")
        if not 1e-30 < self.sigma < 1e30:
            raise ConfigError(f"sigma must be positive and finite, got {self.sigma}.")
        if self.mechanism not in MECHANISMS:
            raise ConfigError(
                f"mechanism must be {' or '.join(MECHANISMS)} on a device, got {self.mechanism!r}: a device has to "
                "work out the ε of its messages by itself."
            )
        if self.reward_values is not None and not 2 <= self.reward_values <= 65_537:
            raise ConfigError(f"reward_values must be in 2..65,537, got {self.reward_values}.")
        if not 1 <= self.depth <= 10:
            raise ConfigError(f"depth must be in 1..10 on a device, got {self.depth}.")
        metric = self.metric  # refuses unknown names
        if self.mechanism == "laplace":
            if self.epsilon is None or not 0 < self.epsilon <= 1000 or self.p != 1:
                raise ConfigError(f"laplace needs epsilon in (0, 1000] and p = 1, got {self.epsilon} and {self.p}.")
            if _TAIL * metric.largest / self.epsilon >= 2**30:
                least = _TAIL * metric.largest / 2**30
                raise ConfigError(
                    f"epsilon of {metric.name} must be above {least:.2g} for noise to fit, got {self.epsilon}."
                )
        elif self.mechanism == "piecewise":
            if self.epsilon is None or self.p != 1:
                raise ConfigError(f"piecewise needs epsilon and p = 1, got {self.epsilon} and {self.p}.")
            assert self.number_mechanism is not None  # refuses an epsilon or a window that is out of range
        elif self.epsilon is not None or not 1 / metric.n <= self.p <= 1:
            raise ConfigError(
                f"randomised-response needs p in [1/{metric.n}, 1] and no epsilon, got {self.p} and {self.epsilon}."
            )
        if self.mechanism != "piecewise" and (self.inside, self.outside) != (0, 0):
            raise ConfigError(f"inside and outside mean nothing with the mechanism {self.mechanism!r}; leave them 0.")
        if not 1e-6 <= self.clip <= 1 or (self.clip < 1 and self.mechanism != "piecewise"):
            raise ConfigError(f"clip must be in 1e-6..1, and 1 with other mechanisms than piecewise; got {self.clip}.")
        refuse_excluded(self)
        if self.participations is not None and self.participations < 1:
            raise ConfigError(f"participations must be at least 1, got {self.participations}.")
        self._check_tokens()
        for name, share, least in (("due", self.due, 2.0**-32), ("checks", self.checks, 0.0)):
            if not least <= share <= 1:
                raise ConfigError(f"{name} must be in {least:g}..1, got {share}.")
        if self.checks and self.epsilon_interaction == 0:
            raise ConfigError("checks cannot be made with messages that tell nothing; leave them 0.")
        if self.per_half * metric.largest >= 2**24:
            raise ConfigError(
                f"a sum of {self.per_half} values of {metric.name} may exceed 24 bits; use less interactions."
            )

    def _check_tokens(self) -> None:
        if not 0 <= self.tokens <= 1_000_000:
            raise ConfigError(f"tokens must be in 0..1,000,000 rounds, got {self.tokens}.")
        if not 1 <= self.least_sales <= (100_000_000 if self.tokens else 1):
            raise ConfigError(f"least_sales must be in 1..100,000,000, and 1 without tokens; got {self.least_sales}.")
        if not 0 <= self.batch <= 100_000 or bool(self.batch) != bool(self.gateway):
            raise ConfigError(
                f"batch must be in 0..100,000, and above 0 with a gateway's key only; got {self.batch} and "
                f"{self.gateway!r}."
            )

    @functools.cached_property
    def metric(self) -> OnlineMetric:
        """Metric of an interaction's clicks, in integer units, whose values are sent."""
        metric = REWARDS.get(self.reward)(self.depth)
        return metric if self.reward_values is None else discretise(metric, self.reward_values)

    @property
    def per_half(self) -> int:
        """Number of interactions that judge θ + σv, and of those that judge θ − σv; all of them if interleaved."""
        return self.interactions if self.interleaved else self.interactions // 2

    @property
    def size(self) -> int:
        """Number of weights of the model."""
        return weights_of(self.n_features, self.hidden)

    @functools.cached_property
    def request(self) -> Layout[Request]:
        """Layout of the request, from the hub to a device."""
        return Layout(Request, parameters=self.size)

    @functools.cached_property
    def clicks_to_reply(self) -> ClicksToReply:
        """Function of a user's clicks that makes a reply, on a device as in a simulation."""
        noisy = self.mechanism == "laplace"
        return ClicksToReply(self.metric, self.per_half, True, self.p, noisy, self.number_mechanism, self.clip)

    @functools.cached_property
    def number_mechanism(self) -> Piecewise | None:
        """Mechanism for the one number of a message, the difference of the halves; None where it has sums."""
        if self.mechanism != "piecewise" or self.epsilon is None:
            return None
        return Piecewise(self.epsilon, self.inside, self.outside)

    @property
    def at_once(self) -> bool:
        """True if each interaction is privatised when it is over; else true sums are held until the message is made."""
        return self.mechanism == "randomised-response"

    @functools.cached_property
    def reply(self) -> Layout[Any]:
        """Layout of the reply, from a device to the hub."""
        return self.clicks_to_reply.layout

    @property
    def draws(self) -> bool:
        """True if draws decide what a device reports, so that one that comes after a round was opened waits."""
        return self.due < 1 or self.drawn_seeds or self.tokens > 0

    def epoch_of(self, round_: int) -> int:
        """Epoch of a round, with tokens: round 0 is epoch 0, which has none; each later epoch is ``tokens`` rounds."""
        return -(-round_ // self.tokens)

    @functools.cached_property
    def check(self) -> Layout[Any] | None:
        """Layout of a check, from a device to the hub; None where the terms have none."""
        return self.clicks_to_reply.check_layout if self.checks else None

    def is_check(self, body: bytes) -> bool:
        """True if a message from a device compares two models, so that no model learns from it."""
        return self.check is not None and body[:1] == self.check.head

    def layout_of(self, body: bytes) -> Layout[Any]:
        """The layout of a message from a device, a reply or a check."""
        return self.check if self.check is not None and self.is_check(body) else self.reply

    @property
    def epsilon_interaction(self) -> float:
        """ε of one interaction, in nats; infinite without protection."""
        if not self.at_once:
            assert self.epsilon is not None  # refused above
            return self.epsilon
        return epsilon(self.p, self.metric.n)

    @property
    def epsilon_message(self) -> float:
        """ε of one message, all of whose interactions may change, in nats."""
        one = self.epsilon_interaction
        return one if one == math.inf or self.number_mechanism is not None else one * self.interactions

    @property
    def epsilon_life(self) -> float:
        """ε of all messages that a device ever sends under these terms, in nats; infinite where nothing limits them."""
        return math.inf if self.participations is None else self.participations * self.epsilon_message

    def as_json(self) -> dict[str, Json]:
        """The terms as JSON, as they are sent and stored.

        Those that the first version of the format did not have are left out where they have their defaults, so that a
        hub, its log and its devices of that version go on.
        """
        defaults = {one.name: one.default for one in dataclasses.fields(self)}
        terms = dataclasses.asdict(self)
        return {name: value for name, value in terms.items() if name not in _LATER or value != defaults[name]}

    @classmethod
    def from_json(cls, text: str | bytes) -> Terms:
        """The inverse of ``json.dumps(terms.as_json())``; unknown keys are ignored, later versions may add some.

        Raises:
            WireError: It is not JSON, has values of wrong types, or contradicts itself.
        """
        hints = typing.get_type_hints(cls)
        try:
            values = json.loads(text)
            if not isinstance(values, dict):
                raise TypeError("not an object")
            given = {name: value for name, value in values.items() if name in hints}
            for name, value in given.items():
                kinds = typing.get_args(hints[name]) or (hints[name],)
                if typing.get_origin(hints[name]) is Literal:
                    kinds = (str,)  # which of them there are is checked with everything else
                if float in kinds and type(value) is int:
                    given[name] = float(value)
                elif type(value) not in kinds:
                    raise TypeError(f"{name} is {value!r}")
            missing = [one.name for one in dataclasses.fields(cls) if one.name not in given and one.name not in _LATER]
            if missing:
                raise TypeError(f"{missing[0]} is missing")
            return cls(**given)
        except (ValueError, TypeError, ArithmeticError, RecursionError) as error:
            raise WireError(f"terms of a hub cannot be read: {error}") from error
