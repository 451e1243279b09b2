"""FedFomo: every silo downloads other silos' models and mixes them by what they are worth on its validation rows.

Zhang, Sapra, Fidler, Yeung, Alvarez: *Personalized federated learning with first order model optimization*, ICLR 2021.
One round::

    server   hands out silos' models of the last round, all or M for each silo                 Others
    silo i   with θ_i the model that its last training started from, θ_n each of the models
             and its own newest, L its mean loss on validation rows:
                 w_n ∝ max(0, (L(θ_i) − L(θ_n)) / ‖θ_n − θ_i‖), Σ w_n = 1   (equations 5 and 6)
                 θ_i ← θ_i + Σ w_n (θ_n − θ_i)
             trains from θ_i for E epochs; sends the outcome and the weights                   TrainedOnMix

If nothing is better than θ_i, θ_i stays, its own training included. Distances are over what gradients change and what
crosses: batch normalisation's running variances would outweigh all else. A mix has the running statistics of the mix.

**Which models.** With ``downloads`` all are sent to everybody, k models a message, a silo's own among them. With M
fewer a silo gets M of the others: in each place, with probability ε, one at random, otherwise the one that it has mixed
most of so far (the affinities of Algorithm 1, ties at random).

**What it reveals.** Silos see each other's models as they are.

The opening is that of all methods, but the models after pre-training are sent, so that round 0 can mix.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from fedrank.core.errors import ConfigError
from fedrank.core.messages import Layout
from fedrank.core.protocol import Exchange, Party
from fedrank.privacy.unprotected import Unprotected
from fedrank.silos.messages import SEEN, Model, Trained, model_layout, trained_layout
from fedrank.silos.party import SiloExchange
from fedrank.silos.personalised.messages import Others, TrainedOnMix, others_layout, trained_on_mix_layout
from fedrank.silos.personalised.state import (
    PersonalisedProtocol,
    PersonalOwn,
    Pretrain,
    finite,
    loss_on,
    rows_at,
)

#: Most silos that can each be sent models of their own: each of them is an exchange to be compiled.
MOST_APART = 32


class FomoState(NamedTuple):
    """What the server keeps between rounds; k silos, P numbers of a model that cross, m models a message.

    Attributes:
        round: uint32.
        key: Which models are tried.
        rows: float32 [k].
        models: float32 [k, P], the newest that was heard from each silo in the rounds before; at first the fresh one.
        newest: float32 [k, P], the same with what was heard in this round.
        affinity: float32 [k, k], how much of each model each silo has mixed so far.
        chosen: int32 [k, m], whose models each silo is sent.
        mixed: float32 [k, k], what each silo mixed last; the rest to 1 is its own newest, or all are 0.
    """

    round: Any
    key: Any
    rows: Any
    models: Any
    newest: Any
    affinity: Any
    chosen: Any
    mixed: Any


@dataclass(frozen=True)
class FedFomo(PersonalisedProtocol):
    """The protocol's settings.

    Attributes:
        downloads: M, how many models of others a silo is sent, fewer than silos; None: all.
        epsilon: ε, the chance that one of the M is random, in [0, 1].
    """

    downloads: int | None = None
    epsilon: float = 0.3

    name = "fedfomo"
    keeps = True

    def __post_init__(self):
        super().__post_init__()
        if not 0 <= self.epsilon <= 1:
            raise ConfigError(f"epsilon must be in [0, 1], got {self.epsilon}.")
        if self.downloads is None:
            return
        if not 1 <= self.downloads < self.silos:
            raise ConfigError(f"downloads must be in 1..{self.silos - 1}, fewer than silos; got {self.downloads}.")
        if self.silos > MOST_APART:
            raise ConfigError(
                f"downloads can be chosen for at most {MOST_APART} silos, got {self.silos}; leave it out to send all."
            )

    @property
    def sent_models(self) -> int:
        """m, how many models a message has."""
        return self.silos if self.downloads is None else self.downloads

    @property
    def exchanges(self) -> tuple[Exchange, ...]:
        """Pre-training in round 0, and training: of all at once, or one silo after the other."""
        first = (PretrainAndSend(self),) if self.pretrain else ()
        if self.downloads is None:
            return (*first, MixAndTrain(self))
        last = self.silos - 1
        return (*first, *(MixAndTrain(self, silo, silo == last) for silo in range(self.silos)))

    def init(self, key: Any) -> FomoState:
        """A fresh network; ``key`` is consumed."""
        weights_key, own = jax.random.split(key)
        models = jnp.broadcast_to(self.first_model(weights_key), (self.silos, self.parameters))
        pairs = jnp.zeros((self.silos, self.silos), jnp.float32)
        chosen = jnp.zeros((self.silos, self.sent_models), jnp.int32)
        rows = jnp.zeros(self.silos, jnp.float32)
        return self.choose(FomoState(jnp.uint32(0), own, rows, models, models, pairs, chosen, pairs))

    def choose(self, state: FomoState) -> FomoState:
        """Whose models each silo is sent in the next round."""
        k, m = self.silos, self.sent_models
        if m == k:
            return state._replace(chosen=jnp.broadcast_to(jnp.arange(k, dtype=jnp.int32), (k, k)))
        key, mine = jax.random.split(state.key)
        return state._replace(
            key=key, chosen=jax.vmap(self._of_one)(state.affinity, jnp.arange(k), jax.random.split(mine, k))
        )

    def _of_one(self, affinity: jax.Array, silo: jax.Array, key: jax.Array) -> jax.Array:
        tries, ties, luck = jax.random.split(key, 3)
        explore = jax.random.bernoulli(tries, self.epsilon, (self.sent_models,))
        order = jnp.lexsort((jax.random.uniform(ties, affinity.shape), affinity))
        rank = jnp.zeros(self.silos).at[order].set(jnp.arange(self.silos, dtype=jnp.float32))
        random = jax.random.uniform(luck, affinity.shape)
        taken, chosen = jnp.arange(self.silos) == silo, []
        for place in range(self.sent_models):
            score = jnp.where(taken, -1.0, jnp.where(explore[place], random, rank))
            chosen.append(jnp.argmax(score).astype(jnp.int32))
            taken = taken | (jnp.arange(self.silos) == chosen[-1])
        return jnp.stack(chosen)

    def weights(self, state: FomoState) -> jax.Array:
        """Every silo's model, float32 [k, P]."""
        return state.models

    def models(self, state: FomoState, party: Party) -> dict[str, jax.Array]:
        """The silo's mix of the models after the last round, and its best so far by its own validation rows."""
        who = state.chosen[party.own.number]
        last = self.mix(who, state.models[who], party)[0]
        own = self.remembered(last, party).own
        best = jnp.where(own.best > -jnp.inf, own.best_model, last)
        return {"last": self.usable(last, party), "best": self.usable(best, party)}

    def watch(self, state: FomoState) -> dict[str, Any]:
        """Who mixed how much of whom in the last round, [k, k], and in all."""
        return {"mixed": state.mixed, "affinity": state.affinity}

    def mix(self, who: jax.Array, weights: jax.Array, party: Party) -> tuple[jax.Array, jax.Array]:
        """Equations 5 and 6.

        Args:
            who: Integers [m], whose the models are; a silo's own among them is left out.
            weights: float32 [m, P].
            party: The silo, with its own newest model and the one that its last training started from.

        Returns:
            The mixed model [size] and the weights of the m models, float32 [m].
        """
        own, before = party.own, party.own.personal
        others = jax.vmap(lambda w: self.received(w, own))(weights)
        candidates = jnp.concatenate([others, own.model[None]])
        there = jnp.concatenate([who.astype(jnp.int32) != own.number, jnp.ones(1, bool)]) & finite(candidates)
        moves = jnp.where(there[:, None], candidates - before[None], 0.0)
        compared = self.crosses[self.crosses < self.network.trainable]
        distance = jnp.sqrt(jnp.sum(moves[:, compared] ** 2, axis=1))
        losses = jax.vmap(lambda model: loss_on(self, model, party, "vali"))(before[None] + moves)
        gain = loss_on(self, before, party, "vali") - losses
        better = (distance > 0) & (gain > 0) & jnp.isfinite(gain)
        worth = jnp.where(better, gain / jnp.where(distance > 0, distance, 1.0), 0.0)
        total = jnp.sum(worth)
        share = worth / jnp.where(total > 0, total, 1.0)
        mixed = before + jnp.matmul(share, moves, precision=jax.lax.Precision.HIGHEST)
        return mixed, share[:-1]

    def learnt(self, start: jax.Array, party: Party, words: jax.Array) -> PersonalOwn:
        """Train from the mix, which the next mix is compared with."""
        return party.own._replace(model=self.trained(start, party, words), personal=start)

    def account(self, rounds: int, delta: float) -> Unprotected:
        """Nothing is noised, and models are shown to other silos."""
        return Unprotected(rounds, SEEN, ("Rows never leave a silo. Silos are shown other silos' models as they are.",))


@dataclass(frozen=True)
class PretrainAndSend(Pretrain):
    """Before round 0: everybody trains the same fresh network and sends the outcome."""

    @property
    def request(self) -> Layout[Model]:
        """The fresh network."""
        return model_layout(self.settings.parameters)

    @property
    def reply(self) -> Layout[Trained]:
        """The model."""
        return trained_layout(self.settings.parameters)

    def ask(self, state: FomoState) -> Model:
        """The fresh network, which is every silo's model so far."""
        return Model(state.round, state.models[0])

    def respond(self, request: Model, party: Party, draws: Any) -> tuple[Party, Trained]:
        """Train, and keep what it started from."""
        s = self.settings
        party = party._replace(own=s.learnt(s.received(request.weights, party.own), party, draws))
        return party, Trained(s.sent(party.own.model), rows_at(party))

    def tell(self, state: FomoState, replies: Trained, arrived: jax.Array) -> FomoState:
        """Everybody's first model."""
        heard = arrived & finite(replies.weights)
        models = jnp.where(heard[:, None], replies.weights, state.models)
        rows = jnp.where(heard, replies.rows.astype(jnp.float32), state.rows)
        return state._replace(models=models, newest=models, rows=rows)


@dataclass(frozen=True)
class MixAndTrain(SiloExchange):
    """A round of everybody, or of one silo.

    Attributes:
        silo: Which silo is asked; None: all are.
        last: Whether the round ends here.
    """

    silo: int | None = None
    last: bool = True

    name = "train"

    @property
    def request(self) -> Layout[Others]:
        """Models."""
        return others_layout(self.settings.parameters, self.settings.sent_models)

    @property
    def reply(self) -> Layout[TrainedOnMix]:
        """The silo's model and what it mixed."""
        return trained_on_mix_layout(self.settings.parameters, self.settings.sent_models)

    def asked(self, state: FomoState, parties: int) -> Any:
        """The silo, or everybody."""
        return None if self.silo is None else jnp.arange(parties) == self.silo

    def most(self, parties: int) -> int:
        """One, or everybody."""
        return parties if self.silo is None else 1

    def ask(self, state: FomoState) -> Others:
        """The models that were chosen for the silo; for everybody, all."""
        who = state.chosen[self.silo or 0]
        return Others(state.round, who.astype(jnp.uint32), state.models[who])

    def respond(self, request: Others, party: Party, draws: Any) -> tuple[Party, TrainedOnMix]:
        """Mix, judge the mix, train from it."""
        s, first = self.settings, request.round == 0
        if not s.pretrain:  # the silo has nothing yet: all models are the same fresh one
            fresh = s.received(request.weights[0], party.own)
            own = party.own
            own = own._replace(model=jnp.where(first, fresh, own.model), personal=jnp.where(first, fresh, own.personal))
            party = party._replace(own=own)
        start, mixed = s.mix(request.who, request.weights, party)
        party = s.remembered(start, party, ~first)
        party = party._replace(own=s.learnt(start, party, draws))
        return party, TrainedOnMix(s.sent(party.own.model), rows_at(party), mixed)

    def tell(self, state: FomoState, replies: TrainedOnMix, arrived: jax.Array) -> FomoState:
        """Keep what came; at the end of the round it is what silos are sent next."""
        s = self.settings
        heard = arrived & finite(replies.weights)
        row = jnp.arange(s.silos)[:, None]
        shares = jnp.where(jnp.isfinite(replies.mixed), replies.mixed, 0.0)
        mixed = jnp.zeros((s.silos, s.silos), jnp.float32).at[row, state.chosen].add(shares)
        mixed = jnp.where(heard[:, None], mixed, 0.0)
        state = state._replace(
            rows=jnp.where(heard, replies.rows.astype(jnp.float32), state.rows),
            newest=jnp.where(heard[:, None], replies.weights, state.newest),
            affinity=state.affinity + mixed,
            mixed=mixed if self.silo in (None, 0) else state.mixed + mixed,
        )
        if not self.last:
            return state
        return s.choose(state._replace(models=state.newest, round=state.round + 1))
