"""Attacks by malicious parties: a simulator applies them between ``answer`` and ``tell``.

An attack is a frozen dataclass. Its ``tamper`` replaces the replies of the attackers and leaves those of the honest as
they are, bit for bit; it is pure JAX. Attackers may talk to each other, know the protocol and the server's question,
and know their own honest replies; they do not know those of others (*partial knowledge* in the literature). What they
send is a well-formed message: a server that checks its messages finds nothing wrong.

How far one attacker can move the server differs between protocols:

* **Evolution strategies** (:mod:`fedrank.ranking.foltr_es`): a message is a seed and two bounded numbers. The server
  remakes the perturbation, so that an attacker chooses among random directions and by how much, within the range of the
  metric.
* **Weights** (FPDGD): a message is a vector, and the mean goes wherever one attacker wants it. If vectors are clipped
  to a norm the step is bounded.

Further attacks are plug-ins of ``fedrank-zoo``. A user who clicks to do harm is no attack on replies:
see :mod:`fedrank.ranking.clicks.cascade`.

Attacks are one of the faults of a simulation (:class:`Conditions`), beside drop-outs and stragglers.
"""

from __future__ import annotations

import abc
import dataclasses
import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from jaxtyping import Bool, Key
from typing_extensions import override

from fedrank.core.arrays import JaxArray as Array
from fedrank.core.arrays import PyTree
from fedrank.core.errors import ConfigError
from fedrank.core.lazy import jnp
from fedrank.core.messages import Field
from fedrank.core.protocol import Protocol
from fedrank.core.registry import Entry, Registry


class Attack(abc.ABC):
    """A rule for the replies that attackers send. Subclasses are final, frozen dataclasses with their settings."""

    @classmethod
    @abc.abstractmethod
    def works_on(cls, protocol: Protocol) -> bool:
        """True if the replies of this protocol are of the kind that this attack makes."""

    @abc.abstractmethod
    def tamper(
        self,
        key: Key[Array, ""],
        request: PyTree,
        replies: PyTree,
        attackers: Bool[Array, " parties"],
        protocol: Protocol,
    ) -> PyTree:
        """The replies of a round, those of the attackers replaced.

        Args:
            key: Typed key of the round for this purpose; consumed.
            request: What the server asked.
            replies: All parties' honest replies; leaves have a leading axis of parties.
            attackers: bool [parties].
            protocol: The protocol that the replies belong to.

        Returns:
            As ``replies``.
        """


#: Attacks on replies by name.
ATTACKS: Registry[type[Attack]] = Registry("attack", "fedrank.attackers")


#: Keeps the draw of the attackers apart from other draws with the same seed: who attacks is independent of who holds
#: what.
_ATTACKERS = 0x4C494152


def draw_attackers(parties: int, share: float, seed: int) -> Bool[np.ndarray, "{parties}"]:
    """A random set of attacking parties, the same in every round.

    Args:
        parties: Number of parties.
        share: Share of attackers, in [0, 1]. Rounded down to whole parties, but at least one if it is not 0.
        seed: Seed of the draw (PCG64).

    Returns:
        bool [parties].

    Raises:
        ConfigError: No parties, or a share outside [0, 1].

    >>> [int(draw_attackers(10, share, seed=0).sum()) for share in (0.3, 0.01, 0.0)]
    [3, 1, 0]
    """
    if parties < 1:
        raise ConfigError(f"parties must be at least 1, got {parties}.")
    if not 0 <= share <= 1:
        raise ConfigError(f"the share of attackers must be in [0, 1], got {share}.")
    # A product such as 0.29 · 100 lies a rounding error below the whole number that is meant.
    number = max(math.floor(share * parties + 1e-9), 1 if share > 0 else 0)
    chosen = np.random.Generator(np.random.PCG64([seed, _ATTACKERS])).permutation(parties)[:number]
    attacking = np.zeros(parties, bool)
    attacking[chosen] = True
    return attacking


def reply_fields(protocol: Protocol) -> dict[str, Field]:
    """The fields of the reply of a protocol with one exchange, by name; empty for other protocols."""
    if len(protocol.exchanges) != 1:
        return {}
    return {field.name: field for field in protocol.exchanges[0].reply.fields}


def largest_values(protocol: Protocol) -> dict[str, int]:
    """Largest value of each field of a reply that holds a sum or a report."""
    fields = reply_fields(protocol)
    return {name: field.largest for name, field in fields.items() if name != "seed" and field.largest is not None}


class OnValues(Attack):
    """Attacks on a seed and one or two bounded numbers: the replies of FOLtR-ES.

    The numbers are the sums of the halves, or one privatised report about their difference. Such a report counts for
    more than the largest honest difference, and so does a forged one: what makes single messages say little lets
    attackers say much.
    """

    @classmethod
    def works_on(cls, protocol: Protocol) -> bool:
        """True if a reply is a seed and bounded numbers."""
        sums = ({"plus"}, {"plus", "minus"}, {"report"})
        return "seed" in reply_fields(protocol) and set(largest_values(protocol)) in sums


@dataclass(frozen=True)
class InvertedMetric(OnValues):
    """Each sum x becomes largest − x: with antithetic halves exactly the negative of the honest contribution."""

    @override
    def tamper(
        self,
        key: Key[Array, ""],
        request: PyTree,
        replies: PyTree,
        attackers: Bool[Array, " parties"],
        protocol: Protocol,
    ) -> PyTree:
        del key, request
        forged = {}
        for name, largest in largest_values(protocol).items():
            honest = getattr(replies, name)
            forged[name] = jnp.where(attackers, largest - honest, honest)
        return dataclasses.replace(replies, **forged)


#: The attack by its name.
INVERTED_METRIC = Entry("inverted-metric", InvertedMetric, "Good is reported as bad and bad as good.")


@dataclass(frozen=True)
class Conditions:
    """Faults that happen to replies in a simulation; by default none.

    Attributes:
        dropout: Probability that a party is not heard in a round, in [0, 1).
        late: Probability that a party's reply is to the question of ``delay`` rounds ago, in [0, 1]: a straggler.
        delay: Rounds that stragglers are behind, at least 1 where ``late`` is above 0.
        attack: Rule for the attackers' replies; None: no party attacks.
        attackers: Which parties attack, bool per party.
        absent: Which parties are never heard, bool per party; empty: none.
    """

    dropout: float = 0.0
    late: float = 0.0
    delay: int = 0
    attack: Attack | None = None
    attackers: tuple[bool, ...] = field(default=(), repr=False)
    absent: tuple[bool, ...] = field(default=(), repr=False)

    @classmethod
    def of(cls, devices: Any) -> Conditions:
        """Faults of a run whose settings of parties, ``devices``, know drop-outs only."""
        return cls(dropout=devices.dropout)

    def __post_init__(self):
        if not 0 <= self.dropout < 1:
            raise ConfigError(f"dropout must be in [0, 1), got {self.dropout}.")
        if not 0 <= self.late <= 1:
            raise ConfigError(f"late must be in [0, 1], got {self.late}.")
        if not (1 if self.late else 0) <= self.delay <= 1000:
            raise ConfigError(
                f"delay must be in 0..1000 rounds, and at least 1 where replies are late; got {self.delay}."
            )
