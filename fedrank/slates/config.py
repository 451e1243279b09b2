"""Settings of runs in which platforms share users: the tables ``[world]``, ``[slates]`` and ``[sharing]``.

What ``slates.mode`` makes of settings that are left out is in :mod:`fedrank.slates.modes`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from fedrank.core.errors import ConfigError
from fedrank.core.fields import setting

#: Protocols of platforms that share users.
PLATFORM_PROTOCOLS = ("vertical-slate", "slateq", "slateq-central")
#: Where one federated network joins the platforms' values; the others are what it is compared with.
_FEDERATED = ("vertical-slate",)
#: Rounds where none are given: 400 users of 61 rounds each.
PLATFORM_ROUNDS = 24_400
#: Rounds between evaluations: 20 users.
PLATFORM_EVERY = 1220
#: What is measured: the sum of engagement over a user's stay, in all and of each platform.
PLATFORM_MEASURES = ("engagement",)
#: What it is compared with: fixed policies, and the best that somebody who sees the user's mind can do.
PLATFORM_BASELINES = ("random", "choc", "kale", "myopic", "optimum")
#: Rounds of a user: 122 ticks of two platforms (TianYaDY/FedSlate).
EPISODE = 61
#: Largest bound of a value.
_LARGEST = 1e6

#: Settings of platforms that only some of their protocols know.
PLATFORM_KNOWN = {
    "world": PLATFORM_PROTOCOLS,
    "slates": PLATFORM_PROTOCOLS,
    "sharing": _FEDERATED,
    "evaluation.episodes": PLATFORM_PROTOCOLS,
    **{
        f"slates.{name}": _FEDERATED
        for name in ("others", "regress", "head", "head_widths", "online_others", "moving_targets")
    },
}
#: Settings that mean something only where another has one of these values, or any but its default.
PLATFORM_NEEDS = (
    ("sharing.mechanism", "sharing.epsilon", ()),
    ("sharing.centre", "sharing.clip", ()),
    ("slates.regress", "slates.feedback", ("first",)),
)


@dataclass(frozen=True)
class World:
    """The users that platforms share, and what platforms can show them."""

    preset: Literal["recsim", "paper", "tension"] = setting(
        "recsim",
        "Choc and Kale: recsim as RecSim's code has it; paper as FedSlate's text has it, where users like chocolate; "
        "tension: as recsim, but satisfaction follows consumption three times as closely, so that greed costs.",
    )
    candidates: int = setting(10, "N, items that a platform can choose from, new ones in every round.")
    slate: int = setting(3, "n, items that it shows.")
    platforms: int = setting(2, "K, platforms that share a user.")
    sensitivity: float | None = setting(
        None, "τ, how strongly satisfaction follows consumption; without it the preset's."
    )
    memory_discount: float | None = setting(
        None, "β, what is left of past consumption a tick later; without it the preset's, 0.9."
    )
    observation_noise: float | None = setting(
        None, "Standard deviation of the noise on the satisfaction that platforms see; without it the preset's, 0.1."
    )
    semantics: Literal["recsim-code", "paper"] | None = setting(
        None, "What a high kaleness is: chocolate (recsim-code) or kale (paper); without it the preset's."
    )
    choice: Literal["multinomial", "multinomial-no-click", "proportional", "cascade"] = setting(
        "multinomial", "How users choose from a slate."
    )
    shared_candidates: bool = setting(True, "All platforms have the same items in a round, or each its own.")
    turns: Literal["in-order", "shuffled"] | None = setting(
        None, "Who comes first in a round: always the first platform, or by lot; without it the preset's."
    )
    time_budget: int | None = setting(
        None, "Ticks that a user stays, a multiple of platforms; without it 61 rounds: 122 of two platforms."
    )

    def __post_init__(self):
        for name, value, low, high in (
            ("candidates", self.candidates, 1, 10_000),
            ("slate", self.slate, 1, self.candidates),
            ("platforms", self.platforms, 1, 26),
            ("time_budget", self.ticks, self.platforms, 10**6),
            ("sensitivity", self.sensitivity or 0.0, 0, 100),
            ("observation_noise", self.observation_noise or 0.0, 0, 100),
        ):
            if not low <= value <= high:
                raise ConfigError(f"world.{name} must be in {low}..{high}, got {value}.")
        if self.memory_discount is not None and not 0 <= self.memory_discount < 1:
            raise ConfigError(f"world.memory_discount must be in [0, 1), got {self.memory_discount}.")
        if self.ticks % self.platforms:
            raise ConfigError(
                f"world.time_budget must be a multiple of world.platforms = {self.platforms}, got {self.ticks}: in a "
                "round every platform has a tick."
            )

    @property
    def ticks(self) -> int:
        """Ticks that a user stays."""
        return EPISODE * self.platforms if self.time_budget is None else self.time_budget


@dataclass(frozen=True)
class Slates:
    """How platforms learn which slates to show. What is None has the value of ``mode``."""

    mode: Literal["corrected", "published"] = setting(
        "corrected",
        "What settings are that are left out: corrected, or as in the published code, fault by fault (see the "
        "reference). Networks are of reduced width in both.",
    )
    discount: float = setting(0.9, "γ, what the next round is worth.")
    batch: int = setting(32, "Rounds that a step learns from.")
    memory: int | None = setting(None, "Rounds that are kept to learn from. Corrected 5,000, published 2,000.")
    burn_in: int | None = setting(None, "Rounds before the first step. Corrected 500, published 5,000.")
    learn_every: int = setting(3, "Rounds between steps.")
    copy_every: int = setting(500, "Rounds after which target networks are copied.")
    explore: float | None = setting(
        None,
        "ε, chance of a random slate, in the first round; each platform for itself. Corrected 0.1: what "
        "B is taught (eq. 15) takes A's slates for the best ones. Published 1.",
    )
    decay: float | None = setting(
        None,
        "Factor of ε from round to round. Corrected: such that a third of the rounds leads to the floor; published "
        "0.99995.",
    )
    floor: float | None = setting(None, "Smallest ε. Corrected 0.05, published 0.")
    snap: float | None = setting(None, "Once ε has fallen below this it is 0. Corrected 0: never; published 0.1.")
    optimiser: Literal["top-k", "greedy", "exact"] = setting(
        "greedy", "How a slate is made of values: the largest, one by one (eq. 8), or the best of all slates."
    )
    target: Literal["sarsa", "greedy", "top-k", "optimal"] = setting(
        "greedy", "Whose slate the next round is valued by: the one that is shown, or the one of an optimiser."
    )
    choice: Literal["true", "learned", "published"] | None = setting(
        None,
        "What platforms believe of users' choices: the truth; what clicks have taught them; or as published, where "
        "users like what they dislike, and may choose nothing.",
    )
    feedback: Literal["first", "all"] = setting(
        "first", "Who has clicks and engagement: the first platform only, or all (the extended algorithm)."
    )
    objective: Literal["own", "team"] = setting(
        "own",
        "What is maximised: a platform's own engagement, or the mean of all that see theirs; the same where only "
        "the first does.",
    )
    others: Literal["aligned", "pooled"] | None = setting(
        None,
        "What the federated network gets of the others beside an item's own value: their mean value of the item in the "
        "same place, or one number, their mean over all items. Without it aligned where all platforms have the same "
        "items, and as published always.",
    )
    regress: Literal["greedy", "shown"] = setting(
        "greedy",
        "Whose value a platform without feedback fits: of the best slate by its values (eq. 15), or of the one that it "
        "showed.",
    )
    head: Literal["residual", "linear"] = setting(
        "residual", "The federated network: hidden layers, or a linear one (the paper's ablation)."
    )
    local_widths: tuple[int, ...] | None = setting(
        None, "Units of a platform's hidden layers. Corrected 64, 64; published five of them, there of 4,096."
    )
    head_widths: tuple[int, ...] | None = setting(
        None, "Units of the federated network's. Corrected 32, 32; published four of them, there of 2,048."
    )
    centred: bool | None = setting(
        None,
        "Engagement counts as what it is above or below a platform's mean so far. Without it where users always click; "
        "published: no.",
    )
    reward_scale: float | None = setting(
        None, "Engagement is divided by it. Corrected 15, about a round's; published 1: rewards as they are."
    )
    positional: bool | None = setting(
        None, "One network over all places, although candidates change places; else one for every item. Published: yes."
    )
    squash: bool | None = setting(None, "Values go through tanh, although targets are about 15. Published: yes.")
    ids: bool | None = setting(None, "Networks see the numbers of items, which count up for ever. Published: yes.")
    raw: bool | None = setting(None, "Networks get features as they are, neither centred nor scaled. Published: yes.")
    past: bool | None = setting(
        None, "Networks see the engagement with the last 5 slates, not fading sums of the whole stay. Published: yes."
    )
    endless: bool | None = setting(
        None, "Platforms with feedback are never told that a user has left, and learn across users. Published: yes."
    )
    fresh: bool | None = setting(
        None, "Platforms see the user as the round begins, not as their own last turn left them. Published: no."
    )
    online_others: bool | None = setting(
        None, "Targets take the others' values from networks that learn, of the round before. Published: yes."
    )
    moving_targets: bool | None = setting(
        None, "Targets are no constants: the gradient passes through them. Published: yes."
    )

    def __post_init__(self):
        if self.decay == 0:
            raise ConfigError("slates.decay must be above 0, got 0; for no exploration set slates.explore = 0.")
        for name, low, high in (
            ("discount", 0, 1),
            ("batch", 1, 10**5),
            ("memory", 2, 10**7),
            ("burn_in", 1, 10**6),
            ("learn_every", 1, 10**6),
            ("copy_every", 1, 10**6),
            ("explore", 0, 1),
            ("decay", 0, 1),
            ("floor", 0, 1),
            ("snap", 0, 1),
            ("reward_scale", 1e-6, 1e6),
        ):
            value = getattr(self, name)
            if value is not None and not low <= value <= high:
                raise ConfigError(f"slates.{name} must be in {low:g}..{high:g}, got {value}.")
        for name in ("local_widths", "head_widths"):
            for width in getattr(self, name) or ():
                if not 1 <= width <= 65_536:
                    raise ConfigError(f"slates.{name} must be numbers in 1..65536, got {width}.")
        if self.discount == 1:
            raise ConfigError("slates.discount must be below 1, got 1: values would have no bound.")


@dataclass(frozen=True)
class Sharing:
    """What is done to values before they leave a platform."""

    clip: float | None = setting(
        None, "Values are cut to this range around centre before they cross, ±; without it they are sent as they are."
    )
    centre: float = setting(
        0.0,
        "Middle of that range: a number that everybody knows. Values are near 0 where engagement is centred, else "
        "about 1/(1 − γ) of a scaled engagement.",
    )
    epsilon: float | None = setting(
        None, "ε of each list of values that crosses, by noise on it; needs clip. Without it none."
    )
    mechanism: Literal["gaussian", "laplace"] = setting("gaussian", "The noise; Gaussian noise at privacy.delta.")
    secure_sum: bool = setting(
        False,
        "The coordinator sees sums over the platforms only, and the federated network goes to them; needs three. "
        "Simulated only: platforms as processes refuse it.",
    )

    def __post_init__(self):
        for name in ("clip", "epsilon"):
            value = getattr(self, name)
            if value is not None and not 0 < value < _LARGEST:
                raise ConfigError(
                    f"sharing.{name} must be above 0 and below {_LARGEST:g}, got {value}; or leave it out."
                )
        if not abs(self.centre) < _LARGEST:
            raise ConfigError(f"sharing.centre must be within ±{_LARGEST:g}, got {self.centre}.")
        if self.epsilon is not None and self.clip is None:
            raise ConfigError("sharing.epsilon needs sharing.clip, the bound that noise is measured by.")


def check_sharing(world: World, sharing: Sharing) -> None:
    """Refuse what does not go together.

    Raises:
        ConfigError: Says what, and what to do.
    """
    if sharing.secure_sum and world.platforms < 3:
        raise ConfigError(
            f"sharing.secure_sum needs three platforms, and world.platforms = {world.platforms}: the sum of what one "
            "other platform sends is what it sends."
        )
