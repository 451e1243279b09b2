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

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

from jaxtyping import Float, Key
from typing_extensions import override

from fedrank.core.arrays import AnyArray as Array
from fedrank.core.errors import ConfigError
from fedrank.core.fields import bound, setting
from fedrank.core.lazy import jnp
from fedrank.core.privacy_report import PrivacyReport
from fedrank.core.protocol import Exchange
from fedrank.core.trees import Json
from fedrank.engine.methods import PrivacyMode
from fedrank.privacy.noisy_values import ValueNoise
from fedrank.slates.config import Privacy, SlatesRun
from fedrank.slates.fedslate.exchanges import Batch, CopyToTargets, FormTargets, Look, Recommend, SendLossGradient, Step
from fedrank.slates.fedslate.learner import ValueLearner
from fedrank.slates.fedslate.settings import FederatedSlates, LocalSlates, Sharing, Slates
from fedrank.slates.fedslate.state import CoordinatorState, PlatformState, first_coordinator_state
from fedrank.slates.learner import LEARNERS, LearnerProtocol, platforms_that_see
from fedrank.slates.world.satisfaction import Satisfaction

_SEEN = "Q-values, targets and gradients of Q-values, as they are."
_CLIPPED = "Q-values, cut to a range but without noise; targets and gradients of Q-values, as they are."
_NOT_COVERED = (
    "No feature of a candidate or a user, no click, no engagement and no weight of a local network leaves a platform.",
    "A target is an engagement and what is expected after it, and a gradient is other than 0 where a click was: who "
    "receives them learns much of both. How much is measured by: fedrank privacy attack slates (fedrank-zoo).",
)


@dataclass(frozen=True)
class NetworkPlatforms(LearnerProtocol):
    """Platforms whose networks value candidates, and take steps.

    Attributes:
        critic: Makes the learner from the settings; None: the one that ``slates.critic`` names.
        start: The networks that there are before the first user, a :class:`fedrank.slates.model.SlateModel`; None:
            random ones.
    """

    slates: Slates = field(default_factory=Slates)
    learning_rate: float = setting(3e-4, "Step size of Adam.")
    critic: Callable[[Any], ValueLearner] | None = bound()
    start: Any = bound()

    wide = True
    scores = True
    #: The exchanges in which targets are formed, and compared with values.
    forms_targets: ClassVar[type[FormTargets]] = FormTargets
    compares: ClassVar[type[SendLossGradient]] = SendLossGradient

    @property
    def learner(self) -> ValueLearner:  # type: ignore[override] - made when it is asked for
        """The learner of every platform."""
        return (self.critic or _named_critic(self.slates.critic))(self.slates)

    @override
    def unchanged(self) -> Any:
        return type(self)(critic=self.critic)

    @override
    def resolved(self, run: SlatesRun) -> Any:
        return dataclasses.replace(self, slates=self.slates.resolved(run.rounds, run.world))

    @override
    def bind(self, world: Satisfaction) -> Any:
        s = self.slates
        sees = platforms_that_see(s.feedback, world.platforms)
        rate, noise = self.learning_rate, self._noise()
        slates = dataclasses.replace(s, world=world, sees=sees, learning_rate=rate, noise=noise)
        return dataclasses.replace(self, slates=slates, critic=self.critic or _named_critic(s.critic))

    def _noise(self) -> ValueNoise | None:
        return None

    @property
    def world(self) -> Any:  # type: ignore[override] - elsewhere an attribute of the class
        """The simulated users that all platforms share; None: those of the run."""
        return self.slates.world

    @property
    @override
    def feedback(self) -> tuple[bool, ...]:
        return self.slates.sees

    @property
    @override
    def exchanges(self) -> tuple[Exchange, ...]:
        s, learner = self.slates, self.learner
        # By itself, a platform without feedback has nothing to learn from.
        order = tuple(p for p in s.order if s.sees[p] or not (s.silent or s.regress == "nothing"))
        steps = (
            exchange
            for place, p in enumerate(order)
            for exchange in (self.compares(learner, p), Step(learner, p, place == len(order) - 1))
        )
        learning = (Batch(learner), self.forms_targets(learner), *steps)
        return Look(learner), Recommend(learner), *learning, CopyToTargets(learner)

    @override
    def init(self, key: Key[Array, ""]) -> CoordinatorState:
        state = first_coordinator_state(self.slates, key)
        if self.start is None:
            return state
        weights = jnp.asarray(self.start.federated)
        return state._replace(weights=weights, target=weights)

    @override
    def platform(self, key: Any, number: Any) -> PlatformState:
        own: Any = self.learner.first_state(key, number)
        if self.start is None:
            return own
        of_all = (self.start.platforms, self.start.choices)
        weights, choice = (jnp.stack([jnp.asarray(one) for one in of.values()])[number] for of in of_all)
        return own._replace(weights=weights, target=weights, choice=choice)

    @override
    def weights(self, state: CoordinatorState) -> Float[Array, "*runs weights"]:
        return state.weights

    @override
    def describe(self) -> dict[str, Json]:
        s = self.slates
        return {
            "network": f"{type(s.local).__name__} a platform, joined by {type(s.federated_network).__name__}",
            "n_features": s.user_features + s.item_features,
            "parameters": s.local.size,
            "federated_parameters": 0 if s.silent else s.federated_network.size,
        }

    @override
    def platform_tensors(self, own: PlatformState) -> dict[str, Float[Array, "runs platforms *shape"]]:
        return {"platform": own.weights, "choice": own.choice}

    @override
    def watch(self, state: CoordinatorState) -> dict[str, Float[Array, ""]]:
        """The mean target of the last batch, of the first platform with feedback."""
        return {"target": jnp.mean(state.targets[jnp.asarray(self.slates.order[0])])}


@dataclass(frozen=True)
class FedSlate(NetworkPlatforms):
    """Platforms that share users learn which slates please them for long; one has no feedback (FedSlate)."""

    slates: FederatedSlates = field(default_factory=FederatedSlates)
    sharing: Sharing = field(default_factory=Sharing)
    privacy: Privacy = field(default_factory=Privacy)

    name = "vertical-slate"
    paper = "deng2024fedslate"
    published = "Deng et al.: FedSlate, a Federated Deep RL Recommender System, arXiv 2409.14872, 2024"
    crosses = "values of candidates, and gradients of them"
    modes = (PrivacyMode("noise on values", {"sharing": {"clip": 1.0, "epsilon": 1.0}}),)

    @override
    def _noise(self) -> ValueNoise | None:
        return self.sharing.noise(self.privacy.delta)

    @property
    def delta(self) -> float:  # type: ignore[override] - elsewhere an attribute of the class
        """δ of the account of a run."""
        return self.privacy.delta

    @override
    def account(self, rounds: int, delta: float) -> PrivacyReport:
        """Privacy of Q-values with noise; without it, and for targets and gradients, nothing is promised."""
        s: Any = self.slates  # resolved
        if s.noise is None or s.noise.epsilon is None:
            return PrivacyReport.none(rounds, _SEEN if s.noise is None else _CLIPPED, _NOT_COVERED)
        return s.noise.account(rounds, delta, s.world.candidates, s)


@dataclass(frozen=True)
class LocalSlateQ(NetworkPlatforms):
    """Platforms that share users, each by itself, or each seeing the user as all of them do (SlateQ)."""

    slates: LocalSlates = field(default_factory=LocalSlates)

    name = "slateq"
    paper = "ie2019slateq"
    published = "Ie et al.: SlateQ, a Tractable Decomposition for RL with Recommendation Sets, IJCAI 2019"
    crosses = "nothing"
    silent = True

    @property
    def central(self) -> bool:  # type: ignore[override] - elsewhere an attribute of the class
        """Each platform sees the user as all of them do."""
        return self.slates.central

    @override
    def account(self, rounds: int, delta: float) -> PrivacyReport:
        """Of platforms by themselves nothing crosses; centrally, everything is seen."""
        if self.central:
            return PrivacyReport.none(
                rounds, "Everything that any platform knows of a user, as it is: every learner sees it."
            )
        return PrivacyReport.none(rounds, "Nothing crosses.")


def _named_critic(name: str) -> type[ValueLearner]:
    found: Any = LEARNERS.get(name)
    if not (isinstance(found, type) and issubclass(found, ValueLearner)):
        raise ConfigError(
            f"slates.critic: {name} is no learner from other platforms' values; take the protocol planned-slates, "
            "where it is slates.learner."
        )
    return found
