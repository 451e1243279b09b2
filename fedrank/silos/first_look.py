"""Before the first round: who helps and who harms the target, what looks wrong at a silo, and a model shrunk to others.

The answer of ``fedrank silos compare`` (:mod:`fedrank.silos.sceptic.compare`) where each silo has its own rows::

    summaries  server asks; each silo sends its message (:mod:`fedrank.silos.sceptic.summary`)
    judge      server sends all messages to the target alone; it sends AUCs and differences of AUCs with their errors,
               and the weight of each silo in the shrunk model

Everything crosses as double precision, and what is found is what the rows at one place give. Which rows are in which
fold stays at the target, and so do all scores. A setup of a run (:attr:`fedrank.core.protocol.Protocol.setup`): it runs
in a simulator and over Flower.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Integer, UInt8
from typing_extensions import override

from fedrank.core.arrays import PyTree
from fedrank.core.errors import DataError, RunError
from fedrank.core.messages import Array, field, message, u1, u4
from fedrank.core.privacy_report import PrivacyReport
from fedrank.core.protocol import Exchange, Party, Protocol
from fedrank.core.trees import Json
from fedrank.data.sources import is_known
from fedrank.engine.simulator import run_setup
from fedrank.silos.build import SiloExperiment
from fedrank.silos.config import SiloRun
from fedrank.silos.data.tables import Silo, SiloTable
from fedrank.silos.sceptic.auc import Auc, Estimate
from fedrank.silos.sceptic.compare import FEWEST, answer_by_messages
from fedrank.silos.sceptic.learners import Own, rows_of
from fedrank.silos.sceptic.probes import Probes, Verdict, probe, verdict_of
from fedrank.silos.sceptic.summary import Summary, length, summary_of
from fedrank.silos.sceptic.ways import WAYS

#: Ways that a first look compares.
_WAYS = ("alone", "as-they-are", "averaged", "shrunk")


def pack(values: Float[np.ndarray, "*axes"]) -> UInt8[np.ndarray, "*axes bytes"]:
    """Doubles as bytes."""
    return np.ascontiguousarray(values, "<f8")[..., None].view(np.uint8)


def unpack(octets: Integer[np.ndarray, "*axes bytes"]) -> Float[np.ndarray, "*axes"]:
    """The inverse of :func:`pack`."""
    return np.ascontiguousarray(np.asarray(octets).astype(np.uint8)).view("<f8")[..., 0].astype(float)


@message(kind=1)
class Begin:
    """Server to silos: a first look begins."""

    target: Array = field(u4, "number of the silo that asks", largest="largest_silo")


@message(kind=2)
class Told:
    """Silo to server: its message."""

    numbers: Array = field(u1["statistics", "bytes":8], "moments of columns, model, log-likelihood to second order")


@message(kind=3)
class Shown:
    """Server to the target: the messages of all silos."""

    numbers: Array = field(u1["silos", "statistics", "bytes":8], "each silo's message")


@message(kind=4)
class Judged:
    """Target to server: what each silo's rows and model are worth on its rows."""

    gains: Array = field(u1["silos", "bytes":8], "AUC with the silo's rows minus that of the target alone")
    errors: Array = field(u1["silos", "bytes":8], "standard errors of these")
    scores: Array = field(u1["silos", "bytes":8], "AUC of each silo's own model as it is")
    score_errors: Array = field(u1["silos", "bytes":8], "standard errors of these")
    weights: Array = field(u1["silos", "bytes":8], "weight of each silo in the shrunk model")
    reached: Array = field(
        u1["cells":5, "bytes":8], "what is recommended, its AUC, the same minus that of the target alone; errors"
    )


class Looked(NamedTuple):
    """Result of the first look, seen by target and server.

    Attributes:
        target: Its number.
        verdicts: Who helps and who harms.
        probes: What looks wrong at a silo.
        weights: Weight of each other silo in the shrunk model, 0 to 1, by silo.
        recommended: The way to a model that is recommended, one of :data:`~fedrank.silos.sceptic.ways.WAYS`.
        auc: Its AUC on the target's rows, chosen anew in each fold.
        over_alone: The same minus that of the target's own model.
    """

    target: int
    verdicts: tuple[Verdict, ...]
    probes: Probes
    weights: dict[int, float]
    recommended: str
    auc: Estimate
    over_alone: Estimate

    def as_json(self, names: Sequence[str]) -> dict[str, Any]:
        """As it stands in ``first_look.json``, silos by name."""
        said = [f"{names[alarm.silo]}: {alarm.text}." for alarm in self.probes.alarms]
        said += [f"{names[one.silo]} {one.text}." for one in self.verdicts if one.word == "harms"]
        kinds = {silo: [one.kind for one in self.probes.alarms if one.silo == silo] for silo in self.weights}
        return {
            "target": names[self.target],
            "warnings": said,
            "recommended": self.recommended,
            "title": WAYS[self.recommended].title,
            "auc": _numbers(self.auc),
            "over_alone": _numbers(self.over_alone),
            "silos": {
                names[one.silo]: {
                    **one.as_json(),
                    "auc_as_it_is": self.probes.scores[one.silo].as_json()["value"],
                    "weight": self.weights[one.silo],
                    "alarms": kinds[one.silo],
                    "labels_look_inverted": "inverted" in kinds[one.silo],
                }
                for one in self.verdicts
            },
        }


@dataclass(frozen=True, eq=False)
class LookState:
    """State of the server.

    Attributes:
        numbers: Each silo's message.
        looked: The end.
    """

    numbers: Float[np.ndarray, "silos numbers"]
    looked: Looked | None = None


@dataclass(frozen=True)
class FirstLook(Protocol):
    """A first look with its settings.

    Attributes:
        silos: Number of silos.
        columns: Number of columns.
        target: Number of the silo that asks.
        seed: Draws the folds at the silos.
        column_names: Names of the columns, where the server knows them; else they are numbered from 1.
        names: Names of the silos, for the sentences; empty: they are numbered.
    """

    silos: int
    columns: int
    target: int
    seed: int = 0
    column_names: tuple[str, ...] = ()
    names: tuple[str, ...] = ()

    name = "first-look"

    @cached_property
    @override
    def sizes(self) -> dict[str, int]:  # type: ignore[override]
        """Lengths of the messages' axes and largest values, by name."""
        return {"silos": self.silos, "statistics": length(self.columns), "largest_silo": max(1, self.silos - 1)}

    @cached_property
    @override
    def exchanges(self) -> tuple[Exchange, ...]:
        return (SendSummaries(self), Judge(self))

    @override
    def init(self, key: Any) -> LookState:
        del key
        return LookState(np.zeros((self.silos, length(self.columns))))

    @override
    def weights(self, state: LookState) -> None:
        return None  # there is no model

    @override
    def account(self, rounds: int, delta: float) -> PrivacyReport:
        return PrivacyReport.none(
            rounds,
            "Sums over each silo's rows cross, and its own model; server and target see each as they are.",
        )

    def party(self, own: Own, number: int) -> Party:
        """The party of one silo."""
        return Party(own, {"number": np.array(number, np.int64)})

    def read_messages(self, numbers: Float[np.ndarray, "silos numbers"]) -> list[Summary]:
        """The messages of all silos, in order, from their numbers as they crossed (:func:`.summary.length` of each)."""
        return [Summary.from_flat(one, self.columns) for one in numbers]

    @cached_property
    def features(self) -> tuple[str, ...]:
        """Names of the columns, in order; "column 1" and so on where the server does not know them."""
        return self.column_names or tuple(f"column {k + 1}" for k in range(self.columns))


@dataclass(frozen=True)
class _HostExchange(Exchange):
    settings: FirstLook

    host = True

    @override
    def draw(self, key: Any) -> PyTree:
        return None  # folds come from the run's seed

    @override
    def draw_from_os(self) -> PyTree:
        return None

    def require(self, arrived: Bool[np.ndarray, " silos"], asked: list[int]) -> None:
        """Refuse to go on without a silo: a verdict about the others would be another one."""
        missing = [silo for silo in asked if not arrived[silo]]
        if missing:
            raise RunError(f"first look, {self.name}: silos {missing} were not heard, and all are needed.")


@dataclass(frozen=True)
class SendSummaries(_HostExchange, request=Begin, reply=Told):
    """First exchange: every silo sends its :class:`~fedrank.silos.sceptic.summary.Summary` to the server."""

    name = "look-summaries"

    @override
    def ask(self, state: LookState) -> Begin:
        return Begin(np.uint32(self.settings.target))

    @override
    def respond(self, request: Begin, party: Party, draws: PyTree) -> tuple[Party, Told]:
        made = summary_of(party.shared, self.settings.seed, int(party.own["number"]))
        return party, Told(pack(made.flat()))

    @override
    def tell(self, state: LookState, replies: Told, arrived: Bool[np.ndarray, " silos"]) -> LookState:
        self.require(arrived, list(range(self.settings.silos)))
        return replace(state, numbers=unpack(replies.numbers))


@dataclass(frozen=True)
class Judge(_HostExchange, request=Shown, reply=Judged):
    """The target judges the others' models, and models with the others' rows, on its own rows."""

    name = "look-judge"

    @override
    def asked(self, state: LookState, parties: int) -> Bool[np.ndarray, " silos"]:
        return np.arange(parties) == self.settings.target

    @override
    def ask(self, state: LookState) -> Shown:
        return Shown(pack(state.numbers))

    @override
    def respond(self, request: Shown, party: Party, draws: PyTree) -> tuple[Party, Judged]:
        s, own = self.settings, party.shared
        told = {str(k): one for k, one in enumerate(s.read_messages(unpack(request.numbers)))}
        rows = Silo(str(s.target), own.x, own.y.astype(np.int8), person=own.person)
        table = SiloTable("own", (rows,), s.features, "label")
        found = answer_by_messages(table, list(told), str(s.target), told, seed=s.seed, ways=_WAYS)
        gains, scores = np.zeros((s.silos, 2)), np.zeros((s.silos, 2))
        for one in found.verdicts:
            gains[one.silo], scores[one.silo] = one.gain, found.probes.scores[one.silo]
        weights = np.array([found.partners.get(name, 0.0) for name in told])
        reached = np.array([_WAYS.index(found.recommended), *found.auc, *found.over_alone])
        return party, Judged(*map(pack, (gains[:, 0], gains[:, 1], scores[:, 0], scores[:, 1], weights, reached)))

    @override
    def tell(self, state: LookState, replies: Judged, arrived: Bool[np.ndarray, " silos"]) -> LookState:
        s = self.settings
        self.require(arrived, [s.target])
        told = (replies.gains, replies.errors, replies.scores, replies.score_errors, replies.weights, replies.reached)
        gains, errors, scores, score_errors, weights, reached = (unpack(one[s.target]).tolist() for one in told)
        others = [silo for silo in range(s.silos) if silo != s.target]
        many = max(1, len(others))
        seen = {silo: Auc(scores[silo], score_errors[silo]) for silo in others}
        looked = Looked(
            target=s.target,
            verdicts=tuple(verdict_of(silo, Estimate(gains[silo], errors[silo]), many) for silo in others),
            probes=probe(s.read_messages(state.numbers), seen, s.target, s.features, s.names),
            weights={silo: weights[silo] for silo in others},
            recommended=_WAYS[int(np.clip(np.nan_to_num(reached[0]), 0, len(_WAYS) - 1))],
            auc=Auc(*reached[1:3]),
            over_alone=Estimate(*reached[3:]),
        )
        return replace(state, looked=looked)


def _numbers(found: Estimate) -> dict[str, Json]:
    told = found.as_json()
    return {name: told[name] for name in ("value", "low", "high")}


def look_of(config: SiloRun, experiment: SiloExperiment, target: int | None = None) -> FirstLook:
    """The first look of a run.

    Args:
        config: The run.
        experiment: The run, built; of a stand-in only numbers are taken.
        target: Number of the silo that asks; None: the run's first.
    """
    first = experiment.targets[0] if target is None else target
    table = experiment.table
    known = table.feature_names if is_known(config.data, config.task) else ()
    return FirstLook(experiment.n_parties, table.n_features, first, config.seed, known, tuple(experiment.names))


def first_looks(experiment: SiloExperiment) -> dict[str, Any]:
    """Result of a first look for each target of a run, by name.

    Raises:
        DataError: A target has too few rows of one label.
    """
    rows, out = rows_of(experiment.table), {}
    for target in experiment.targets:
        if rows[target].rarer < FEWEST:
            raise DataError(
                f"silos.first_look: {experiment.names[target]} has {rows[target].rarer} rows of the rarer label, and "
                f"{FEWEST} are needed; take another target, or leave it out."
            )
        look = look_of(experiment.config, experiment, target)
        parties = [look.party(own, number) for number, own in enumerate(rows)]
        state, _, _ = run_setup(look, parties, np.random.default_rng([experiment.config.seed, target]))
        out[experiment.names[target]] = state.looked.as_json(experiment.names)
    return out
