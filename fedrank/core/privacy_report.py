"""A protocol's promises about privacy: one report for every mechanism.

Differential privacy says that messages become at most e^ε times as likely, but for a probability of δ, when a *unit* of
a person's data changes. A report lists what is promised by unit, whom one has to trust for it to hold, and what no
number in it is about. A run leaves it as ``privacy.json``.

A person's device agrees to a largest ε where its app, or those who run a node, say nothing. These numbers are what a
hub asks for where nothing is said (:mod:`fedrank.deploy.hub.settings`): one message of ε = 1 in a device's life. The
messages of a device add up over all its rounds and hubs, so a second hub, or a hub that wants more, is for the app to
allow.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

from fedrank.core.trees import Json

#: δ of bounds over a run, unless told otherwise: below one in the number of users of a large application.
DELTA = 1e-6

#: How ε was found: of one release by itself, or as the sum of the ε of several.
SINGLE, BASIC = "a single release", "basic composition"

#: Whom one has to trust: no other party where noise is added before anything leaves a party; every reader if none is.
NOBODY, EVERYBODY = "nobody", "everybody who reads a message"

# What no ε is about, whatever the mechanism.
PARTICIPATION = "That a party takes part, in which rounds, and how often."
TRANSPORT = "What carries a message: network address, time of sending, and anything the transport adds."
KNOWN_RANDOMNESS = "Parties whose random numbers another party knows."
SIMULATION = (
    "Parties of a simulation. All its random numbers follow from the run's seed, so that it gives no protection and "
    "only shows what a deployed protocol would promise."
)
MORE_ROUNDS = "Rounds beyond those counted here: every further message adds to the ε of its sender."
MODEL = "What the trained model shows about people in general. It may apply to a person who never took part."
DEVICE = "Whoever can read the device itself."
SEED = (
    "The seed. It must be drawn without looking at any data and be used for the perturbation alone; then it says "
    "nothing about the person, but no ε says so."
)
#: What no ε of the messages of one device is about, and what none of a whole run is about.
OF_A_DEVICE = (PARTICIPATION, TRANSPORT, KNOWN_RANDOMNESS, MODEL, DEVICE)
OF_A_RUN = (*OF_A_DEVICE, MORE_ROUNDS, SIMULATION)


class Unit(StrEnum):
    """The unit of privacy: the data that may change while no message becomes more than e^ε times as likely."""

    #: One query of one user, with its results, clicks and reward.
    INTERACTION = "interaction"
    #: All interactions behind one of the two numbers of an antithetic message.
    HALF = "half of a message"
    #: All that one message tells about.
    MESSAGE = "message"
    #: All that one party puts into a round.
    ROUND = "round"
    #: All that one user or party puts into the run.
    USER = "user"
    #: All that all parties put into the run.
    RUN = "run"
    #: One list of values: what one message says of one moment of one user at one platform.
    VECTOR = "list of values"
    #: One occurrence of a word in a document.
    OCCURRENCE = "occurrence of a word"
    #: One occurrence of a word, replaced by another word.
    REPLACED_WORD = "replaced word"
    #: A whole document.
    DOCUMENT = "document"
    #: One row of a silo's table, replaced by any other.
    RECORD = "record"


@dataclass(frozen=True)
class Promise:
    """An ε with what it is about.

    Attributes:
        unit: What may change.
        epsilon: ε in nats; infinite where nothing bounds it.
        delta: δ, from 0 to 1.
        basis: How ε was found: :data:`SINGLE`, :data:`BASIC`, or the name of a tighter composition.
        scope: The part of what is sent that it holds for; empty for all of it.
    """

    unit: Unit
    epsilon: float
    delta: float = 0.0
    basis: str = SINGLE
    scope: str = ""


@dataclass(frozen=True)
class AuditedBy:
    """The audit that attacks what a report promises.

    Attributes:
        name: Its name in :data:`fedrank.privacy.audit.AUDITS`.
        settings: Keyword arguments of its function: ``epsilon``, ``delta`` if it takes one, and more.
    """

    name: str
    settings: Mapping[str, Json]


@dataclass(frozen=True)
class PrivacyReport:
    """The promises of privacy over a number of rounds.

    Attributes:
        mechanism: What is done to data before it is sent, such as ``"randomised response"``; ``"none"`` for nothing.
        trust: Whom one has to trust for the promises to hold; :data:`NOBODY` for local privacy.
        promises: By unit; of several for one unit and scope, the sharpest first.
        covers: What the promises are about, in sentences.
        not_covered: What no promise is about, in sentences.
        details: Numbers and words of the mechanism, by name.
        words: Paragraphs for the person who decides whether this may be deployed.
        audit: What attacks the mechanism; None: nothing does.
    """

    mechanism: str
    trust: str
    promises: tuple[Promise, ...] = ()
    covers: tuple[str, ...] = ()
    not_covered: tuple[str, ...] = ()
    details: Mapping[str, Json] = field(default_factory=dict)
    words: tuple[str, ...] = ()
    audit: AuditedBy | None = None

    @classmethod
    def none(
        cls,
        rounds: int,
        seen: str = "The protocol promises nothing: whoever runs the server sees every reply as it was sent.",
        words: tuple[str, ...] = (),
    ) -> PrivacyReport:
        """The report of a protocol that adds no noise: nothing bounds what is revealed.

        Args:
            rounds: Rounds of the run.
            seen: What is seen as it is, in a sentence.
            words: Further sentences for a page.
        """
        return cls("none", EVERYBODY, not_covered=(seen,), details={"rounds": rounds}, words=(seen, *words))

    def epsilon(self, unit: Unit, *, basis: str | None = None, scope: str = "") -> float:
        """The ε that is promised for a unit; infinite where none is.

        Args:
            unit: What may change.
            basis: How it is composed; by default as in the first promise for the unit, the sharpest.
            scope: As of :class:`Promise`.
        """
        found = (p for p in self.promises if (p.unit, p.scope) == (unit, scope) and basis in (None, p.basis))
        return next((p.epsilon for p in found), math.inf)

    @property
    def epsilon_round(self) -> float:
        """ε of all that one party sends in a round, by default a message; infinite where nothing bounds it."""
        return min(self.epsilon(Unit.ROUND), self.epsilon(Unit.MESSAGE))

    def as_json(self) -> dict[str, Json]:
        """The content of ``privacy.json``; what is infinite is None, since JSON has no infinity."""
        return {
            "mechanism": self.mechanism,
            "trust": self.trust,
            "epsilon_round": _finite(self.epsilon_round),
            "promises": [asdict(p) | {"unit": str(p.unit), "epsilon": _finite(p.epsilon)} for p in self.promises],
            "details": {name: _finite(value) for name, value in self.details.items()},
            "covers": list(self.covers),
            "not_covered": list(self.not_covered),
            "words": list(self.words),
            "audit": None if self.audit is None else {"name": self.audit.name, "settings": dict(self.audit.settings)},
        }

    @classmethod
    def from_json(cls, content: Mapping[str, Json]) -> PrivacyReport:
        """The inverse of :meth:`as_json`.

        Raises:
            KeyError: Something is missing.
            TypeError: A promise has something that it should not have.
            ValueError: There is no such unit.
        """
        promises = (
            Promise(**p | {"unit": Unit(p["unit"]), "epsilon": math.inf if p["epsilon"] is None else p["epsilon"]})
            for p in content["promises"]
        )
        lists = {name: tuple(content[name]) for name in ("covers", "not_covered", "words")}
        audit = None if (by := content.get("audit")) is None else AuditedBy(by["name"], dict(by["settings"]))
        details = dict(content["details"])
        return cls(content["mechanism"], content["trust"], tuple(promises), details=details, audit=audit, **lists)


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and math.isinf(value) else value


def remark(epsilon: float, limit: float = 20.0) -> str:
    """A sentence for a page, after a space, on an ε beyond a limit; empty for smaller ones."""
    return " An ε of this size is a formal bound with little meaning of its own." if epsilon > limit else ""


#: The end of a paragraph for a page.
AND_NOT = " Not covered, among other things: that a party takes part, when, and from which network address."


#: Largest ε of one search.
MOST_SEARCH_EPSILON = 1.0
#: Largest ε of one message, or of one round.
MOST_EPSILON = 1.0
#: Largest ε of all messages, or of a run as a whole.
LIFETIME_EPSILON = 1.0
