"""The first exchanges of CS-F-LTR's opening: a secret that the server lacks, and a sum whose parts it cannot see.

See :mod:`fedrank.texts.silo_sketch.setup` for the order, :mod:`fedrank.texts.sketch.key` and
:mod:`fedrank.privacy.secure_sum` for what they protect against.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from fedrank.core.errors import SecureSumError
from fedrank.core.messages import Layout
from fedrank.core.protocol import Party
from fedrank.privacy.secure_sum import party as secure_sum_party
from fedrank.privacy.secure_sum.messages import Step, message_sizes
from fedrank.texts.silo_sketch import setup_messages as wire
from fedrank.texts.silo_sketch.setup import HostExchange, OpeningState, kept, without
from fedrank.texts.silo_sketch.statistics import statistics_vector
from fedrank.texts.sketch import key as sketch_key

#: Prefix of what a silo remembers of the key agreement.
_KEY = "key."


class Introduce(HostExchange):
    """Every silo sends a fresh public key."""

    name = "keys"

    @property
    def request(self) -> Layout[wire.Hello]:
        """A count."""
        return wire.hello_layout()

    @property
    def reply(self) -> Layout[wire.PublicKey]:
        """A key."""
        return wire.public_key_layout()

    def address(self, state: OpeningState, party: int) -> wire.Hello:
        """The same to all."""
        return wire.Hello(np.uint32(state.silos))

    def respond(self, request: wire.Hello, party: Party, draws: Any) -> tuple[Party, wire.PublicKey]:
        """Draw a key and a contribution, from the operating system unless this is a simulation."""
        mine = (self.settings.silos, int(party.own["number"]))
        agreement = sketch_key.Agreement(*mine) if draws is None else sketch_key.Agreement(*mine, draws.bytes)
        return _remember(party, agreement), wire.PublicKey(agreement.public)


class ShareSecret(HostExchange):
    """Every silo seals its contribution to the secret for each other one."""

    name = "secrets"

    @property
    def request(self) -> Layout[wire.KeyRing]:
        """A key a silo."""
        return wire.key_ring_layout(self.settings.silos)

    @property
    def reply(self) -> Layout[wire.SealedParts]:
        """A sealed contribution a silo."""
        return wire.sealed_parts_layout(self.settings.silos, sketch_key.SEALED)

    def address(self, state: OpeningState, party: int) -> wire.KeyRing:
        """Everybody's keys."""
        replies, arrived = state.kept["keys"]
        keys = np.where(arrived[:, None], np.asarray(replies.key), 0).astype(np.uint8)
        return wire.KeyRing(keys, arrived.astype(np.uint8))

    def respond(self, request: wire.KeyRing, party: Party, draws: Any) -> tuple[Party, wire.SealedParts]:
        """Seal."""
        agreement = _agreement(party)
        sealed = agreement.contribute(np.asarray(request.keys, np.uint8).reshape(-1))
        return _remember(party, agreement), wire.SealedParts(sealed.reshape(self.settings.silos, -1))


class Agree(HostExchange):
    """Every silo opens what was sealed for it, and says what its secret hashes to."""

    name = "agree"

    @property
    def request(self) -> Layout[wire.DeliveredParts]:
        """A sealed contribution from each silo."""
        return wire.delivered_parts_layout(self.settings.silos, sketch_key.SEALED)

    @property
    def reply(self) -> Layout[wire.Agreed]:
        """A fingerprint."""
        return wire.agreed_layout()

    def address(self, state: OpeningState, party: int) -> wire.DeliveredParts:
        """What the others sealed for this silo."""
        replies, arrived = state.kept["secrets"]
        parts = np.where(arrived[:, None], np.asarray(replies.parts)[:, party], 0)
        return wire.DeliveredParts(parts.astype(np.uint8), arrived.astype(np.uint8))

    def respond(self, request: wire.DeliveredParts, party: Party, draws: Any) -> tuple[Party, wire.Agreed]:
        """Make the secret; the key is not needed any more."""
        agreement = _agreement(party)
        secret = agreement.secret(np.asarray(request.parts, np.uint8).reshape(-1))
        party = without(party, *(name for name in party.own if name.startswith(_KEY)))
        letters = sketch_key.fingerprint(secret).encode()
        return kept(party, secret=np.frombuffer(secret, np.uint8)), wire.Agreed(np.frombuffer(letters, np.uint8))

    def tell(self, state: OpeningState, replies: wire.Agreed, arrived: Any) -> OpeningState:
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
        step: 0 keys, 1 shares, 2 vectors, 3 unmasking.
    """

    step: int = 0

    @property
    def name(self) -> str:  # type: ignore[override] - a name a step
        """Such as ``sum-keys``."""
        return f"sum-{self._step.name}"

    @property
    def _step(self) -> Step:
        return message_sizes(self.settings.terms.length, self.settings.terms.neighbours)[self.step]

    @property
    def request(self) -> Layout[Any]:
        """As the secure sum has it."""
        return self._step.request

    @property
    def reply(self) -> Layout[Any]:
        """As the secure sum has it."""
        return self._step.reply

    def asked(self, state: OpeningState, parties: int) -> Any:
        """Everybody; later those that are still there."""
        return None if self.step == 0 else np.array([number in state.sum[1] for number in range(parties)])

    def address(self, state: OpeningState, party: int) -> Any:
        """An invitation; later what this party gets."""
        server, messages = state.sum
        return server.invitation() if self.step == 0 else messages[party]

    def respond(self, request: Any, party: Party, draws: Any) -> tuple[Party, Any]:
        """The party's step; before the third it computes its statistics, with its noise."""
        terms, own = self.settings.terms, party.own
        me = (
            secure_sum_party.Party(terms, int(own["number"]))
            if self.step == 0
            else secure_sum_party.Party.unpacked(terms, own["sum"].tobytes())
        )
        if self.step == 2:
            s = self.settings
            secret = own["secret"].tobytes()
            vector = statistics_vector(party.shared.corpus, s.statistics, secret, s.noise, draws, s.silos)
            reply = me.mask(request, vector)
        else:
            reply = (me.advertise, me.share, None, me.unmask)[self.step](request)  # type: ignore[misc]
        if self.step == 3:
            return without(party, "sum"), reply
        return kept(party, sum=np.frombuffer(me.packed(), np.uint8)), reply

    def tell(self, state: OpeningState, replies: Any, arrived: Any) -> OpeningState:
        """The server's step; at the end it has the sum.

        Raises:
            SecureSumError: Too few silos are left.
        """
        heard = np.flatnonzero(np.asarray(arrived, bool)).tolist()
        fields = [field.name for field in self.reply.fields]
        messages = [
            self.reply.message(**{name: np.asarray(getattr(replies, name))[number] for name in fields})
            for number in heard
        ]
        server, _ = state.sum
        if self.step == 0 and len(heard) < state.silos:
            raise SecureSumError(f"{len(heard)} of {state.silos} silos are there; a sum needs all of them to begin.")
        if self.step == 3:
            total = server.total(messages).view(np.int32)
            return OpeningState(state.silos, state.kept, None, total)
        following = (server.rosters, server.deliveries, server.unmask_requests)[self.step](messages)
        return OpeningState(state.silos, state.kept, (server, following))


def _remember(party: Party, agreement: sketch_key.Agreement) -> Party:
    return kept(party, **{_KEY + name: array for name, array in agreement.state().items()})


def _agreement(party: Party) -> sketch_key.Agreement:
    own = party.own
    return sketch_key.Agreement.from_state(
        {name.removeprefix(_KEY): array for name, array in own.items() if name.startswith(_KEY)}
    )
