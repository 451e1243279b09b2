"""Ways in which users depart from what platforms believe of them: values, for simulations and for simulated visitors.

Platforms plan for the world of :class:`~fedrank.slates.world.satisfaction.Satisfaction`; a departure changes what its
users do, and nothing that a platform knows. None of them was used while the methods were made.
"""

from __future__ import annotations

from dataclasses import dataclass

from fedrank.core.registry import Registry
from fedrank.slates.world.choice import Cascade, SlateChoice


@dataclass(frozen=True)
class Departure:
    """A departure.

    Attributes:
        third: Share of items, those of a middling feature, that engage as chocolate and do good as kale.
        spoils: Share of items, those with most chocolate, that spoil a user four times as much.
        bots: Share of users who click at random, with an engagement that depends on nothing.
        late: Part of the stay that users miss, at most, at platforms other than the first.
        few: Share of users who visit platforms other than the first.
        choice: How users choose; None: as platforms believe.
    """

    third: float = 0.0
    spoils: float = 0.0
    bots: float = 0.0
    late: float = 0.0
    few: float = 1.0
    choice: SlateChoice | None = None


#: Departures by name.
DEPARTURES: Registry[Departure] = Registry("departure")
DEPARTURES.register("third-kind", summary="A fifth of the items engage as chocolate and do good as kale.")(
    Departure(third=0.2)
)
DEPARTURES.register("clickbait", summary="The fifth with most chocolate spoils users four times as much.")(
    Departure(spoils=0.2)
)
DEPARTURES.register("bots", summary="A tenth of the users are programs that click at random.")(Departure(bots=0.1))
DEPARTURES.register("late", summary="Users come late to all platforms but the first.")(Departure(late=0.9))
DEPARTURES.register("few", summary="One user in twenty visits platforms other than the first.")(Departure(few=0.05))
DEPARTURES.register("cascade", summary="Users look at slots one after the other.")(Departure(choice=Cascade()))
