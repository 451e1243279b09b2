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

The setup is that of all methods, but the models after pre-training are sent, so that round 0 can mix.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from jaxtyping import Bool, Float, Int, Key, UInt32
from typing_extensions import override

from fedrank.core.arrays import AnyArray, PyTree
from fedrank.core.arrays import JaxArray as Array
from fedrank.core.errors import ConfigError
from fedrank.core.lazy import jax, jnp
from fedrank.core.privacy_report import PrivacyReport
from fedrank.core.protocol import Exchange, Party
from fedrank.silos.averaging import PersonalisedProtocol, PersonalOwn, loss_on
from fedrank.silos.messages import SEEN, Model, Others, Trained, TrainedOnMix
from fedrank.silos.party import Pretrain, SiloExchange, is_finite, row_count, update_rows

#: Most silos that can each be sent models of their own: each of them is an exchange to be compiled.
MOST_APART = 32


class FomoState(NamedTuple):
    """What the server keeps between rounds; a message holds ``models`` models.

    Attributes:
        round: Number of the round.
        key: Key of the draws that decide which models are tried.
        rows: n_k, as far as the silos have said.
        models: The newest model that was heard from each silo in the rounds before; at first the fresh one.
        newest: The same with what was heard in this round.
        affinity: How much of each model each silo has mixed so far.
        chosen: Whose models each silo is sent.
        mixed: What each silo mixed last; the rest to 1 is its own newest, or all are 0.
    """

    round: UInt32[AnyArray, ""]
    key: Key[Array, ""]
    rows: Float[AnyArray, " silos"]
    models: Float[AnyArray, "silos parameters"]
    newest: Float[AnyArray, "silos parameters"]
    affinity: Float[AnyArray, "silos silos"]
    chosen: Int[AnyArray, "silos models"]
    mixed: Float[AnyArray, "silos silos"]


@dataclass(frozen=True)
class FedFomo(PersonalisedProtocol):
    """FedFomo with its settings.

    Attributes:
        downloads: M, how many models of others a silo is sent, fewer than silos; None: all.
        epsilon: ε, the chance that one of the M is random, in [0, 1].
    """

    downloads: int | None = None
    epsilon: float = 0.3

    name = "fedfomo"
    keeps_second = True

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
        """Number of models in a message."""
        return self.silos if self.downloads is None else self.downloads

    @property
    @override
    def sizes(self) -> dict[str, int]:
        return {"parameters": self.parameters, "models": self.sent_models}

    @property
    @override
    def exchanges(self) -> tuple[Exchange, ...]:
        # Training is one exchange of all silos or, where each is sent other models, one a silo.
        first = (PretrainAndSend(self),) if self.pretrain else ()
        if self.downloads is None:
            return (*first, MixAndTrain(self))
        last = self.silos - 1
        return (*first, *(MixAndTrain(self, silo, silo == last) for silo in range(self.silos)))

    @override
    def init(self, key: Key[Array, ""]) -> FomoState:
        weights_key, own = jax.random.split(key)
        models = jnp.broadcast_to(self.first_model(weights_key), (self.silos, self.parameters))
        pairs = jnp.zeros((self.silos, self.silos), jnp.float32)
        chosen = jnp.zeros((self.silos, self.sent_models), jnp.int32)
        rows = jnp.zeros(self.silos, jnp.float32)
        return self.choose_models(FomoState(jnp.uint32(0), own, rows, models, models, pairs, chosen, pairs))

    def choose_models(self, state: FomoState) -> FomoState:
        """The state with ``chosen`` for the next round."""
        k, m = self.silos, self.sent_models
        if m == k:
            return state._replace(chosen=jnp.broadcast_to(jnp.arange(k, dtype=jnp.int32), (k, k)))
        key, mine = jax.random.split(state.key)
        return state._replace(
            key=key, chosen=jax.vmap(self._choose_for)(state.affinity, jnp.arange(k), jax.random.split(mine, k))
        )

    def _choose_for(
        self, affinity: Float[AnyArray, " silos"], silo: Int[AnyArray, ""], key: Key[Array, ""]
    ) -> Int[AnyArray, " models"]:
        """Whose models one silo is sent."""
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

    @override
    def weights(self, state: FomoState) -> Float[AnyArray, "silos parameters"]:
        return state.models

    @override
    def models(self, state: FomoState, party: Party) -> dict[str, Float[AnyArray, " size"]]:
        who = state.chosen[party.own.number]
        last = self.mix(who, state.models[who], party)[0]
        own = self.remember_best(last, party).own
        best = jnp.where(own.best > -jnp.inf, own.best_model, last)
        return {"last": self.usable(last, party), "best": self.usable(best, party)}

    @override
    def watch(self, state: FomoState) -> dict[str, Any]:
        return {"mixed": state.mixed, "affinity": state.affinity}

    def mix(
        self, who: Int[AnyArray, " models"], weights: Float[AnyArray, "models parameters"], party: Party
    ) -> tuple[Float[AnyArray, " size"], Float[AnyArray, " models"]]:
        """Equations 5 and 6.

        Args:
            who: Whose the models are; a silo's own among them is left out.
            weights: The models.
            party: The silo, with its own newest model and the one that its last training started from.

        Returns:
            The mixed model and the weight of each of the models.
        """
        own, before = party.own, party.own.personal
        others = jax.vmap(lambda w: self.whole_model(w, own))(weights)
        candidates = jnp.concatenate([others, own.model[None]])
        there = jnp.concatenate([who != own.number, jnp.ones(1, bool)]) & is_finite(candidates)
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

    @override
    def local_update(
        self, start: Float[AnyArray, " size"], party: Party, rng_bits: UInt32[AnyArray, "epochs rows"]
    ) -> PersonalOwn:
        # The next mix is compared with the model that the training started from.
        return party.own._replace(model=self.train(start, party, rng_bits), personal=start)

    @override
    def account(self, rounds: int, delta: float) -> PrivacyReport:
        return PrivacyReport.none(
            rounds, SEEN, ("No row is in a message. Silos are shown other silos' models as they are.",)
        )


@dataclass(frozen=True)
class PretrainAndSend(Pretrain, request=Model, reply=Trained):
    """Before round 0 every silo trains the same fresh network and sends the outcome."""

    @override
    def ask(self, state: FomoState) -> Model:
        return Model(state.round, state.models[0])  # all are the fresh network

    @override
    def respond(self, request: Model, party: Party, draws: PyTree) -> tuple[Party, Trained]:
        s = self.settings
        party = party._replace(own=s.local_update(s.starting_model(request.weights, party), party, draws))
        return party, Trained(s.shared_part(party.own.model), row_count(party))

    @override
    def tell(self, state: FomoState, replies: Trained, arrived: Bool[AnyArray, " silos"]) -> FomoState:
        heard = arrived & is_finite(replies.weights)
        models = jnp.where(heard[:, None], replies.weights, state.models)
        return state._replace(models=models, newest=models, rows=update_rows(state.rows, replies.rows, heard))


@dataclass(frozen=True)
class MixAndTrain(SiloExchange, request=Others, reply=TrainedOnMix):
    """A round of all silos, or of one.

    Attributes:
        silo: Which silo is asked; None: all are.
        last: Whether the round ends here.
    """

    silo: int | None = None
    last: bool = True

    name = "train"

    @override
    def asked(self, state: FomoState, parties: int) -> Bool[AnyArray, " silos"] | None:
        return None if self.silo is None else jnp.arange(parties) == self.silo

    @override
    def max_asked(self, parties: int) -> int:
        return parties if self.silo is None else 1

    @override
    def ask(self, state: FomoState) -> Others:
        who = state.chosen[self.silo or 0]
        return Others(state.round, who.astype(jnp.uint32), state.models[who])

    @override
    def respond(self, request: Others, party: Party, draws: PyTree) -> tuple[Party, TrainedOnMix]:
        s, first = self.settings, request.round == 0
        if not s.pretrain:  # the silo has no model yet: all that it is sent are the same fresh one
            fresh = s.whole_model(request.weights[0], party.own)
            own = party.own
            own = own._replace(model=jnp.where(first, fresh, own.model), personal=jnp.where(first, fresh, own.personal))
            party = party._replace(own=own)
        start, mixed = s.mix(request.who.astype(jnp.int32), request.weights, party)
        party = s.remember_best(start, party, ~first)
        party = party._replace(own=s.local_update(start, party, draws))
        return party, TrainedOnMix(s.shared_part(party.own.model), row_count(party), mixed)

    @override
    def tell(self, state: FomoState, replies: TrainedOnMix, arrived: Bool[AnyArray, " silos"]) -> FomoState:
        s = self.settings
        heard = arrived & is_finite(replies.weights)
        row = jnp.arange(s.silos)[:, None]
        shares = jnp.where(jnp.isfinite(replies.mixed), replies.mixed, 0.0)
        mixed = jnp.zeros((s.silos, s.silos), jnp.float32).at[row, state.chosen].add(shares)
        mixed = jnp.where(heard[:, None], mixed, 0.0)
        state = state._replace(
            rows=update_rows(state.rows, replies.rows, heard),
            newest=jnp.where(heard[:, None], replies.weights, state.newest),
            affinity=state.affinity + mixed,
            mixed=mixed if self.silo in (None, 0) else state.mixed + mixed,
        )
        if not self.last:
            return state
        # What came is what silos are sent in the next round.
        return s.choose_models(state._replace(models=state.newest, round=state.round + 1))
