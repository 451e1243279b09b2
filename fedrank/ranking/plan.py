"""Plans: how to train a ranker with a promise for a user's whole life, and how good it will be, found by simulation.

A team knows how many devices it has, how often a user of one searches, and what it wants to promise. A closed form
(:mod:`fedrank.ranking.schedule`) says how the messages are spread over rounds and how many searches stand
behind one. More of both make a better ranker and take longer, since a device answers a round when its user has searched
as often as that. A plan simulates this schedule beside quicker and slower ones and lays quality beside days. It takes
the quickest that no other is told apart from upwards.

**Whom one trusts** decides the protocol: no one, or a channel that hides who sent what, means FOLtR-ES with one
privatised number a message; a secure sum means FPDGD with clipped changes and Gaussian noise in shares.

**Large populations are simulated by smaller ones** with the same noise. In FOLtR-ES the server's estimate of a gradient
is a mean of n reports, with a variance of m(ε)/n, where m(ε) is the mean square of what a report stands for. So n
devices at ε are simulated by n′ < n at the larger ε′ for which m(ε′)/n′ = m(ε)/n. Devices' own variance is then counted
too often, if anything: n′ of them tell less than n. In a secure sum the noise of a sum is σ(ε), that of the mean
σ(ε)/n, and ε′ is the one for which σ(ε′)/n′ is as much. What this leaves out, a comparison of FOLtR-ES with runs of
full size shows (see the study ``private-foltr-es``); sums were not compared.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import shlex
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedrank.core.errors import ConfigError
from fedrank.core.fields import setting
from fedrank.core.privacy_report import DELTA
from fedrank.core.trees import Json, nest
from fedrank.engine.run import run_experiment
from fedrank.engine.run_folder import RunFolder
from fedrank.engine.settings import from_dict
from fedrank.metrics.online import REWARDS
from fedrank.metrics.returns import LEAST_SEEDS
from fedrank.privacy.calibration import concentrated_epsilon, gaussian_sigma
from fedrank.ranking.build import splits_of, user_for
from fedrank.ranking.config import Bounds, DeviceRun
from fedrank.ranking.evaluate import Measurement
from fedrank.ranking.schedule import LEAST_CLIENTS, LEAST_SEARCHES, Schedule, choose_schedule, even
from fedrank.ranking.schedule import ROUNDS as CHOSEN_ROUNDS
from fedrank.report.statistics import final_values, first_values, t_quantile

#: Rounds and interactions of a message that are tried with a secure sum.
ROUNDS, INTERACTIONS = (25, 50, 100), (4, 16)


@dataclass(frozen=True)
class Way:
    """The protocol and settings that train a ranker under one assumption of trust.

    Attributes:
        protocol: Name of the protocol.
        rate: Dotted name of the setting of its step size.
        learning_rate: Its step size, chosen on MQ2008: see the study ``private-foltr-es``; None: that of the schedule.
        private: Settings of its privacy beside ε.
        bare: Settings without any privacy, everything else the same.
        says: Whom one trusts, in a few words.
        message: What a round's ε is about, between commas.
        delta: Whether the promise has a δ.
    """

    protocol: str
    rate: str
    learning_rate: float | None
    private: Mapping[str, Json]
    bare: Mapping[str, Json]
    says: str
    message: str
    delta: bool

    @property
    def rate_flag(self) -> str:
        """The flag of the step size."""
        return "--" + self.rate.replace("_", "-")


_ONE_BIT = "a message, one privatised bit about all its searches,"
_BARE_ES: Mapping[str, Json] = {"privacy": {"p": 1.0}, "presentation": {"name": "interleaved"}}

#: By whom is trusted.
WAYS: Mapping[str, Way] = {
    "nobody": Way("foltr-es", "server.learning_rate", None, {}, _BARE_ES, "no one is trusted", _ONE_BIT, False),
    "channel": Way(
        "foltr-es", "server.learning_rate", None, {"channel": "anonymous"}, _BARE_ES,
        "no one learns whose a message is", _ONE_BIT, True
    ),
    "secure-sum": Way(
        "foltr-pdgd", "learning_rate", 0.3, {}, {}, "a secure sum shows the server nothing else",
        "a device in a round, which sends how its weights change,", True,
    ),
}  # fmt: skip
#: Most devices that are planned for: their rounds can then have all the devices that a run may have.
MOST_DEVICES = 10**8
#: Largest ε with which sums are simulated.
LARGEST_OF_A_SUM = 500.0
#: Most devices of a population that is simulated as it is.
SIMULATED = 200_000


@dataclass(frozen=True)
class Need:
    """The devices, data and privacy that a plan is made for.

    Raises:
        ConfigError: A number is out of range.
    """

    devices: int = setting(100_000, "Devices there are.")
    searches: float = setting(3.0, "Searches of one device's user a day.")
    days: float | None = setting(None, "Days that training may take; without it as many as the schedule needs.")
    epsilon: float = setting(1.0, "ε of all that a user does, over all of training.")
    trust: str = setting(
        "nobody",
        "Whom one has to trust: nobody; channel: one that does not tell whose a message is; secure-sum: one that shows "
        "the server nothing but a round's sum. With the last two ε holds at delta.",
    )
    delta: float = setting(DELTA, "δ, with a channel or a secure sum.")
    participations: int = setting(1, "Most rounds that a device takes part in.")
    data: str = setting("generated", "Data that is nearest to yours: a name or a path.")
    fold: int = setting(1, "Its fold.")
    clicks: str = setting("navigational", "Click model of the simulated users.")
    ranker: str = setting("linear", "The ranker.")
    seeds: int = setting(5, "Runs of each choice, at least 3.")
    seed: int = setting(0, "The first one's seed.")

    def __post_init__(self):
        least = LEAST_CLIENTS * min(ROUNDS)
        if self.trust not in WAYS:
            raise ConfigError(f"trust must be one of {', '.join(WAYS)}, got {self.trust!r}.")
        if not 1 <= self.participations <= min(ROUNDS):
            raise ConfigError(
                f"participations must be in 1..{min(ROUNDS)}, the fewest rounds tried, got {self.participations}."
            )
        if not least <= self.devices * self.participations or self.devices > MOST_DEVICES:
            raise ConfigError(
                f"devices must be {least:,} to {MOST_DEVICES:,}, for {min(ROUNDS)} rounds of {LEAST_CLIENTS} or more, "
                f"got {self.devices:,}."
            )
        if not 0 < self.searches < math.inf:
            raise ConfigError(f"searches a day must be above 0, got {self.searches}.")
        fewest = min(ROUNDS) * LEAST_SEARCHES / self.searches
        if self.days is not None and not self.days >= fewest:
            raise ConfigError(
                f"{self.days:g} days are too few for {min(ROUNDS)} rounds, the fewest that are tried, of "
                f"{LEAST_SEARCHES} searches of a device, {self.searches:g} a day: it takes {math.ceil(fewest)} days."
            )
        if self.seeds < LEAST_SEEDS:
            raise ConfigError(f"seeds must be at least {LEAST_SEEDS}, for an interval, got {self.seeds}.")
        self.config(self.shortest)  # what a run refuses is refused

    @property
    def shortest(self) -> Schedule:
        """The fewest rounds of the fewest searches that are tried."""
        return Schedule(min(ROUNDS), min(INTERACTIONS), self.clients(min(ROUNDS)))

    def clients(self, rounds: int, devices: int | None = None) -> int:
        """Devices of a round if all devices are used up in ``rounds`` rounds."""
        return (self.devices if devices is None else devices) * self.participations // rounds

    @property
    def way(self) -> Way:
        """The protocol and settings of the assumption of trust."""
        return WAYS[self.trust]

    @functools.cached_property
    def mechanism(self) -> Any:
        """The mechanism of privacy, not bound to a run."""
        return self.config(self.shortest).method.privacy

    def learning_rate(self, choice: Schedule) -> float:
        """Step size of the server with which a choice is simulated."""
        return choice.learning_rate if self.way.learning_rate is None else self.way.learning_rate

    def config(self, choice: Schedule, **more: Json) -> DeviceRun:
        """The settings of a run that makes a choice.

        Args:
            choice: The choice.
            more: Settings that differ.

        Raises:
            ConfigError: They do not fit each other.
        """
        config = from_dict({
            "protocol": self.way.protocol,
            "data": self.data,
            "fold": self.fold,
            "clicks": self.clicks,
            "ranker": self.ranker,
            "rounds": choice.rounds,
            "clients": choice.clients,
            "interactions": choice.interactions,
            **nest({self.way.rate: self.learning_rate(choice)}),
            "population": self.devices,
            "participations": self.participations,
            "privacy": {"epsilon_user": self.epsilon, "delta": self.delta, **self.way.private},
            "seed": self.seed,
            "seeds": self.seeds,
            "evaluation": {"every": choice.rounds, "baselines": []},
            **more,
        }).resolved()  # fmt: skip
        if self.way.protocol == "foltr-es":  # made here, to be refused here
            config.method.privacy.bind(config.bounds, REWARDS.get(config.reward)(config.depth))
        return config


@dataclass(frozen=True)
class Predicted:
    """Prediction for the ranker of a choice.

    Attributes:
        choice: The choice.
        days: How long it takes.
        epsilon_message: ε of a message, against an attacker who knows whose it is; with a secure sum that of a device
            in a round, against an attacker who sees the sum.
        simulated: Devices that were simulated, and their ε of the same kind.
        mean: Expected reward of a search on the training queries after the last round, mean over seeds.
        low: Lower end of the interval in which one further run lies with 95 % probability.
        high: Its upper end; both within the values that a ranking of these queries can have.
        values: The mean of each seed.
    """

    choice: Schedule
    days: float
    epsilon_message: float
    simulated: tuple[int, float]
    mean: float
    low: float
    high: float
    values: tuple[float, ...] = ()

    def as_json(self, need: Need) -> dict[str, Json]:
        """The prediction with its settings, as the command prints it."""
        return {
            "rounds": self.choice.rounds,
            "clients": self.choice.clients,
            "interactions": self.choice.interactions,
            "learning_rate": need.learning_rate(self.choice),
            "days": self.days,
            "epsilon_user": need.epsilon,
            "epsilon_message": self.epsilon_message,
            "simulated_devices": self.simulated[0],
            "simulated_epsilon_message": self.simulated[1],
            "mean": self.mean,
            "low": self.low,
            "high": self.high,
        }


@dataclass(frozen=True)
class Plan:
    """Predictions for all choices.

    Attributes:
        need: The devices, data and privacy of the plan.
        measure: Name of the predicted measure, such as ``"expected MaxRR (navigational)"``.
        choices: All that were tried, the quickest first.
        best: The quickest that no other is told apart from upwards, simulated again on other seeds: the best of several
            means is too good.
        twice: The same with twice the devices, on these other seeds.
        without: The same without privacy, on these other seeds and as many simulated devices.
        untrained: The measure before training.
    """

    need: Need
    measure: str
    choices: tuple[Predicted, ...]
    best: Predicted
    twice: Predicted
    without: Predicted
    untrained: float


def equivalent(
    devices: int, epsilon: float, noise: Callable[[float], float], largest: float, most: int = SIMULATED
) -> tuple[int, float]:
    """Fewer devices with a larger ε whose mean has the same noise.

    Args:
        devices: n, messages altogether.
        epsilon: ε of a message; in a secure sum that of a device in a round.
        noise: What of an ε falls with devices: m(ε) of a report, σ(ε) of a sum.
        largest: Largest ε that is simulated.
        most: Up to this number of devices, ``devices`` and ``epsilon`` are returned unchanged.

    Returns:
        n′ ≤ n and ε′ ≥ ε. n′ is above ``most`` where even the largest ε has too much noise for so few.
    """
    if devices <= most:
        return devices, epsilon
    each = noise(epsilon) / devices
    fewest = max(most, math.ceil(noise(largest) / each))
    if fewest >= devices:
        return devices, epsilon
    low, high = epsilon, largest
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (low, middle) if noise(middle) <= each * fewest else (middle, high)
    return fewest, high


def choices(need: Need) -> list[Schedule]:
    """Schedules to try, the quickest first: the chosen one, and others that take a quarter, half and twice as long."""
    if need.trust == "secure-sum":
        found = [Schedule(rounds, searches, need.clients(rounds)) for rounds in ROUNDS for searches in INTERACTIONS]
    else:
        most = math.inf if need.days is None else need.days * need.searches
        messages = need.devices * need.participations
        each = epsilon_message(need, need.clients(CHOSEN_ROUNDS))
        one = choose_schedule(messages, need.mechanism.second_moment(each), most)
        fewer = even(max(LEAST_SEARCHES, one.interactions / 2))
        pairs = ((one.rounds // 2, fewer), (one.rounds, fewer), (one.rounds, one.interactions))
        pairs = dict.fromkeys((*pairs, (2 * one.rounds, one.interactions)))
        found = [Schedule(rounds, searches, messages // rounds) for rounds, searches in pairs if rounds >= min(ROUNDS)]
    days = math.inf if need.days is None else need.days * (1 + 1e-9)
    found = [one for one in found if one.clients >= LEAST_CLIENTS and one.days(need.searches) <= days]
    return sorted(found, key=lambda one: (one.days(need.searches), one.rounds))


def epsilon_message(need: Need, clients: int) -> float:
    """ε of one message, against an attacker who knows whose it is; in a secure sum, of what a device adds to it.

    Args:
        need: The promise.
        clients: Devices of a round.
    """
    if need.trust == "secure-sum":
        return _epsilon_of_a_round(need.epsilon, need.delta, need.participations)
    bounds = Bounds(clients=clients, participations=need.participations)
    return dataclasses.replace(need.mechanism, bounds=bounds).epsilon_message


def _epsilon_of_a_round(epsilon: float, delta: float, times: int) -> float:
    """ε of each of several rounds with Gaussian noise that together have an ε."""
    one = gaussian_sigma(epsilon, delta, 1.0) * math.sqrt(times)
    return concentrated_epsilon(0.5 / one**2, delta)


def simulate_choice(
    need: Need, choice: Schedule, private: bool = True, hear: Callable[[str], None] = lambda said: None
) -> tuple[Predicted, float]:
    """Simulate a choice.

    Args:
        need: What is there.
        choice: How it is used.
        private: With the promise; else without any privacy, with as many simulated devices.
        hear: Hears what is done.

    Returns:
        The prediction, and the measure before training.
    """
    one = epsilon_message(need, choice.clients)
    messages = choice.rounds * choice.clients
    if need.trust == "secure-sum":
        number, epsilon = equivalent(
            messages, one, lambda each: gaussian_sigma(each, need.delta, 1.0), LARGEST_OF_A_SUM
        )
    else:
        number, epsilon = equivalent(messages, one, need.mechanism.second_moment, need.mechanism.largest_epsilon)
    # Each device once, with the ε of a message: what a channel hides is in that already.
    how: Mapping[str, Json] = {"privacy": {"epsilon_user": epsilon, "delta": need.delta}}
    if not private:
        how, epsilon = need.way.bare or {"privacy": {}}, math.inf
    clients = max(1, number // choice.rounds)
    hear(f"{choice.rounds} rounds of {choice.clients:,} devices, {choice.interactions} searches each")
    simulated = {
        "clients": clients,
        "population": choice.rounds * clients,
        "participations": 1,
        **how,
    }
    with tempfile.TemporaryDirectory() as folder:
        made = run_experiment(need.config(choice, **simulated), Path(folder) / "run")
        metrics = RunFolder(made).read_metrics()
    measure, days = measure_of(need), choice.days(need.searches)
    values = tuple(final_values(metrics, "train", measure).values())
    mean, low, high = prediction_interval(list(values))
    worst, ideal = possible_values(need)
    before = prediction_interval(list(first_values(metrics, "train", measure).values()))[0]
    simulated = (choice.rounds * clients, epsilon)
    return Predicted(choice, days, one, simulated, mean, max(low, worst), min(high, ideal), values), before


def possible_values(need: Need) -> tuple[float, float]:
    """The measure on the training queries of the worst and of the best order by label."""
    config = need.config(need.shortest)
    splits = splits_of(config)
    metric, user = REWARDS.get(config.reward)(config.depth), user_for(config.clicks, splits, config.depth)
    labels = np.concatenate([part.labels for part in splits.parts().values()]).astype(np.float32)
    found = Measurement(splits, metric, (user,), ()).per_query(np.stack([-labels, labels]))[measure_of(need)]
    worst, best = found[:, : splits.train.n_queries].mean(axis=1)
    return float(worst), float(best)


def measure_of(need: Need) -> str:
    """Name of the predicted measure: the exact mean reward of a search."""
    return f"expected {REWARDS.get('MaxRR')(10).name} ({need.clicks})"


def prediction_interval(values: list[float], level: float = 0.95) -> tuple[float, float, float]:
    """Mean of some independent values, and where one further value lies with a probability, if they are normal.

    Args:
        values: At least three.
        level: The probability.

    Returns:
        Mean, lower end, upper end: the mean ± t·s·√(1 + 1/n).
    """
    n, mean = len(values), math.fsum(values) / len(values)
    spread = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (n - 1))
    half = t_quantile(n - 1, level) * spread * math.sqrt(1 + 1 / n)
    return mean, mean - half, mean + half


def plan(need: Need, hear: Callable[[str], None] = lambda said: None) -> Plan:
    """Simulate all choices, the best of them with twice the devices, and without privacy.

    Args:
        need: The devices, data and privacy of the plan.
        hear: Hears what is done, one line a simulation.

    Raises:
        FedrankError: The data is not there, or the settings do not fit.
    """
    found = [simulate_choice(need, choice, hear=hear) for choice in choices(need)]
    winner = quickest_of_best([one for one, _ in found]).choice
    again = dataclasses.replace(need, seed=need.seed + need.seeds)
    best, _ = simulate_choice(again, winner, hear=hear)
    twice, _ = simulate_choice(again, Schedule(winner.rounds, winner.interactions, 2 * winner.clients), hear=hear)
    without, _ = simulate_choice(again, winner, private=False, hear=hear)
    return Plan(need, measure_of(need), tuple(one for one, _ in found), best, twice, without, found[0][1])


def quickest_of_best(found: Sequence[Predicted], level: float = 0.95) -> Predicted:
    """The first prediction that no other is told apart from upwards.

    Two are told apart by Student's t over the seeds' differences, at a level that Bonferroni's correction divides among
    the others.

    Args:
        found: The quickest first, all with the same seeds.
        level: Of all comparisons of one together.
    """
    for one in found[:-1]:
        higher = [other for other in found if other is not one and other.mean > one.mean]
        each = 1 - (1 - level) / max(1, len(found) - 1)
        if not any(_is_above(other.values, one.values, each) for other in higher):
            return one
    return found[-1]


def _is_above(values: Sequence[float], others: Sequence[float], level: float) -> bool:
    """True if the first are larger than the second, seed by seed, at a level of both sides."""
    differences = np.subtract(values, others)
    half = t_quantile(len(differences) - 1, level) * differences.std(ddof=1) / math.sqrt(len(differences))
    return bool(differences.mean() > half)


def rows(made: Plan) -> Iterator[tuple[str, Predicted]]:
    """All predictions with what each is called, in the order of a table."""
    for one in made.choices:
        yield "taken" if one.choice == made.best.choice else "", one
    yield "taken, other seeds", made.best
    yield "twice the devices", made.twice
    yield "no privacy", made.without


def command_of(made: Plan) -> str:
    """The command that simulates the best choice at full size."""
    need, choice = made.need, made.best.choice
    said = {
        "--data": need.data,
        "--fold": need.fold,
        "--clicks": need.clicks,
        "--ranker": need.ranker,
        "--population": need.devices,
        "--participations": need.participations,
        "--rounds": choice.rounds,
        "--clients": choice.clients,
        "--interactions": choice.interactions,
        need.way.rate_flag: need.learning_rate(choice),
        "--privacy.epsilon-user": need.epsilon,
        **{f"--privacy.{name}": value for name, value in need.way.private.items()},
        "--privacy.delta": need.delta,
    }
    defaults = {"--data": "generated", "--fold": 1, "--clicks": "navigational", "--ranker": "linear"}
    defaults |= {"--participations": 1, "--privacy.delta": DELTA}
    flags = [f"{flag} {shlex.quote(str(value))}" for flag, value in said.items() if defaults.get(flag) != value]
    return f"fedrank run {need.way.protocol} {' '.join(flags)}"
