"""FedSlate: platforms that share users recommend together (Deng et al., arXiv 2409.14872, 2024).

Platform α sees what users click and how they engage; platform β sees nothing of it. A coordinator has a network Ω that
joins the Q-values of both. In a round every platform shows one slate::

    look       β and α value their candidates by their own networks, Q_β(s_β) and Q_α(s_α)
    recommend  Q_f^α = Ω([Q_α ‖ Q_β]), Q_f^β = Ω([Q_β ‖ Q_α])                           (9, 10; one's own comes first)
               each shows the slate that is best by its federated values                (8), or a random one; users act

and every ``learn_every`` rounds they learn from transitions that both remember::

    batch      Q_α(s), Q̄_α(s′) and Q_β(s), Q̄_β(s′) of the same B transitions
    targets    α:  y = r + γ (1 − d) max_A Σ_{j∈A} P(j | s′, A) Q̄_f^α(s′, j)            (13)
    compare    α:  L = mean of Huber(Q_f^α(s, clicked) − y), its gradient by Q_f^α      (14)
               Ω steps; the gradient by Q_α goes back
    step       α steps, and sends Q_α(s) anew
    compare    β:  L = mean of Huber(Σ_{i∈A} P(i | s, A) Q_f^β(s, i) − y)               (15; A: the best slate by Q_f^β)
               Ω steps again; the gradient by Q_β goes back
    step       β steps

In Ω's input the others' values are constants (11, 12). Bars are target networks, copied every ``copy_every`` rounds.
With more platforms than two, "the others" are the mean of them. In the *extended* algorithm (Section IV-B, for sparse
team rewards) all platforms have feedback and do as α does.

Equation 15 fits the value of β's *best* slate to what α's *shown* slate was worth. Where α explores much, that lowers
the values of the slates that β prefers, again and again; it works only where α shows good slates. With ``regress =
"nothing"`` it is left out: β takes no step, gets no target, and is served α's values where both have the same items.

The paper says nothing of how gradients pass from Ω to the platforms and back; its code holds all networks in one
process. Here they are messages, and every step is taken by whoever owns the network.

"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from jaxtyping import Float, Int, Key
from typing_extensions import override

from fedrank.core.arrays import JaxArray as Array
from fedrank.core.lazy import jax, jnp
from fedrank.core.privacy_report import PrivacyReport
from fedrank.core.protocol import Exchange, Party
from fedrank.core.trees import Json
from fedrank.slates.fedslate.exchanges import Batch, CompareToTargets, CopyToTargets, FormTargets, Look, Recommend, Step
from fedrank.slates.fedslate.learner import SlateQ, ValueLearner
from fedrank.slates.fedslate.settings import SlateSettings
from fedrank.slates.fedslate.state import CoordinatorState, PlatformState, first_coordinator_state
from fedrank.slates.learner import LearnedPolicy
from fedrank.slates.protocol import PlatformProtocol
from fedrank.slates.world.satisfaction import Satisfaction

_SEEN = "Q-values, targets and gradients of Q-values, as they are."
_CLIPPED = "Q-values, cut to a range but without noise; targets and gradients of Q-values, as they are."
_NOT_COVERED = (
    "No feature of a candidate or a user, no click, no engagement and no weight of a local network leaves a platform.",
    "A target is an engagement and what is expected after it, and a gradient is other than 0 where a click was: who "
    "receives them learns much of both. How much is measured by: fedrank attack slates.",
)


@dataclass(frozen=True)
class FedSlate(PlatformProtocol):
    """FedSlate.

    Attributes:
        settings: Settings that all agree on.
        critic: Makes the learner from the settings.
    """

    settings: SlateSettings
    critic: Callable[[SlateSettings], ValueLearner] = SlateQ

    name = "vertical-slate"
    wide = True

    def __post_init__(self):
        self.settings.check_networks()

    @property
    def learner(self) -> ValueLearner:
        """The learner of every platform."""
        return self.critic(self.settings)

    @property
    @override
    def exchanges(self) -> tuple[Exchange, ...]:
        s, learner = self.settings, self.learner
        # By itself, a platform without feedback has nothing to learn from.
        order = tuple(p for p in s.order if s.feedback[p] or not (s.silent or s.regress == "nothing"))
        steps = (
            exchange
            for place, p in enumerate(order)
            for exchange in (CompareToTargets(learner, p), Step(learner, p, place == len(order) - 1))
        )
        learning = (Batch(learner), FormTargets(learner), *steps)
        return Look(learner), Recommend(learner), *learning, CopyToTargets(learner)

    @override
    def init(self, key: Key[Array, ""]) -> CoordinatorState:
        return first_coordinator_state(self.settings, key)

    def platform(self, key: Key[Array, ""], number: Int[Array, ""] | int) -> PlatformState:
        """A platform's state before its first user.

        Args:
            key: Consumed; makes its network.
            number: Number of the platform, from 0.
        """
        return self.learner.first_state(key, number)

    @override
    def parties(self, keys: Key[Array, " runs"]) -> Party:
        numbers = jnp.arange(self.settings.platforms)

        def of_run(key):
            return jax.vmap(lambda number: self.platform(jax.random.fold_in(key, number), number))(numbers)

        return Party(None, jax.vmap(of_run)(keys))

    @override
    def weights(self, state: CoordinatorState) -> Float[Array, "*runs weights"]:
        return state.weights

    @override
    def policy(self, state: CoordinatorState, own: PlatformState) -> LearnedPolicy:
        return LearnedPolicy(self.learner, state.weights, own)

    @property
    def world(self) -> Satisfaction:  # type: ignore[override] - elsewhere an attribute of the class
        """The simulated users that all platforms share."""
        return self.settings.world

    @property
    @override
    def feedback(self) -> tuple[bool, ...]:
        return self.settings.feedback

    @override
    def describe(self) -> dict[str, Json]:
        s = self.settings
        return {
            "network": f"{type(s.local).__name__} a platform, joined by {type(s.head).__name__}",
            "n_features": s.user_features + s.item_features,
            "parameters": s.local.size,
            "federated_parameters": 0 if s.silent else s.head.size,
        }

    @override
    def platform_tensors(self, own: PlatformState) -> dict[str, Float[Array, "runs platforms *shape"]]:
        return {"platform": own.weights, "choice": own.choice}

    @override
    def watch(self, state: CoordinatorState) -> dict[str, Float[Array, ""]]:
        """The mean target of the last batch, of the first platform with feedback."""
        return {"target": jnp.mean(state.targets[jnp.asarray(self.settings.order[0])])}

    @override
    def account(self, rounds: int, delta: float) -> PrivacyReport:
        """Privacy of Q-values with noise; without it, and for targets and gradients, nothing is promised."""
        s = self.settings
        if s.central:
            return PrivacyReport.none(
                rounds, "Everything that any platform knows of a user, as it is: every learner sees it."
            )
        if s.silent:
            return PrivacyReport.none(rounds, "Nothing crosses.")
        if s.noise is None or s.noise.epsilon is None:
            return PrivacyReport.none(rounds, _SEEN if s.noise is None else _CLIPPED, _NOT_COVERED)
        return s.noise.account(
            rounds,
            delta,
            candidates=s.world.candidates,
            platforms=s.platforms,
            batch=s.batch,
            learn_every=s.learn_every,
            burn_in=s.burn_in,
            memory=s.memory,
            episode_rounds=s.world.rounds_per_episode,
        )
