"""The first exchanges of the setup: a secret that the server does not have, and a sum whose parts it cannot read.

See :mod:`fedrank.texts.silo_sketch.setup` for the order, :mod:`fedrank.texts.sketch.key` and
:mod:`fedrank.privacy.secure_sum` for what they protect against.

Setup of CS-F-LTR: silos see each other's documents through private sketches, and make training rows of them.

Section 3 of Shi et al., *Cross-silo Federated Learning-to-rank* (Journal of Software 2021); Wang et al. (ICDE 2021).
The server relays what it cannot read::

    keys, secrets, agree     the silos agree on a secret that hashes words; the server never has it
    sum-keys … sum-unmask    a secure sum of document-frequency sketches (Section 3.3)
    publish                  every silo hands out a noisy sketch of each document, once
    receive                  a silo looks its query words up, and makes its rows
    scale                    common centre and spread of the features

Queries stay at home altogether; see :mod:`fedrank.texts.sketch.noise` for what sketches give away. Questions among
decoys and their answers (Algorithms 1 and 2), which the papers have, are a method of ``fedrank-zoo``.

All exchanges run on the host: text, keys and hashes. The steps are in :mod:`.agree` and :mod:`.exchange_sketches`.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Bool, Int32
from typing_extensions import override

from fedrank.core.arrays import PyTree
from fedrank.core.errors import ConfigError, SecureSumError
from fedrank.core.messages import Layout
from fedrank.core.privacy_report import PrivacyReport
from fedrank.core.protocol import Party, Protocol
from fedrank.privacy.secure_sum import party as secure_sum_party
from fedrank.privacy.secure_sum.messages import Step, message_sizes
from fedrank.privacy.secure_sum.server import Server
from fedrank.texts.silo_sketch.setup import settings as wire
from fedrank.texts.silo_sketch.setup.exchange_sketches import Publish, Receive, SetScale
from fedrank.texts.silo_sketch.setup.rows import SiloTexts
from fedrank.texts.silo_sketch.setup.settings import (
    HostExchange,
    SetupSettings,
    SetupState,
    statistics_vector,
    with_fields,
    without_fields,
)
from fedrank.texts.sketch import key as sketch_key
from fedrank.texts.sketch.noise import Source

#: Prefix of the names under which a silo keeps its state of the key agreement.
_KEY = "key."


class Introduce(HostExchange, request=wire.Hello, reply=wire.PublicKey):
    """Every silo sends a public key that it has made for this setup."""

    name = "keys"

    @override
    def address(self, state: SetupState, party: int) -> wire.Hello:
        return wire.Hello(np.uint32(state.silos))

    @override
    def respond(self, request: wire.Hello, party: Party, draws: Source) -> tuple[Party, wire.PublicKey]:
        mine = (self.settings.silos, int(party.own["number"]))
        agreement = sketch_key.Agreement(*mine) if draws is None else sketch_key.Agreement(*mine, draws.bytes)
        return _with_agreement(party, agreement), wire.PublicKey(agreement.public)


class ShareSecret(HostExchange, request=wire.KeyRing, reply=wire.SealedParts):
    """Every silo encrypts its contribution to the secret for each other silo."""

    name = "secrets"

    @override
    def address(self, state: SetupState, party: int) -> wire.KeyRing:
        replies, arrived = state.replies["keys"]
        keys = np.where(arrived[:, None], np.asarray(replies.key), 0).astype(np.uint8)
        return wire.KeyRing(keys, arrived.astype(np.uint8))

    @override
    def respond(self, request: wire.KeyRing, party: Party, draws: Source) -> tuple[Party, wire.SealedParts]:
        agreement = _agreement_of(party)
        sealed = agreement.contribute(np.asarray(request.keys, np.uint8).reshape(-1))
        return _with_agreement(party, agreement), wire.SealedParts(sealed.reshape(self.settings.silos, -1))


class Agree(HostExchange, request=wire.DeliveredParts, reply=wire.Agreed):
    """Every silo decrypts the contributions, computes the secret, and sends its fingerprint."""

    name = "agree"

    @override
    def address(self, state: SetupState, party: int) -> wire.DeliveredParts:
        replies, arrived = state.replies["secrets"]
        parts = np.where(arrived[:, None], np.asarray(replies.parts)[:, party], 0)
        return wire.DeliveredParts(parts.astype(np.uint8), arrived.astype(np.uint8))

    @override
    def respond(self, request: wire.DeliveredParts, party: Party, draws: Source) -> tuple[Party, wire.Agreed]:
        secret = _agreement_of(party).secret(np.asarray(request.parts, np.uint8).reshape(-1))
        # The key agreement has done its work; only the secret stays.
        party = without_fields(party, *(name for name in party.own if name.startswith(_KEY)))
        letters = sketch_key.fingerprint(secret).encode()
        return with_fields(party, secret=np.frombuffer(secret, np.uint8)), wire.Agreed(np.frombuffer(letters, np.uint8))

    @override
    def fingerprint_in(self, reply: bytes) -> str:
        return bytes(np.asarray(self.reply.decode(reply).fingerprint, np.uint8)).decode("ascii", "replace")

    @override
    def tell(self, state: SetupState, replies: wire.Agreed, arrived: Bool[np.ndarray, " silos"]) -> SetupState:
        """Refuse to go on where silos have different secrets: they could not read each other's sketches.

        Raises:
            SecureSumError: Two silos have different secrets.
        """
        heard = np.asarray(arrived, bool)
        different = {bytes(np.asarray(row, np.uint8)) for row in np.asarray(replies.fingerprint)[heard]}
        if len(different) > 1:
            raise SecureSumError(
                f"the silos have {len(different)} different secrets: messages were lost or changed on the way. Begin "
                "the run anew."
            )
        return state.with_replies(self.name, replies, arrived)


@dataclass(frozen=True)
class SumStep(HostExchange):
    """One of the four exchanges of the secure sum of statistics.

    Attributes:
        step: Its number: 0 keys, 1 shares, 2 vectors, 3 unmasking.
    """

    step: int = 0

    @property
    def name(self) -> str:  # type: ignore[override] - each step has another name
        """Name of the exchange, such as ``sum-keys``."""
        return f"sum-{self._step.name}"

    @property
    def _step(self) -> Step:
        return message_sizes(self.settings.terms.length, self.settings.terms.neighbours)[self.step]

    @property
    @override
    def request(self) -> Layout[Any]:
        return self._step.request

    @property
    @override
    def reply(self) -> Layout[Any]:
        return self._step.reply

    @property
    @override
    def shows(self) -> bool:
        return self.step == 2

    @override
    def asked(self, state: SetupState, parties: int) -> Bool[np.ndarray, " silos"] | None:
        if self.step == 0:
            return None
        _, messages = _sum_of(state)
        return np.array([number in messages for number in range(parties)])

    @override
    def address(self, state: SetupState, party: int) -> Any:
        server, messages = _sum_of(state)
        return server.invitation() if self.step == 0 else messages[party]

    @override
    def respond(self, request: PyTree, party: Party, draws: Source) -> tuple[Party, Any]:
        terms, own = self.settings.terms, party.own
        if self.step == 0:
            me = secure_sum_party.Party(terms, int(own["number"]))
            reply = me.advertise(request)
        else:
            me = secure_sum_party.Party.unpack(terms, own["sum"].tobytes())
            if self.step == 1:
                reply = me.share(request)
            elif self.step == 2:
                s, secret = self.settings, own["secret"].tobytes()
                vector = statistics_vector(party.shared.corpus, s.statistics, secret, s.noise, draws, s.silos)
                reply = me.mask(request, vector)
            else:
                return without_fields(party, "sum"), me.unmask(request)
        return with_fields(party, sum=np.frombuffer(me.pack(), np.uint8)), reply

    @override
    def tell(self, state: SetupState, replies: PyTree, arrived: Bool[np.ndarray, " silos"]) -> SetupState:
        """The state after the server's step of the secure sum; after the last step it holds the sum.

        Raises:
            SecureSumError: Too few silos are left.
        """
        heard = np.flatnonzero(np.asarray(arrived, bool)).tolist()
        fields = [field.name for field in self.reply.fields]
        messages = [
            self.reply.message(**{name: np.asarray(getattr(replies, name))[number] for name in fields})
            for number in heard
        ]
        server, _ = _sum_of(state)
        if self.step == 0 and len(heard) < state.silos:
            raise SecureSumError(f"{len(heard)} of {state.silos} silos are there; a sum needs all of them to begin.")
        if self.step == 3:
            return dataclasses.replace(state, sum=None, totals=server.total(messages).view(np.int32))
        following = (server.rosters, server.deliveries, server.unmask_requests)[self.step](messages)
        return dataclasses.replace(state, sum=(server, following))


def _sum_of(state: SetupState) -> tuple[Server, dict[int, Any]]:
    """The server of the secure sum and its next messages; the sum has not ended yet."""
    assert state.sum is not None
    return state.sum


def _with_agreement(party: Party, agreement: sketch_key.Agreement) -> Party:
    return with_fields(party, **{_KEY + name: array for name, array in agreement.state().items()})


def _agreement_of(party: Party) -> sketch_key.Agreement:
    return sketch_key.Agreement.from_state(
        {name.removeprefix(_KEY): array for name, array in party.own.items() if name.startswith(_KEY)}
    )


@dataclass(frozen=True)
class SketchSetup(SetupSettings, Protocol):
    """The setup with its settings; one round of exchanges, run once before training."""

    name = "silo-sketch-setup"

    @cached_property
    @override
    def exchanges(self) -> tuple[HostExchange, ...]:
        scale = (SetScale(self),) if self.texts.scale == "federation" else ()
        return (
            Introduce(self),
            ShareSecret(self),
            Agree(self),
            *(SumStep(self, step) for step in range(4)),
            *self.showing,
            self.receive,
            *scale,
        )

    @property
    def showing(self) -> tuple[HostExchange, ...]:
        """The exchanges by which silos show their documents."""
        return (Publish(self),)

    @property
    def receive(self) -> Receive:
        """The exchange by which a silo makes its rows of what it is shown."""
        return Receive(self)

    @override
    def init(self, key: Any) -> SetupState:
        del key  # the name of the secure sum comes from the operating system
        return SetupState(self.silos, {}, (Server(self.terms), {}))

    @override
    def weights(self, state: SetupState) -> Int32[np.ndarray, " totals"] | None:
        return state.totals  # there is no model

    @override
    def account(self, rounds: int, delta: float) -> PrivacyReport:
        del rounds, delta
        return self.promise

    def parties(self, texts: list[SiloTexts]) -> list[Party]:
        """One party for each silo. A party's own state is a dictionary of arrays by name.

        Args:
            texts: Documents and queries of each silo, in order.

        Raises:
            ConfigError: The texts do not fit what was agreed.
        """
        if len(texts) != self.silos:
            raise ConfigError(f"the setup is made for {self.silos} silos, got the texts of {len(texts)}.")
        return [self.party(one, number) for number, one in enumerate(texts)]

    def party(self, texts: SiloTexts, number: int) -> Party:
        """The party of one silo.

        Args:
            texts: Its documents and queries.
            number: Its number among the silos.

        Raises:
            ConfigError: It has more documents than was agreed.
        """
        if texts.corpus.n_documents > self.documents:
            raise ConfigError(
                f"{texts.corpus.name!r} has {texts.corpus.n_documents:,} documents, agreed were at most "
                f"{self.documents:,} (texts.documents). Agree on more, or leave some out."
            )
        return Party(texts, {"number": np.array(number, np.int64)})
