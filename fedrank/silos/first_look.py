"""Before the first round: who helps and who harms the target, and whose labels look inverted, as messages.

The verdicts of :mod:`fedrank.silos.sceptic.verdicts`, from sums that cross instead of rows. Each other silo is an arm,
and so is the target alone; of each arm there is a model for every fold of the target's rows::

    totals     server asks; silos send counts and totals of their columns, and their own model      → means
    squares    server sends means; silos send squares around them                                   → deviations
    newton …   server sends β of every arm and fold; a silo sends derivatives for its arm, the target for all of
               them, its own penalty included; β ← β + H⁻¹g                                          a few times
    judge      server sends the models to the target alone; it sends AUC differences with their errors

Everything crosses as double precision, and a verdict is that of the rows at one place. Which rows are in which fold
stays at the target, and so do all scores. A setup of a run (:attr:`fedrank.core.protocol.Protocol.setup`): it runs in a
simulator and over Flower.
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
from fedrank.engine.setup import run_setup
from fedrank.silos.build import SiloExperiment
from fedrank.silos.config import SiloRun
from fedrank.silos.glm.newton import Sums, ridge, sums
from fedrank.silos.glm.sums import Moments, moments_of
from fedrank.silos.sceptic.auc import Estimate, auc, difference
from fedrank.silos.sceptic.learners import Own, choose_penalty, design, fit_alone, folds, rows_of
from fedrank.silos.sceptic.probes import LEVEL, below_half
from fedrank.silos.sceptic.verdicts import FOLDS, Verdict, draw_of, verdict_of


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
class Totals:
    """Silo to server: counts, totals and squares of its columns, by fold for the target, and its own model.

    Squares are around the silo's own means, so that no digits are lost, and are brought to common means by the server.
    """

    totals: Array = field(u1["models", "cells":"thrice", "bytes":8], "values of a column, their sum, and squares")
    model: Array = field(u1["parameters", "bytes":8], "coefficients of the silo's own model, in the columns' units")


@message(kind=3)
class Models:
    """Server to silos: a model of each arm and fold, and what its columns are standardised by."""

    means: Array = field(u1["silos", "models", "cells":"columns", "bytes":8], "means of columns")
    deviations: Array = field(u1["silos", "models", "cells":"columns", "bytes":8], "deviations of columns")
    weights: Array = field(u1["silos", "models", "parameters", "bytes":8], "coefficients of standardised columns")


@message(kind=4)
class Derivatives:
    """Silo to server: log-likelihood, gradient and information at the models, summed over its rows."""

    sums: Array = field(u1["silos", "models", "cells":"numbers", "bytes":8], "sums over the silo's rows")


@message(kind=5)
class Shown:
    """Server to the target: the models of all arms, and each silo's own."""

    means: Array = field(u1["silos", "models", "cells":"columns", "bytes":8], "means of columns")
    deviations: Array = field(u1["silos", "models", "cells":"columns", "bytes":8], "deviations of columns")
    weights: Array = field(u1["silos", "models", "parameters", "bytes":8], "coefficients of standardised columns")
    own: Array = field(u1["silos", "parameters", "bytes":8], "each silo's own model, in the columns' units")


@message(kind=6)
class Judged:
    """Target to server: what each arm's models are worth on its rows."""

    gains: Array = field(u1["silos", "bytes":8], "AUC of the arm minus that of the target alone")
    errors: Array = field(u1["silos", "bytes":8], "standard errors of these")
    scores: Array = field(u1["silos", "bytes":8], "AUC of each silo's own model as it is")
    score_errors: Array = field(u1["silos", "bytes":8], "standard errors of these")


#: Rounds of Newton's method; penalised models take five to seven.
_STEPS = 7
#: Where no coefficient moves by more, the next step moves them by rounding errors: Newton's method squares its error.
_CONVERGED = 1e-7
#: A column is constant where its deviation is below this share of its mean, as in :mod:`fedrank.silos.glm.sums`.
_CONSTANT = 1e-12


class Looked(NamedTuple):
    """Result of the first look, seen by target and server.

    Attributes:
        target: Its number.
        verdicts: Who helps and who harms.
        scores: AUC of each silo's own model on the target's rows, by silo; that of the target is not there.
        inverted: Silos whose labels look inverted, with the corrected p-value.
    """

    target: int
    verdicts: tuple[Verdict, ...]
    scores: dict[int, Estimate]
    inverted: dict[int, float]

    def as_json(self, names: Sequence[str]) -> dict[str, Any]:
        """As it stands in ``first_look.json``, silos by name."""
        said = [
            f"{names[silo]}: its model orders the rows of {names[self.target]} the wrong way round (AUC "
            f"{self.scores[silo].value:.2f}): labels look inverted."
            for silo in self.inverted
        ]
        said += [f"{names[one.silo]} {one.text}." for one in self.verdicts if one.word == "harms"]
        return {
            "target": names[self.target],
            "warnings": said,
            "silos": {
                names[one.silo]: {
                    **one.as_json(),
                    "auc_as_it_is": _finite(self.scores[one.silo].value),
                    "labels_look_inverted": one.silo in self.inverted,
                }
                for one in self.verdicts
            },
        }


@dataclass(frozen=True, eq=False)
class LookState:
    """State of the server; axes: arms, folds, and columns or coefficients.

    Attributes:
        own: Each silo's own model.
        means: Means of columns.
        deviations: Their deviations.
        beta: Coefficients at which silos are asked next.
        before: Those of the step before.
        value: Penalised log-likelihood at ``before``.
        step: What was added to ``before``; infinite before the first.
        looked: The end.
    """

    own: Float[np.ndarray, "silos coefficients"]
    means: Float[np.ndarray, "arms folds columns"]
    deviations: Float[np.ndarray, "arms folds columns"]
    beta: Float[np.ndarray, "arms folds coefficients"]
    before: Float[np.ndarray, "arms folds coefficients"]
    value: Float[np.ndarray, "arms folds"]
    step: Float[np.ndarray, "arms folds coefficients"]
    looked: Looked | None = None


@dataclass(frozen=True)
class FirstLook(Protocol):
    """A first look with its settings.

    Attributes:
        silos: Number of silos.
        columns: Number of columns.
        target: Number of the silo that asks.
        seed: Draws the folds at the target.
    """

    silos: int
    columns: int
    target: int
    seed: int = 0

    name = "first-look"

    @cached_property
    @override
    def sizes(self) -> dict[str, int]:  # type: ignore[override]
        """Lengths of the messages' axes and largest values, by name."""
        c = self.columns
        return {
            "silos": self.silos,
            "models": FOLDS,
            "columns": c,
            "thrice": 3 * c,
            "parameters": c + 1,
            "numbers": 2 + c + (c + 1) * (c + 2) // 2,
            "largest_silo": max(1, self.silos - 1),
        }

    @cached_property
    @override
    def exchanges(self) -> tuple[Exchange, ...]:
        return (SendTotals(self), *(Step(self, number) for number in range(_STEPS)), Judge(self))

    @override
    def init(self, key: Any) -> LookState:
        del key
        shape = (self.silos, FOLDS)
        at, whole = np.zeros((*shape, self.columns)), np.zeros((*shape, self.columns + 1))
        return LookState(
            np.zeros((self.silos, self.columns + 1)), at, at, whole, whole, np.full(shape, -np.inf),
            np.full_like(whole, np.inf),
        )  # fmt: skip

    @override
    def weights(self, state: LookState) -> None:
        return None  # there is no model

    @override
    def account(self, rounds: int, delta: float) -> PrivacyReport:
        return PrivacyReport.none(
            rounds, "Sums over each silo's rows cross, and its own model; the server sees each silo's as they are."
        )

    def party(self, own: Own, number: int) -> Party:
        """The party of one silo."""
        return Party(own, {"number": np.array(number, np.int64)})

    def arms(self, number: int) -> list[int]:
        """Arms to whose sums a silo adds: the target to all, another one to its own."""
        return list(range(self.silos)) if number == self.target else [number]

    def members(self) -> Bool[np.ndarray, "arms silos"]:
        """Silos whose sums make an arm."""
        made = np.eye(self.silos, dtype=bool)
        made[:, self.target] = True
        return made


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

    def number(self, party: Party) -> int:
        """Number of the silo."""
        return int(party.own["number"])

    def parts(self, party: Party) -> list[Own]:
        """The rows that count in each fold: of the target those that are not in it, of others all."""
        own: Own = party.shared
        if "fold" not in party.own:
            return [own] * FOLDS
        return [own[party.own["fold"] != fold] for fold in range(FOLDS)]

    def require(self, arrived: Bool[np.ndarray, " silos"], asked: list[int]) -> None:
        """Refuse to go on without a silo: a verdict about the others would be another one."""
        missing = [silo for silo in asked if not arrived[silo]]
        if missing:
            raise RunError(f"first look, {self.name}: silos {missing} were not heard, and all are needed.")


@dataclass(frozen=True)
class SendTotals(_HostExchange, request=Begin, reply=Totals):
    """Counts, totals and squares of columns, and each silo's own model."""

    name = "look-totals"

    @override
    def ask(self, state: LookState) -> Begin:
        return Begin(np.uint32(self.settings.target))

    @override
    def respond(self, request: Begin, party: Party, draws: PyTree) -> tuple[Party, Totals]:
        s, own, number = self.settings, party.shared, self.number(party)
        rng = draw_of(s.seed, number)
        kept = dict(party.own)
        if number == s.target:
            fold = folds(own, FOLDS, rng)
            # In the order in which the folds are judged, so that chance falls alike.
            penalties = [choose_penalty(own[fold != one], rng) for one in np.unique(fold)]
            kept |= {"fold": fold, "penalty": np.array(penalties + [1.0] * (FOLDS - len(penalties)))}
        party = party._replace(own=kept)
        totals = np.array([_totals(one.x) for one in self.parts(party)])
        made = fit_alone(own, choose_penalty(own, draw_of(s.seed, number, "own model")))
        varies = made.moments.deviation > 0
        slopes = np.where(varies, made.beta[1:] / np.where(varies, made.moments.deviation, 1.0), 0.0)
        model = np.append(made.beta[0] - slopes @ made.moments.mean, slopes)
        return party, Totals(pack(totals), pack(model))

    @override
    def tell(self, state: LookState, replies: Totals, arrived: Bool[np.ndarray, " silos"]) -> LookState:
        self.require(arrived, list(range(self.settings.silos)))
        each = unpack(replies.totals)
        members = self.settings.members()
        count, total, squares = np.split(each, 3, axis=-1)
        there = np.maximum(np.einsum("as,sfc->afc", members, count), 1)
        means = np.einsum("as,sfc->afc", members, total) / there
        # Squares around a common mean: those around each silo's own, and those of its mean (Chan et al. 1983).
        apart = total / np.maximum(count, 1) - means[:, None]
        around = np.einsum("as,asfc->afc", members, squares + count * apart**2)
        deviation = np.sqrt(around / there)
        return replace(
            state,
            own=unpack(replies.model),
            means=means,
            deviations=np.where(deviation > _CONSTANT * np.abs(means), deviation, 0.0),
        )


@dataclass(frozen=True)
class Step(_HostExchange, request=Models, reply=Derivatives):
    """One step of Newton's method of every arm and fold at once, halved where the one before lost.

    Attributes:
        step: Number of the step, from 0.
    """

    step: int = 0

    @property
    def name(self) -> str:  # type: ignore[override]
        """Name of the step."""
        return f"look-newton-{self.step + 1}"

    def has_converged(self, state: LookState) -> bool:
        """True if all models are those of the largest penalised likelihood."""
        return bool((np.abs(state.step) <= _CONVERGED).all())

    @override
    def asked(self, state: LookState, parties: int) -> Bool[np.ndarray, " silos"]:
        return np.full(parties, not self.has_converged(state))  # who is not asked starts no process

    @override
    def ask(self, state: LookState) -> Models:
        return Models(pack(state.means), pack(state.deviations), pack(state.beta))

    @override
    def respond(self, request: Models, party: Party, draws: PyTree) -> tuple[Party, Derivatives]:
        s, number = self.settings, self.number(party)
        means, deviations, beta = (unpack(one) for one in (request.means, request.deviations, request.weights))
        out = np.zeros((s.silos, FOLDS, s.sizes["numbers"]))
        parts = self.parts(party)
        for arm in s.arms(number):
            for fold, part in enumerate(parts):
                at = beta[arm, fold]
                got = sums("logistic", at, _design(part.x, means[arm, fold], deviations[arm, fold]), part.y)
                if number == s.target:
                    pull = ridge(len(at), float(party.own["penalty"][fold]))
                    got = got + Sums(-0.5 * float(at @ pull @ at), -pull @ at, pull)
                out[arm, fold] = got.flat()
        return party, Derivatives(pack(out))

    @override
    def tell(self, state: LookState, replies: Derivatives, arrived: Bool[np.ndarray, " silos"]) -> LookState:
        if self.has_converged(state):
            return state
        self.require(arrived, list(range(self.settings.silos)))
        total = unpack(replies.sums).sum(axis=0)
        beta, before, value, step = (one.copy() for one in (state.beta, state.before, state.value, state.step))
        for arm, fold in np.ndindex(*value.shape):
            got = Sums.of(total[arm, fold], beta.shape[-1])
            if got.value < value[arm, fold] - 1e-9 * abs(value[arm, fold]):
                step[arm, fold] /= 2
            else:
                before[arm, fold], value[arm, fold] = beta[arm, fold], got.value
                step[arm, fold] = np.linalg.lstsq(got.information, got.gradient, rcond=1e-14)[0]
            beta[arm, fold] = before[arm, fold] + step[arm, fold]
        return replace(state, beta=beta, before=before, value=value, step=step)


@dataclass(frozen=True)
class Judge(_HostExchange, request=Shown, reply=Judged):
    """The target judges the models of every arm on the rows that they have not seen."""

    name = "look-judge"

    @override
    def asked(self, state: LookState, parties: int) -> Bool[np.ndarray, " silos"]:
        return np.arange(parties) == self.settings.target

    @override
    def ask(self, state: LookState) -> Shown:
        return Shown(pack(state.means), pack(state.deviations), pack(state.beta), pack(state.own))

    @override
    def respond(self, request: Shown, party: Party, draws: PyTree) -> tuple[Party, Judged]:
        s, own, fold = self.settings, party.shared, party.own["fold"]
        means, deviations, beta = (unpack(one) for one in (request.means, request.deviations, request.weights))
        scores = np.empty((s.silos, own.rows))
        for arm, number in np.ndindex(s.silos, FOLDS):
            test = fold == number
            x = _design(own.x[test], means[arm, number], deviations[arm, number])
            scores[arm, test] = x @ beta[arm, number]
        first = own.first
        gains = [difference(one[first], scores[s.target, first], own.y[first], fold[first]) for one in scores]
        own_moments = moments_of([own.x])
        known = np.where(np.isnan(own.x), own_moments.mean, own.x)
        as_they_are = [auc((known @ model[1:] + model[0])[first], own.y[first]) for model in unpack(request.own)]
        values = (
            [one.value for one in gains],
            [one.error for one in gains],
            [one.value for one in as_they_are],
            [one.error for one in as_they_are],
        )
        return party, Judged(*(pack(np.array(one, float)) for one in values))

    @override
    def tell(self, state: LookState, replies: Judged, arrived: Bool[np.ndarray, " silos"]) -> LookState:
        s = self.settings
        self.require(arrived, [s.target])
        told = (replies.gains, replies.errors, replies.scores, replies.score_errors)
        gains, errors, scores, score_errors = (unpack(one[s.target]) for one in told)
        others = [silo for silo in range(s.silos) if silo != s.target]
        many = max(1, len(others))
        judged = tuple(verdict_of(silo, Estimate(float(gains[silo]), float(errors[silo])), many) for silo in others)
        seen = {silo: Estimate(float(scores[silo]), float(score_errors[silo])) for silo in others}
        below = {silo: below_half(one, many) for silo, one in seen.items()}
        inverted = {silo: p for silo, p in below.items() if p < LEVEL}
        return replace(state, looked=Looked(s.target, judged, seen, inverted))


def _finite(value: float) -> Json:
    return value if np.isfinite(value) else None


def _totals(x: Float[np.ndarray, "rows columns"]) -> Float[np.ndarray, " thrice"]:
    there = ~np.isnan(x)
    count, total = there.sum(axis=0), np.where(there, x, 0.0).sum(axis=0)
    apart = np.where(there, x - total / np.maximum(count, 1), 0.0)
    return np.concatenate([count, total, (apart**2).sum(axis=0)])


def _design(
    x: Float[np.ndarray, "rows columns"], mean: Float[np.ndarray, " columns"], deviation: Float[np.ndarray, " columns"]
) -> Float[np.ndarray, "rows p"]:
    return design(x, Moments(np.ones_like(mean), mean, deviation))


#: Fewest rows of the rarer label at the target.
_FEWEST = 4


def look_of(config: SiloRun, experiment: SiloExperiment, target: int | None = None) -> FirstLook:
    """The first look of a run.

    Args:
        config: The run.
        experiment: The run, built; of a stand-in only numbers are taken.
        target: Number of the silo that asks; None: the run's first.
    """
    first = experiment.targets[0] if target is None else target
    return FirstLook(experiment.n_parties, experiment.table.n_features, first, config.seed)


def first_looks(experiment: SiloExperiment) -> dict[str, Any]:
    """Result of a first look for each target of a run, by name.

    Raises:
        DataError: A target has too few rows of one label.
    """
    rows, out = rows_of(experiment.table), {}
    for target in experiment.targets:
        if rows[target].rarer < _FEWEST:
            raise DataError(
                f"silos.first_look: {experiment.names[target]} has {rows[target].rarer} rows of the rarer label, and "
                f"{_FEWEST} are needed; take another target, or leave it out."
            )
        look = look_of(experiment.config, experiment, target)
        parties = [look.party(own, number) for number, own in enumerate(rows)]
        state, _, _ = run_setup(look, parties, np.random.default_rng([experiment.config.seed, target]))
        out[experiment.names[target]] = state.looked.as_json(experiment.names)
    return out
