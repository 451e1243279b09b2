"""Plans: how to train a ranker with a promise for a user's whole life, and how good it will be, found by simulation.

A team knows how many devices it has, how often a user of one searches, and what it wants to promise. Open is how the
messages are spread: few rounds with many devices, or many with few; and how many interactions stand behind a message.
More rounds and more interactions make a better ranker and take longer, since a device answers a round when its user has
searched as often as that. A plan simulates the choices and lays quality beside days.

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
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from fedrank.core.errors import ConfigError
from fedrank.core.fields import setting
from fedrank.core.privacy_report import DELTA
from fedrank.core.trees import Json, nest
from fedrank.engine.run import run_experiment
from fedrank.engine.run_folder import RunFolder
from fedrank.engine.settings import from_dict
from fedrank.metrics.online import REWARDS
from fedrank.metrics.returns import LEAST_SEEDS
from fedrank.privacy import piecewise
from fedrank.privacy.accounts.shuffle import local_epsilon
from fedrank.privacy.calibration import concentrated_epsilon, gaussian_sigma
from fedrank.privacy.piecewise import AT_ENDS, LARGEST_EPSILON, Piecewise
from fedrank.ranking.config import DeviceRun
from fedrank.report.statistics import final_values, first_values, t_quantile

#: Rounds and interactions of a message that are tried.
ROUNDS, INTERACTIONS = (25, 50, 100), (4, 16)


@dataclass(frozen=True)
class Way:
    """The protocol and settings that train a ranker under one assumption of trust.

    Attributes:
        protocol: Name of the protocol.
        rate: Dotted name of the setting of its step size.
        learning_rate: Its step size, chosen on MQ2008: see the study ``private-foltr-es``.
        private: Settings of its privacy beside ε.
        bare: Settings without any privacy, everything else the same.
        says: Whom one trusts, in a few words.
        message: What a round's ε is about, between commas.
        delta: Whether the promise has a δ.
    """

    protocol: str
    rate: str
    learning_rate: float
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
    "nobody": Way("foltr-es", "server.learning_rate", 0.004, {}, _BARE_ES, "no one is trusted", _ONE_BIT, False),
    "channel": Way(
        "foltr-es", "server.learning_rate", 0.004, {"channel": "anonymous"}, _BARE_ES,
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
#: Fewest devices of a round, and most devices of a population that is simulated as it is.
LEAST_CLIENTS, SIMULATED = 20, 200_000


@dataclass(frozen=True)
class Need:
    """The devices, data and privacy that a plan is made for.

    Raises:
        ConfigError: A number is out of range.
    """

    devices: int = setting(100_000, "Devices there are.")
    searches: float = setting(4.0, "Searches of one device's user a day.")
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
        if self.seeds < LEAST_SEEDS:
            raise ConfigError(f"seeds must be at least {LEAST_SEEDS}, for an interval, got {self.seeds}.")
        self.config(Choice(min(ROUNDS), min(INTERACTIONS), self.clients(min(ROUNDS))))  # what a run refuses is refused

    def clients(self, rounds: int, devices: int | None = None) -> int:
        """Devices of a round if all devices are used up in ``rounds`` rounds."""
        return (self.devices if devices is None else devices) * self.participations // rounds

    @property
    def way(self) -> Way:
        """The protocol and settings of the assumption of trust."""
        return WAYS[self.trust]

    def config(self, choice: Choice, **more: Json) -> DeviceRun:
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
            **nest({self.way.rate: self.way.learning_rate}),
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
class Choice:
    """A division of all messages into rounds.

    Attributes:
        rounds: Rounds of the run.
        interactions: Searches behind a message.
        clients: Devices of a round.
    """

    rounds: int
    interactions: int
    clients: int

    def days(self, searches: float) -> float:
        """Days of all rounds, one after another, each as long as a user takes for the searches of a message."""
        return self.rounds * self.interactions / searches


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
        high: Its upper end.
    """

    choice: Choice
    days: float
    epsilon_message: float
    simulated: tuple[int, float]
    mean: float
    low: float
    high: float

    def as_json(self, need: Need) -> dict[str, Json]:
        """The prediction with its settings, as the command prints it."""
        return {
            "rounds": self.choice.rounds,
            "clients": self.choice.clients,
            "interactions": self.choice.interactions,
            "learning_rate": need.way.learning_rate,
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
        best: The one with the best mean, simulated again on other seeds: the best of several means is too good.
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


def second_moment(epsilon: float) -> float:
    """m(ε): mean square of what a report stands for, in units of the largest difference that is told.

    Args:
        epsilon: ε of a message.
    """
    mechanism = piecewise.best(epsilon, AT_ENDS)
    return AT_ENDS * float(mechanism.second_moment(1.0)) + (1 - AT_ENDS) * _mean_second_moment(mechanism)


def _mean_second_moment(mechanism: Piecewise) -> float:
    return mechanism.mean_variance + 1 / 6  # the mean square of a triangular number in [−1, 1]


@functools.lru_cache(maxsize=256)
def equivalent(devices: int, epsilon: float, most: int = SIMULATED) -> tuple[int, float]:
    """Fewer devices with a larger ε whose mean report has the same variance.

    Args:
        devices: n, messages altogether.
        epsilon: ε of a message.
        most: Up to this number of devices, ``devices`` and ``epsilon`` are returned unchanged.

    Returns:
        n′ ≤ n and ε′ ≥ ε. n′ is above ``most`` where even reports without noise take more.
    """
    if devices <= most:
        return devices, epsilon
    each = second_moment(epsilon) / devices
    fewest = max(most, math.ceil(second_moment(LARGEST_EPSILON) / each))
    if fewest >= devices:
        return devices, epsilon
    low, high = epsilon, LARGEST_EPSILON
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (low, middle) if second_moment(middle) <= each * fewest else (middle, high)
    return fewest, high


@functools.lru_cache(maxsize=256)
def equivalent_sum(devices: int, epsilon: float, delta: float, most: int = SIMULATED) -> tuple[int, float]:
    """Fewer devices with a larger ε whose mean has the same Gaussian noise.

    Args:
        devices: n, messages altogether.
        epsilon: ε of a device in a round.
        delta: δ of it.
        most: Up to this number of devices, ``devices`` and ``epsilon`` are returned unchanged.

    Returns:
        n′ ≤ n and ε′ ≥ ε. n′ is above ``most`` where even the largest ε has too much noise for so few.
    """
    if devices <= most:
        return devices, epsilon
    each = gaussian_sigma(epsilon, delta, 1.0) / devices
    fewest = max(most, math.ceil(gaussian_sigma(LARGEST_OF_A_SUM, delta, 1.0) / each))
    if fewest >= devices:
        return devices, epsilon
    low, high = epsilon, LARGEST_OF_A_SUM
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (low, middle) if gaussian_sigma(middle, delta, 1.0) <= each * fewest else (middle, high)
    return fewest, high


def choices(need: Need) -> list[Choice]:
    """Choices to try: numbers of rounds for which there are devices, and interactions of a message; quickest first."""
    found = [
        Choice(rounds, interactions, need.clients(rounds))
        for rounds in ROUNDS
        for interactions in INTERACTIONS
        if need.clients(rounds) >= LEAST_CLIENTS
    ]
    return sorted(found, key=lambda one: (one.days(need.searches), one.rounds))


def epsilon_message(need: Need, choice: Choice) -> float:
    """ε of one message, against an attacker who knows whose it is; in a secure sum, of what a device adds to it."""
    each = need.epsilon / need.participations
    if need.trust == "secure-sum":
        return _epsilon_of_a_round(need.epsilon, need.delta, need.participations)
    if need.trust == "nobody":
        return each
    return local_epsilon(each, choice.clients, need.delta / need.participations, AT_ENDS)


def _epsilon_of_a_round(epsilon: float, delta: float, times: int) -> float:
    """ε of each of several rounds with Gaussian noise that together have an ε."""
    one = gaussian_sigma(epsilon, delta, 1.0) * math.sqrt(times)
    return concentrated_epsilon(0.5 / one**2, delta)


def simulate_choice(
    need: Need, choice: Choice, private: bool = True, hear: Callable[[str], None] = lambda said: None
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
    one = epsilon_message(need, choice)
    messages = choice.rounds * choice.clients
    if need.trust == "secure-sum":
        number, epsilon = equivalent_sum(messages, one, need.delta)
    else:
        number, epsilon = equivalent(messages, one)
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
    interval = prediction_interval(list(final_values(metrics, "train", measure).values()))
    before = prediction_interval(list(first_values(metrics, "train", measure).values()))[0]
    return Predicted(choice, days, one, (choice.rounds * clients, epsilon), *interval), before


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
    winner = max((one for one, _ in found), key=lambda one: one.mean).choice
    again = dataclasses.replace(need, seed=need.seed + need.seeds)
    best, _ = simulate_choice(again, winner, hear=hear)
    twice, _ = simulate_choice(again, Choice(winner.rounds, winner.interactions, 2 * winner.clients), hear=hear)
    without, _ = simulate_choice(again, winner, private=False, hear=hear)
    return Plan(need, measure_of(need), tuple(one for one, _ in found), best, twice, without, found[0][1])


def rows(made: Plan) -> Iterator[tuple[str, Predicted]]:
    """All predictions with what each is called, in the order of a table."""
    for one in made.choices:
        yield "best" if one.choice == made.best.choice else "", one
    yield "best, other seeds", made.best
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
        need.way.rate_flag: need.way.learning_rate,
        "--privacy.epsilon-user": need.epsilon,
        **{f"--privacy.{name}": value for name, value in need.way.private.items()},
        "--privacy.delta": need.delta,
    }
    defaults = {"--data": "generated", "--fold": 1, "--clicks": "navigational", "--ranker": "linear"}
    defaults |= {"--participations": 1, "--privacy.delta": DELTA}
    flags = [f"{flag} {shlex.quote(str(value))}" for flag, value in said.items() if defaults.get(flag) != value]
    return f"fedrank run {need.way.protocol} {' '.join(flags)}"
