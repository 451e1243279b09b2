"""Schedules: rounds, devices of a round, searches behind a message and step size, chosen together for an ε of a life.

One message's ε does not depend on how many searches stand behind it. What a message tells is the difference D of two
rankers over B searches, whose mean grows with B and whose standard deviation with √B, clipped to much less than that
and told as one bit or few. So n messages of B searches say as much about a gradient as::

    n · B · (2/π) / m(ε)

searches without any noise, where m(ε) is the mean square of what a report stands for, and 2/π what the sign of a normal
value keeps of it. On MQ2008 80,000 messages of 16 searches, 20,000 of 64 and 5,000 of 256 learn the same, and the loss
against the same without noise falls with the 0.6th power of that number.

* **Searches behind a message**: as many as make it :data:`ENOUGH`, at most :data:`MOST_SEARCHES`.
* **Clip**: the part of the differences that it cuts is the same for all B if it falls with √B
  (:func:`fedrank.ranking.on_device.clip_of`).
* **Rounds**: with fewer the ranker does not get far, with more they take longer; where a message needs few searches,
  there are twice as many. Rounds that overlap save nothing: with replies to the question of two rounds ago, 50 rounds
  learn little more than 12 do.
* **Step size**: rankers start at zero, where only the ratio of σ to the way that is left counts. The best step size
  times the rounds was the same from 12 to 100 rounds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

#: Searches without noise that messages should come to.
ENOUGH = 1.75e6


#: Searches behind a message: fewest, few enough for twice the rounds, and most.
LEAST_SEARCHES, FEW_SEARCHES, MOST_SEARCHES = 4, 16, 128


#: Rounds where time allows, and the fewest; devices of a round at least.
ROUNDS, LEAST_ROUNDS, LEAST_CLIENTS = 50, 25, 20


#: Step size times rounds, with σ = 0.01.
WAY = 0.4


@dataclass(frozen=True)
class Schedule:
    """A division of all messages into rounds.

    Attributes:
        rounds: Rounds of the run.
        interactions: Searches behind a message.
        clients: Devices of a round.
    """

    rounds: int
    interactions: int
    clients: int

    @property
    def learning_rate(self) -> float:
        """Adam's step size for these rounds, in units of weights, with σ = 0.01; see :func:`step_size`."""
        return step_size(self.rounds)

    def days(self, searches: float) -> float:
        """Days of all rounds, one after another, each as long as a user takes for the searches of a message.

        Args:
            searches: Searches of a device's user a day.
        """
        return self.rounds * self.interactions / searches


def step_size(rounds: int) -> float:
    """Adam's step size: 0.4 divided by the number of rounds.

    >>> step_size(50)
    0.008
    """
    return WAY / rounds


def choose_schedule(messages: int, moment: float, most: float = math.inf) -> Schedule:
    """The schedule for a number of messages.

    Args:
        messages: Messages of all devices in all rounds.
        moment: m(ε) of one of them (:meth:`fedrank.ranking.mechanisms.RewardMechanism.second_moment`).
        most: Searches that a device's user makes in the time there is: days times searches a day.

    >>> choose_schedule(200_000, 4.68)
    Schedule(rounds=50, interactions=64, clients=4000)
    """
    wanted = _enough_searches(messages, moment)
    rounds = 2 * ROUNDS if wanted <= FEW_SEARCHES else ROUNDS
    while rounds > LEAST_ROUNDS and most < rounds * FEW_SEARCHES:
        rounds //= 2
    rounds = max(1, int(min(rounds, messages // LEAST_CLIENTS, most / LEAST_SEARCHES)))
    return Schedule(rounds, choose_interactions(messages, moment, most / rounds), messages // rounds)


def choose_interactions(messages: int, moment: float, most: float = math.inf) -> int:
    """Searches behind a message, for a number of messages.

    Args:
        messages: Messages of all devices in all rounds.
        moment: m(ε) of one of them (:meth:`fedrank.ranking.mechanisms.RewardMechanism.second_moment`).
        most: Searches that a device's user makes in a round.

    >>> choose_interactions(20_000, 4.68)
    128
    """
    return even(max(LEAST_SEARCHES, min(_enough_searches(messages, moment), MOST_SEARCHES, most)))


def _enough_searches(messages: int, moment: float) -> float:
    return ENOUGH * moment * math.pi / 2 / messages


def even(searches: float) -> int:
    """The nearest even number of searches: half of them can be shown lists of one ranker, half of the other."""
    return 2 * round(searches / 2)
