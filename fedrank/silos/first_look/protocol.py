"""The first look as a protocol of one round, on the host."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float
from typing_extensions import override

from fedrank.core.arrays import PyTree
from fedrank.core.errors import RunError
from fedrank.core.privacy_report import PrivacyReport
from fedrank.core.protocol import Exchange, Party, Protocol
from fedrank.core.trees import Json
from fedrank.silos.first_look.messages import (
    Begin,
    Derivatives,
    Judged,
    Models,
    Shown,
    Totals,
    packed,
    unpacked,
)
from fedrank.silos.glm.families import Sums, sums
from fedrank.silos.glm.moments import Moments, moments_of
from fedrank.silos.glm.newton import ridge
from fedrank.silos.sceptic.auc import Estimate, auc, difference
from fedrank.silos.sceptic.learners import choose_penalty, design, fit_alone
from fedrank.silos.sceptic.probes import LEVEL, below_half
from fedrank.silos.sceptic.rows import Own, folds
from fedrank.silos.sceptic.verdicts import FOLDS, Verdict, draw_of, verdict_of

#: Rounds of Newton's method; penalised models take five to seven.
_STEPS = 7
#: Where no coefficient moves by more, the next step moves them by rounding errors: Newton's method squares its error.
_CONVERGED = 1e-7
#: A column is constant where its deviation is below this share of its mean, as in :mod:`fedrank.silos.glm.moments`.
_CONSTANT = 1e-12


class Looked(NamedTuple):
    """What the target gets to know, and the server with it.

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

    def named(self, names: Sequence[str]) -> dict[str, Any]:
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
    """What the server knows so far; axes: arms, folds, and columns or coefficients.

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
        """Whose sums make an arm."""
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
        return party, Totals(packed(totals), packed(model))

    @override
    def tell(self, state: LookState, replies: Totals, arrived: Bool[np.ndarray, " silos"]) -> LookState:
        self.require(arrived, list(range(self.settings.silos)))
        each = unpacked(replies.totals)
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
            own=unpacked(replies.model),
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

    def reached(self, state: LookState) -> bool:
        """Whether all models are those of the largest penalised likelihood."""
        return bool((np.abs(state.step) <= _CONVERGED).all())

    @override
    def asked(self, state: LookState, parties: int) -> Bool[np.ndarray, " silos"]:
        return np.full(parties, not self.reached(state))  # who is not asked starts no process

    @override
    def ask(self, state: LookState) -> Models:
        return Models(packed(state.means), packed(state.deviations), packed(state.beta))

    @override
    def respond(self, request: Models, party: Party, draws: PyTree) -> tuple[Party, Derivatives]:
        s, number = self.settings, self.number(party)
        means, deviations, beta = (unpacked(one) for one in (request.means, request.deviations, request.weights))
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
        return party, Derivatives(packed(out))

    @override
    def tell(self, state: LookState, replies: Derivatives, arrived: Bool[np.ndarray, " silos"]) -> LookState:
        if self.reached(state):
            return state
        self.require(arrived, list(range(self.settings.silos)))
        total = unpacked(replies.sums).sum(axis=0)
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
        return Shown(packed(state.means), packed(state.deviations), packed(state.beta), packed(state.own))

    @override
    def respond(self, request: Shown, party: Party, draws: PyTree) -> tuple[Party, Judged]:
        s, own, fold = self.settings, party.shared, party.own["fold"]
        means, deviations, beta = (unpacked(one) for one in (request.means, request.deviations, request.weights))
        scores = np.empty((s.silos, own.rows))
        for arm, number in np.ndindex(s.silos, FOLDS):
            test = fold == number
            x = _design(own.x[test], means[arm, number], deviations[arm, number])
            scores[arm, test] = x @ beta[arm, number]
        first = own.first
        gains = [difference(one[first], scores[s.target, first], own.y[first], fold[first]) for one in scores]
        own_moments = moments_of([own.x])
        known = np.where(np.isnan(own.x), own_moments.mean, own.x)
        as_they_are = [auc((known @ model[1:] + model[0])[first], own.y[first]) for model in unpacked(request.own)]
        values = (
            [one.value for one in gains],
            [one.error for one in gains],
            [one.value for one in as_they_are],
            [one.error for one in as_they_are],
        )
        return party, Judged(*(packed(np.array(one, float)) for one in values))

    @override
    def tell(self, state: LookState, replies: Judged, arrived: Bool[np.ndarray, " silos"]) -> LookState:
        s = self.settings
        self.require(arrived, [s.target])
        told = (replies.gains, replies.errors, replies.scores, replies.score_errors)
        gains, errors, scores, score_errors = (unpacked(one[s.target]) for one in told)
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
