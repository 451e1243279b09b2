"""The grid of a leaderboard: methods, data, users, devices, privacy promises and attacks of its runs.

The terms are the same for every method: as many devices with as many searches each, in as many rounds; and as many
interactions to choose its step size with, in every cell anew, on queries that it is not tested on. All else is a
method's default. The constants below are the whole declaration.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from fedrank.core.errors import ConfigError, FedrankError, UnknownNameError
from fedrank.core.registry import Registry
from fedrank.core.trees import Json, flat, nest
from fedrank.data.catalogue import CATALOGUE, list_data_sets
from fedrank.data.folders import place_of
from fedrank.engine.methods import method, method_names
from fedrank.engine.settings import as_dict, from_dict, setting_names
from fedrank.ranking.build import splits_of
from fedrank.ranking.clicks.browsing import is_file
from fedrank.ranking.clicks.cascade import USERS
from fedrank.ranking.data.reader import folds_here
from fedrank.ranking.data.splits import PARTS
from fedrank_zoo.leaderboard.cells import Cell

#: Ways in which devices differ, by what the studies call them: the settings of each. The four kinds of Wang and Zuccon
#: (SIGIR 2022): what is asked, what is relevant, how one clicks, how much one searches.
HETEROGENEITY: dict[str, dict[str, Json]] = {
    "iid": {},
    "topics": {"share": "topic"},
    "labels": {"share": "labels", "labels_per_client": 1},
    "clicks": {"devices.users": ["navigational", "informational", "perfect"]},
    "amounts": {"devices.amounts": "skewed"},
}
#: Attacks: none, the data poisoning of the studies, and forged messages of either kind.
ATTACKS: dict[str, dict[str, Json]] = {
    "none": {},
    "poisoned-clicks": {"attack.kind": "poisoned-clicks", "attack.share": 0.3},
    "inverted-metric": {"attack.kind": "inverted-metric", "attack.share": 0.2},
    "scaled-inverse": {"attack.kind": "scaled-inverse", "attack.share": 0.2},
}
#: Rankers trained on labels that stand in every block: simple baselines, and an upper line.
SCEPTICS = ("BestFeature", "MSE", "LambdaMART")
#: ε of all that a user does, over all of training; None: nothing is promised. Infinite: the lists and clips of the way
#: that promises one, without noise, which is what a promise is compared with.
EPSILONS: tuple[float | None, ...] = (None, math.inf, 4.0, 1.0)
#: Settings where nothing is promised, of the first of which a method has all.
PLAIN: tuple[dict[str, Json], ...] = (
    {"privacy.name": "randomised-response", "privacy.p": 1.0},
    {"privacy.name": "clear", "privacy.clip_norm": "l1"},
    {},
)
#: Settings of a way without noise, of the first of which a method has all.
NOISELESS: tuple[dict[str, Json], ...] = (
    {"presentation.name": "interleaved", "privacy.name": "randomised-response", "privacy.p": 1.0},
    {"privacy.epsilon_user": 500.0},
)
#: What changes beside data and users, as the page's questions are called.
QUESTIONS = ("privacy", "attacks", "heterogeneity")
#: Users of the default run, and of the full one.
CLICKS = ("navigational", "informational", "perfect", "dynamic-bayesian")
#: Data sets of the default run, where they are here.
DATA = ("mq2008", "clueweb09-ltr", "mslr-sample", "lightgbm-sample")
#: Seed by which all queries of a set are divided in five: three parts to learn from, one to choose the step size by,
#: one to judge by, each of the five in turn.
DIVISION = 2026
#: Factors of the default step size that a method chooses from, by one run each.
STEPS = (0.1, 0.3, 1.0, 3.0, 10.0)
#: The first seed: those below it were used while methods were developed. Seeds that choose are this much higher.
FIRST_SEED, CHOOSING = 100, 10_000
#: Methods that run where they are named, or all combinations are: those that take hours beside the others' minutes, as
#: they compare hundreds of rankers on each interaction, or some on dozens of logged ones; and published code's faults.
NAMED_ONLY = ("coltr", "foltr-coltr", "rankguard", "foltr-es-2019", "foltr-pdgd-2021")
#: The reference of every difference, and the measure that everything is ordered by.
MEASURE = "nDCG(dcg='exp-log2')@10"


@dataclass(frozen=True)
class Terms:
    """Terms that are the same for all methods.

    Attributes:
        clients: Devices of a round.
        interactions: Searches of a device in a round.
        rounds: Rounds within the budget of interactions.
        upload: Budget of bytes that all devices send together.
        seeds: Runs of each cell.
        seed: The first of their seeds.
    """

    clients: int = 400
    interactions: int = 4
    rounds: int = 50
    upload: int = 400_000
    seeds: int = 10
    seed: int = FIRST_SEED

    def __post_init__(self):
        for name in ("clients", "interactions", "rounds", "upload", "seeds"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} of the leaderboard must be at least 1, got {getattr(self, name)}.")

    @property
    def budget(self) -> int:
        """The budget of interactions."""
        return self.clients * self.interactions * self.rounds

    @property
    def population(self) -> int:
        """Users, each of whom takes part in one round where an ε of a user is promised."""
        return self.clients * self.rounds

    def part(self, fraction: float) -> Terms:
        """The same with a part of the rounds, of the bytes and of the seeds, for a quick look.

        Args:
            fraction: In (0, 1]: at least one round, and two seeds where there are as many.

        Raises:
            ConfigError: The fraction is out of range.
        """
        if not 0 < fraction <= 1:
            raise ConfigError(f"fraction must be in (0, 1], got {fraction}.")
        return dataclasses.replace(
            self,
            rounds=max(1, math.ceil(self.rounds * fraction)),
            upload=max(1, math.ceil(self.upload * fraction)),
            seeds=min(self.seeds, max(2, math.ceil(self.seeds * fraction))),
        )


@dataclass(frozen=True)
class Entrant:
    """A method as it takes part.

    Attributes:
        name: What it is called.
        protocol: Name of the method.
        settings: What it changes of its defaults, by dotted name.
    """

    name: str
    protocol: str
    settings: dict[str, Json] = field(default_factory=dict)


@dataclass(frozen=True)
class Part:
    """Queries to learn from, to choose by and to judge by.

    Attributes:
        data: Name of the set, or a path.
        fold: Number of the part that judges.
        division: Seed that divides all queries of the set in five; -1: the set's own folds.
    """

    data: str
    fold: int = 1
    division: int = -1

    @property
    def name(self) -> str:
        """Name for readers, such as ``"fold 2"``."""
        return f"fold {self.fold}" if self.division < 0 else f"part {self.fold}"

    @property
    def settings(self) -> dict[str, Json]:
        """The settings that name it."""
        divided = {} if self.division < 0 else {"divide": self.division}
        return {"data": self.data, "fold": self.fold, **divided}


@dataclass(frozen=True)
class Block:
    """The circumstances under which methods are compared with each other.

    Attributes:
        data: Name of the data set, or a path.
        clicks: Click model of the users.
        heterogeneity: How devices differ, a key of :data:`HETEROGENEITY`.
        epsilon: ε of all that a user does, as in :data:`EPSILONS`.
        attack: What attackers do, a key of :data:`ATTACKS`.
    """

    data: str
    clicks: str
    heterogeneity: str = "iid"
    epsilon: float | None = None
    attack: str = "none"


@dataclass(frozen=True)
class Grid:
    """Everything that is run.

    Attributes:
        terms: What all methods have alike.
        parts: Divisions of all data sets.
        entrants: The methods.
        blocks: Circumstances, in order; each is run on all parts of its data.
    """

    terms: Terms
    parts: tuple[Part, ...]
    entrants: tuple[Entrant, ...]
    blocks: tuple[Block, ...]

    def parts_of(self, data: str) -> list[Part]:
        """The divisions of one data set."""
        return [part for part in self.parts if part.data == data]

    def places(self) -> Iterator[tuple[Entrant, Block, Part]]:
        """Every method in all circumstances on all divisions, data by data."""
        for part in self.parts:
            for block in self.blocks:
                if block.data == part.data:
                    for entrant in self.entrants:
                        if block.attack != "none" or "aggregate" not in entrant.settings:
                            yield entrant, block, part

    def cells(self) -> list[Cell]:
        """All cells: of the rankers trained on labels, and of the methods wherever they mean something."""
        out = [
            self.label_cell(name, part, sorted({b.clicks for b in self.blocks if b.data == part.data}))
            for part in self.parts
            for name in SCEPTICS
        ]
        for entrant, block, part in self.places():
            found = self.cell(entrant, block, part)
            out += [] if isinstance(found, str) else [found]
        return out

    def cell(self, entrant: Entrant, block: Block, part: Part) -> Cell | str:
        """The cell of a method under some circumstances; or why there is none."""
        asked = (entrant.name, block, part)
        if asked not in self._known:
            self._known[asked] = self._cell(entrant, block, part)
        return self._known[asked]

    @functools.cached_property
    def _known(self) -> dict[tuple[str, Block, Part], Cell | str]:
        """Cells that have been asked for: checking settings takes longer than anything else about them."""
        return {}

    def _cell(self, entrant: Entrant, block: Block, part: Part) -> Cell | str:
        config = configuration(entrant, block, part, self.terms)
        if isinstance(config, str):
            return config
        budgets: dict[str, Json] = {"interactions": self.terms.budget, "bytes": self.terms.upload}
        about: dict[str, Json] = {"settings": as_dict(config), "budgets": budgets}
        if step := step_setting(entrant.protocol):
            default = dict(flat(as_dict(method(entrant.protocol).defaults())))[step]
            about["steps"] = {step: [float(f"{factor * default:.4g}") for factor in STEPS]}
        # Measured on MQ2008: central learners take a step an interaction, a multileaved list costs as much as ten, and
        # those without a compiled kernel compare hundreds of rankers, or a few on dozens of logged interactions.
        costs = {"mgd": 6.0, "dbgd": 2.0, "mdprank": 2.0, "fedper-pdgd": 3.0, "rankguard": 40.0}
        costs |= {"coltr": 90.0, "foltr-coltr": 90.0}
        return Cell(about, costs.get(entrant.protocol, 1.0))

    def label_cell(self, name: str, part: Part, clicks: Sequence[str]) -> Cell:
        """The cell of a ranker trained on labels."""
        return Cell({"labels": name, "part": part.settings, "clicks": list(clicks)}, 0.5)


def entrants(names: Sequence[str] = (), *, full: bool = False) -> list[Entrant]:
    """The methods that rank, of all packages, as they take part.

    Args:
        names: Some of them only, such as ``foltr-es``; empty: all but :data:`NAMED_ONLY` ones.
        full: All, also with two-layer rankers, and with every rule that is robust to attackers.

    Raises:
        UnknownNameError: There is no such method.
    """
    known = [name for name in method_names() if method(name).task == "ranking"]
    for name in names:
        if name not in known:
            raise UnknownNameError("method that ranks", name, known)
    out = []
    for name in names or [name for name in known if full or name not in NAMED_ONLY]:
        out.append(Entrant(name, name))
        if full:
            out.append(Entrant(f"{name}, two layers", name, {"ranker": "mlp"}))
        rules = getattr(method(name).protocol, "rules", None)
        if rules is not None:
            out += [Entrant(f"{name}, {rule}", name, {"aggregate": rule}) for rule in _defences(rules, full)]
    return out


def _defences(rules: Registry, full: bool) -> list[str]:
    """Rules of aggregation that are tried against attackers: the first robust one, or all."""
    robust = [rule for rule in rules.names() if rule != "mean"]
    return robust if full else [rule for rule in ("median", "median-of-means") if rule in robust][:1]


def parts_here(names: Sequence[str] = (), *, official: bool = False) -> list[Part]:
    """The parts of the data on this machine, each of which judges once.

    Args:
        names: Data sets or paths; empty: those of :data:`DATA` that are here, the generated set where none is; ``all``:
            every set of the catalogue that is here.
        official: The sets' own folds, as far as they are here, in place of the division.

    Raises:
        FedrankError: Data that is named is not there.
    """
    if not names or list(names) == ["all"]:
        here = [entry.name for entry in list_data_sets("ranking") if _is_ranking_set_here(entry)]
        names = [name for name in DATA if name in here] or ["generated"] if not names else here
    out = []
    for name in names:
        if official:
            out += [Part(name, fold) for fold in folds_here(name) if _has_test(name, fold)]
        else:
            out += [Part(name, fold, DIVISION) for fold in range(1, PARTS + 1)]
    return out


def _is_ranking_set_here(entry: Any) -> bool:
    try:
        if place_of(entry.obj, None) is None:
            return False
        splits_of(from_dict({"protocol": "foltr-es", "data": entry.name, "divide": DIVISION}))
    except FedrankError:
        return False
    return True


def _has_test(name: str, fold: int) -> bool:
    return splits_of(from_dict({"protocol": "foltr-es", "data": name, "fold": fold})).test is not None


def default_grid(
    terms: Terms,
    parts: Sequence[Part],
    who: Sequence[Entrant],
    *,
    clicks: Sequence[str] = (),
    questions: Sequence[str] = QUESTIONS,
    full: bool = False,
) -> Grid:
    """The grid: by default one circumstance changes at a time, from navigational users whose devices are alike.

    Args:
        terms: What all methods have alike.
        parts: Divisions of the data.
        who: The methods.
        clicks: Click models; empty: :data:`CLICKS`, or all of them with ``full``.
        questions: What changes beside data and users, of :data:`QUESTIONS`.
        full: Every combination.

    Raises:
        UnknownNameError: There is no such click model or question.
        ConfigError: There is no data or no method.
    """
    if not parts or not who:
        raise ConfigError(f"a leaderboard needs data and methods, got {len(parts)} divisions and {len(who)} methods.")
    users = list(dict.fromkeys(clicks or (*CLICKS, *(USERS.names() if full else ()))))
    for name in users:
        if not is_file(name):
            USERS.entry(name)
    for name in questions:
        if name not in QUESTIONS:
            raise UnknownNameError("question", name, QUESTIONS)
    kinds = [kind for kind in HETEROGENEITY if kind == "iid" or "heterogeneity" in questions]
    epsilons = [epsilon for epsilon in EPSILONS if epsilon is None or "privacy" in questions]
    attacks = [attack for attack in ATTACKS if attack == "none" or "attacks" in questions]
    first = users[0]
    blocks: list[Block] = []
    for data in dict.fromkeys(part.data for part in parts):
        if full:
            blocks += [
                Block(data, user, kind, epsilon, attack)
                for user in users
                for kind in kinds
                for epsilon in epsilons
                for attack in attacks
            ]
            continue
        blocks += [Block(data, user) for user in users]
        blocks += [Block(data, first, epsilon=epsilon) for epsilon in epsilons if epsilon is not None]
        blocks += [Block(data, first, attack=attack) for attack in attacks if attack == "poisoned-clicks"]
        blocks += [Block(data, first, kind) for kind in kinds if kind != "iid"]
    return Grid(terms, tuple(parts), tuple(who), tuple(blocks))


def configuration(entrant: Entrant, block: Block, part: Part, terms: Terms) -> Any:
    """The run of a method under some circumstances, resolved; or, as text, why these mean nothing to it."""
    known = method(entrant.protocol)
    names = set(setting_names(known.defaults()))
    settings: dict[str, Json] = {**part.settings, **entrant.settings}
    settings |= {"clicks": block.clicks, "seeds": terms.seeds, "seed": terms.seed, "rounds": terms.rounds}
    settings |= {"clients": terms.clients, "interactions": terms.interactions}
    settings |= {"evaluation.every": max(1, terms.rounds // 10), "evaluation.baselines": []}
    settings |= {"evaluation.measures": [MEASURE, "RR@10"]}
    refused = _adapt(settings, names, block, terms)
    if refused:
        return refused
    try:
        config = from_dict(nest({"protocol": entrant.protocol, **settings})).resolved()
    except ConfigError as error:
        return str(error)
    return config


def _adapt(settings: dict[str, Json], names: set[str], block: Block, terms: Terms) -> str:
    """Add the settings of the circumstances; say why where the method has none for them."""
    for what, wanted in (("heterogeneity", HETEROGENEITY[block.heterogeneity]), ("attack", ATTACKS[block.attack])):
        if missing := next((key for key in wanted if key not in names), None):
            return (
                "one service has all interactions: there are no devices that could differ or attack"
                if "devices.users" not in names
                else f"it has no setting {missing!r}, which {what} = {block.heterogeneity or block.attack!r} needs"
            )
        settings |= wanted
    if block.heterogeneity == "amounts":
        # The amounts are 1, 3, 5, 7 and 9 ninths of the largest: five ninths on average. A cell takes as many rounds as
        # the budget of interactions pays for.
        settings["interactions"] = max(2, 2 * (terms.interactions * 9 // 10))
    # What is promised is always said: a result must not depend on what a method promises by default.
    if block.epsilon is None:
        settings |= next(one for one in PLAIN if set(one) <= names)
        return ""
    if "privacy.epsilon_user" not in names:
        return "it promises no ε of all that a user does"
    if block.epsilon == math.inf:
        settings |= next(one for one in NOISELESS if set(one) <= names)
    else:
        settings["privacy.epsilon_user"] = block.epsilon
    # Devices that keep their queries cannot be new ones every round: they take part in all of them.
    if "population" in names and settings.get("share", "uniform") == "uniform":
        settings["population"] = terms.population
    return ""


def step_setting(protocol: str) -> str | None:
    """Dotted name of a method's step size: the server's where it has one; None: it has none."""
    found = dict(flat(as_dict(method(protocol).defaults())))
    return next((name for name in ("server.learning_rate", "learning_rate") if name in found), None)


def data_title(name: str) -> str:
    """Title of a data set for readers; its name if the catalogue has none."""
    return CATALOGUE.get(name).title if name.lower() in CATALOGUE and hasattr(CATALOGUE.get(name), "title") else name
