"""The exchanges of FedSlate in which platforms act; those in which they learn are in ``vertical_slate_rounds.py``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp

from fedrank.core.protocol import Encounter, Exchange, Party
from fedrank.slates.vertical_slate import messages as m
from fedrank.slates.vertical_slate.settings import SlateSettings
from fedrank.slates.vertical_slate.state import (
    CoordinatorState,
    PlatformOwn,
    chosen_slate,
    items_of,
    user_of,
)
from fedrank.slates.vertical_slate.visits import Visits

if TYPE_CHECKING:
    from fedrank.slates.vertical_slate import VerticalSlate


class SlateExchange(Exchange):
    """What all exchanges have in common: the protocol, and no chance unless they say so."""

    p: VerticalSlate

    @property
    def s(self) -> SlateSettings:
        """The settings."""
        return self.p.settings

    @property
    def shape(self) -> tuple[int, int]:
        """B and N."""
        return self.s.batch, self.s.world.candidates

    @property
    def silent(self) -> bool:  # type: ignore[override] - elsewhere an attribute of the class
        """Nothing crosses where platforms do not federate."""
        return self.p.silent

    def learns(self, number: Any) -> Any:
        """Whether a round ends with learning."""
        s = self.s
        return (number >= s.burn_in) & ((number + 1) % s.learn_every == 0)

    def draw(self, key: Any) -> Any:
        """No chance."""
        return ()

    def draw_from_os(self) -> Any:
        """No chance."""
        return ()

    def _noise(self, key: Any, *lead: int) -> Any:
        """Noise for vectors of N values: from a key, or of a real platform (None) from the operating system."""
        noise, shape = self.s.noise, (*lead, self.shape[1])
        if noise is None or self.p.silent:
            return ()
        return noise.draw_from_os(shape) if key is None else noise.draw(key, shape)

    def _sent(self, values: Any, noise: Any) -> Any:
        """Values as they leave."""
        return values if self.s.noise is None or self.p.silent else self.s.noise.applied(values, noise)


@dataclass(frozen=True)
class Look(SlateExchange):
    """Everybody values its candidates."""

    p: VerticalSlate

    name = "look"
    request = property(lambda self: m.turn_layout())
    reply = property(lambda self: m.local_values_layout(self.shape[1]))

    def ask(self, state: CoordinatorState) -> m.Turn:
        """The round."""
        return m.Turn(state.round)

    def draw(self, key: Any) -> Any:
        """Noise on N values."""
        return self._noise(key)

    def draw_from_os(self) -> Any:
        """The same for a real platform."""
        return self._noise(None)

    def respond(self, request: m.Turn, party: Party, draws: Any) -> tuple[Party, m.LocalValues]:
        """Q(s)."""
        own: PlatformOwn = party.own
        values = self.p.local(own.weights, user_of(self.s, own.view), items_of(self.s, own.view))
        return party, m.LocalValues(self._sent(values, draws))

    def tell(self, state: CoordinatorState, replies: m.LocalValues, arrived: Any) -> CoordinatorState:
        """Keep them; whoever is not heard values nothing."""
        return state._replace(values=rows_heard(replies.values, arrived))


class Coin(NamedTuple):
    """A platform's chance in a round: whether it explores (uniform), and with which slate (N uniforms)."""

    explores: Any
    order: Any


@dataclass(frozen=True)
class Recommend(SlateExchange):
    """Everybody is sent its federated values and shows a slate; the users act."""

    p: VerticalSlate

    name = "recommend"
    personal = True
    request = property(lambda self: m.shared_values_layout(self.shape[1]))
    reply = property(lambda self: m.done_layout())

    @property
    def encounter(self) -> Encounter:  # type: ignore[override] - elsewhere an attribute of the class
        """Users come to each platform and look at its slate."""
        return Visits(self.s)

    def ask(self, state: CoordinatorState) -> m.SharedValues:
        """Equations 9 and 10."""
        rounds = jnp.broadcast_to(state.round, (self.s.platforms,))
        return m.SharedValues(rounds, self.p.acting(state.weights, state.values))

    def draw(self, key: Any) -> Coin:
        """A coin and a random slate."""
        words = jax.random.uniform(key, (1 + self.shape[1],))
        return Coin(words[0], words[1:])

    def draw_from_os(self) -> Coin:
        """Exploring protects nobody, but nobody needs to foresee it either."""
        import secrets

        return self.draw(jax.random.key(secrets.randbits(32)))

    def respond(self, request: m.SharedValues, party: Party, draws: Coin) -> tuple[Party, m.Done]:
        """The best slate, or now and then a random one (ε-greedy, each platform by a coin of its own)."""
        own, s = party.own, self.s
        best = chosen_slate(s, own.choice, user_of(s, own.view), items_of(s, own.view), request.values)
        explores = draws.explores < s.exploration.chance(request.round)
        random = jax.lax.top_k(draws.order, s.world.slate)[1].astype(jnp.int32)
        return party._replace(own=own._replace(slate=jnp.where(explores, random, best))), m.Done()

    def tell(self, state: CoordinatorState, replies: m.Done, arrived: Any) -> CoordinatorState:
        """A round more."""
        return state._replace(round=state.round + 1)


def rows_heard(replies: Any, arrived: Any) -> jax.Array:
    """Replies [K, ...] of those that were heard and sent numbers; zeros for the others."""
    there = arrived.reshape(-1, *(1,) * (replies.ndim - 1))
    return jnp.where(there & jnp.isfinite(replies), replies, 0.0)
