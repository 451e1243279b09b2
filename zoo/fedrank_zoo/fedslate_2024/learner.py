"""What a platform of the published FedSlate sees and learns: its choice model, past slates and numbers of items."""

from __future__ import annotations

from jaxtyping import Float, Int
from typing_extensions import override

from fedrank.core.arrays import AnyArray as Array
from fedrank.core.lazy import jax, jnp
from fedrank.slates.fedslate.learner import USER_SCALE, SlateQ, clock_features, scale_engagement
from fedrank_zoo.fedslate_2024.faults import Fault
from fedrank_zoo.fedslate_2024.settings import Memory, PublishedSlates


class PublishedSlateQ(SlateQ):
    """SlateQ as the published code has it, with those of its faults that are on."""

    name = "slateq-2024"
    settings: PublishedSlates

    @property
    @override
    def sizes_of_model(self):
        return {**super().sizes_of_model, "faults": self.settings.all_faults}

    @override
    def own_features(self, view):
        s = self.settings
        observed, *rest = super().own_features(view)
        if s.has(Fault.RAW_FEATURES):
            observed = view.observed
        if s.has(Fault.SHORT_MEMORY):
            rest = [*view.more.past.reshape(-1), *clock_features(s, view)]
        return jnp.stack([observed, *rest])

    @override
    def item_features(self, view):
        s = self.settings
        features = view.documents[:, None] if s.has(Fault.RAW_FEATURES) else super().item_features(view)
        if not s.has(Fault.ITEM_NUMBERS):
            return features
        numbers = (view.more.first + jnp.arange(len(features))).astype(jnp.float32)
        return jnp.concatenate([features, numbers[:, None]], axis=1)

    @override
    def kaleness_of(self, items):
        return items[..., 0] if self.settings.has(Fault.RAW_FEATURES) else super().kaleness_of(items)

    @override
    def choice_scores(self, learnt, user, items):
        s = self.settings
        if s.choice != "published":
            return super().choice_scores(learnt, user, items)
        observed = user[0] if s.has(Fault.RAW_FEATURES) else user[0] / USER_SCALE + 0.5
        return published_choice_scores(observed, self.kaleness_of(items))

    @override
    def next_view(self, own, turn, observed, documents, over):
        s, memory = self.settings, own.view.more
        view = super().next_view(own, turn, observed, documents, over)
        past = memory.past
        if s.has(Fault.SHORT_MEMORY):
            engagement = jnp.where(own.feedback, scale_engagement(s, turn), 0.0)
            past = jnp.where(over, 0.0, past_after(past, turn.slot, engagement))
        return view._replace(more=Memory(past, memory.first + s.world.candidates))

    @override
    def record(self, own, turn, number, over):
        if self.settings.has(Fault.ENDLESS_EPISODE):
            over = over & ~own.feedback
        return super().record(own, turn, number, over)


def published_choice_scores(
    observed: Float[Array, ""], kaleness: Float[Array, " candidates"]
) -> tuple[Float[Array, " candidates"], Float[Array, ""]]:
    """The published choice model (slateq.py): softmax over [observed · feature, 1].

    Args:
        observed: What the platform sees of the user's satisfaction.
        kaleness: The feature of each candidate, in [0, 1].

    Returns:
        The score of each candidate, and of no click.
    """
    v = jax.nn.softmax(jnp.append(observed * kaleness, 1.0))
    return v[:-1], v[-1]


def past_after(
    past: Float[Array, "slates slots"], slot: Int[Array, ""], engagement: Float[Array, ""]
) -> Float[Array, "slates slots"]:
    """Engagement by slot of the last slates, newest first, with one slate more; ``slot`` is the clicked one."""
    row = jnp.where(jnp.arange(past.shape[1]) == slot, engagement, 0.0)
    return jnp.concatenate([row[None], past[:-1]])
