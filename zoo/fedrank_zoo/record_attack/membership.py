"""Membership inference by shadow models (LiRA): Carlini et al., *Membership Inference Attacks From First Principles*.

IEEE S&P 2022. The attacker has rows like the silo's: here the silo's own, of which half at random were used. It makes
the same release of many random halves, and learns for each row how the release scores it where the row was used and
where not: two normal distributions. Of the silo's release it takes the ratio of their densities. Each shadow is the
silo once, and the others the attacker's.

What ε allows: (ε, δ)-privacy by Gaussian noise is a trade-off of errors of two normal distributions μ apart, with
μ = √(2ρ), so that no attacker has an AUC above Φ(μ/√2) (Dong, Roth and Su, *Gaussian differential privacy*, 2022).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Float
from scipy import stats
from threadpoolctl import threadpool_limits

from fedrank.core.errors import DataError
from fedrank.core.streams import fold_words, run_words, split
from fedrank.core.trees import Json
from fedrank.report.claims import Measured, Named, Sentence, Share, say
from fedrank.silos.glm import moments_of
from fedrank.silos.records.private_sgd import privacy_loss
from fedrank.silos.sceptic.auc import auc
from fedrank.silos.sceptic.learners import Own, design, fit_glm
from fedrank.silos.studies.families import Logistic
from fedrank.silos.studies.protocol import Ask, Rows, run
from fedrank.silos.studies.regression import answer, fit
from fedrank_zoo.noisy_statistics.ranges import Ranges
from fedrank_zoo.noisy_statistics.releases import noise_of, perturb, release_sums
from fedrank_zoo.record_attack import MODES, RecordAttack

#: Fewest rows of a silo.
_FEWEST = 20
#: Share of wrong accusations at which the share of right ones is shown.
_FALSE = 0.05
#: Networks as a run of silos has them, and the epochs of all its rounds.
_WIDTHS, _EPOCHS = (32, 16, 8), 90
#: Networks whose noise is drawn at once.
_AT_ONCE = 16
#: Density beside the two normal ones, so that nothing is certain.
_NARROW = 1e-6

#: Releases of rows: how each record is scored by one that was made of those that are chosen. [rows chosen] -> scores.
Release = Callable[[Bool[np.ndarray, " rows"]], Float[np.ndarray, " rows"]]


@dataclass(frozen=True)
class Membership:
    """Result of an attack.

    Attributes:
        mode: One of :data:`~fedrank_zoo.record_attack.MODES`.
        epsilon: ε of a record; None where nothing is promised.
        auc: How well records that were used are told from others; 0.5 is chance.
        low: Lower end of its 99 % interval over shadows.
        high: Upper end.
        found: Share of the used records that are named where 5 % of the others are named too.
        most: The largest AUC that ε allows; 1 where nothing is promised.
    """

    mode: str
    epsilon: float | None
    auc: float
    low: float
    high: float
    found: float
    most: float

    @property
    def broken(self) -> bool:
        """The attack shows more than is promised; where nothing is promised, more than chance."""
        return self.low > (0.5 if self.epsilon is None else self.most)

    def as_json(self) -> dict[str, Json]:
        """As plain values."""
        return {**asdict(self), "broken": self.broken}


def membership_sentence(found: Sequence[Membership], silo: str) -> Sentence:
    """The strongest attack and the number of broken promises, as a sentence.

    Args:
        found: What was found; none: nothing was attacked.
        silo: Name of the attacked silo.
    """
    if not found:
        return say("Nothing was attacked: what has noise needs public ranges of the columns.")
    most = max(found, key=lambda one: one.auc)
    what = most.mode if most.epsilon is None else f"{most.mode}, ε = {most.epsilon:g}"
    sentence = say("Whether a record is among the rows of ", Named(silo), " an attacker tells with an AUC of ")
    sentence += say(
        Measured(most.auc, "AUC"), " at most, from ", Named(what), " (chance: ", Measured(0.5, "AUC", 1), ")"
    )
    promised = [one for one in found if one.epsilon is not None]
    if not promised:
        return sentence + say(".")
    broken = Share(sum(one.broken for one in promised), len(promised))
    return sentence + say("; of the promises that were attacked, ", broken, " do not hold.")


def attack_records(own: Own, ranges: Ranges | None, settings: RecordAttack) -> list[Membership]:
    """Attack every mode on one silo's rows.

    Args:
        own: The silo's rows.
        ranges: Public ranges of the columns; None: modes with noise are left out.
        settings: What is attacked, and how hard.

    Raises:
        DataError: There are too few rows.
    """
    if own.rows < _FEWEST or own.rarer < 4:
        raise DataError(f"{own.rows} rows, {own.rarer} of the rarer label, are too few; {_FEWEST} and 4 are needed.")
    out = []
    with threadpool_limits(1):
        for mode in MODES:
            if mode not in settings.modes:
                continue
            rng = np.random.default_rng([settings.seed, list(MODES).index(mode)])
            used = np.array([rng.permutation(own.rows) < own.rows // 2 for _ in range(settings.shadows)])
            if mode == "network":
                out.append(_judge(mode, None, _networks(own, used, settings.seed), used, 1.0))
            elif mode == "model":
                out.append(_judge(mode, None, _all(_model(own, settings.penalty), used), used, 1.0))
            elif mode == "statistics-exact":
                out.append(_judge(mode, None, _all(_sums(own), used), used, 1.0))
            elif mode == "study":
                out.append(_judge(mode, None, _all(_study(own, settings.penalty), used), used, 1.0))
            elif mode == "noisy-network" and ranges is not None:
                for epsilon in settings.epsilon:
                    sgd = _private(own, int(used[0].sum()), epsilon, settings.delta)
                    ((_, z),) = sgd.multipliers
                    most = largest_attack(z, sgd.share(own.rows // 2), sgd.steps(own.rows // 2))
                    out.append(_judge(mode, epsilon, _networks(own, used, settings.seed, sgd, ranges), used, most))
            elif ranges is not None:
                for epsilon in settings.epsilon:
                    make = _noisy(mode, own, ranges, epsilon, settings.delta, rng)
                    rho = noise_of(ranges, epsilon, settings.delta).rho
                    most = float(stats.norm.cdf(np.sqrt(rho)))
                    out.append(_judge(mode, epsilon, _all(make, used), used, most))
    return out


def largest_attack(multiplier: float, share: float, steps: int) -> float:
    """The largest AUC of anybody who tells whether a record was there, from the whole privacy loss distribution.

    Each (ε, δ) of it bounds the trade-off of errors from below by 1 − δ − e^ε α; the AUC is 1 less the area under the
    largest of these (Dong, Roth and Su, *Gaussian differential privacy*, 2022).
    """
    epsilon = np.concatenate([np.linspace(-8, 8, 321), np.linspace(8.5, 60, 104)])
    delta = np.asarray(privacy_loss(multiplier, share, steps).get_delta_for_epsilon(epsilon))
    alpha = np.linspace(0, 1, 4001)[1:]  # right ends: the curve falls, so that the area comes out too small
    lower = np.max(1 - delta[:, None] - np.exp(epsilon)[:, None] * alpha, axis=0)
    return float(1 - np.clip(lower, 0, 1).mean())


def _all(release: Release, used: Bool[np.ndarray, "shadows rows"]) -> Float[np.ndarray, "shadows rows"]:
    return np.array([release(one) for one in used])


def _by_label(scores: Float[np.ndarray, " rows"], y: Float[np.ndarray, " rows"]) -> Float[np.ndarray, " rows"]:
    """Log-odds of each record's own label: near to normal, unlike a loss."""
    return np.where(y > 0, scores, -scores)


def _model(own: Own, penalty: float) -> Release:
    def release(used: np.ndarray) -> np.ndarray:
        train = own[used]
        moments = moments_of(train.x)
        return _by_label(design(own.x, moments) @ fit_glm([(design(train.x, moments), train.y)], penalty).beta, own.y)

    return release


def _sums(own: Own) -> Release:
    """Exact sums tell every record: the attacker asks how far the sums are from those without it."""
    moments = moments_of(own.x)
    u = design(own.x, moments)
    features = np.column_stack([u * (own.y - 0.5)[:, None], *(u * u[:, [k]] for k in range(u.shape[1]))])

    def release(used: np.ndarray) -> np.ndarray:
        return _match_records(features, features[used].sum(axis=0))

    return release


def _study(own: Own, penalty: float) -> Release:
    """Answers of all rounds: the attacker asks how far they are from those without the record."""
    u = design(own.x, moments_of(own.x))
    family, i, j = Logistic(), *np.triu_indices(u.shape[1])

    def release(used: np.ndarray) -> np.ndarray:
        rows, features, sent = Rows.of(u[used], own.y[used]), [], []

        def carry(ask: Ask) -> dict[str, np.ndarray]:
            told = answer(family, ask, [rows])
            for theta in ask.numbers.get("theta", ()):
                value, slope, curvature = family.terms(u @ theta, own.y)
                features.append(np.column_stack([value, slope[:, None] * u, curvature[:, None] * u[:, i] * u[:, j]]))
            sent.append(told if ask.numbers else told[:0])  # the moments are sums of the same kind
            return {"": told}

        run(fit(family, [str(k) for k in range(u.shape[1])], penalty=penalty), carry)
        return _match_records(np.hstack(features), np.concatenate(sent))

    return release


def _noisy(mode: str, own: Own, ranges: Ranges, epsilon: float, delta: float, rng: np.random.Generator) -> Release:
    u = ranges.rows(own.x)
    if mode == "noisy-model":
        return lambda used: _by_label(u @ perturb(own.x[used], own.y[used], ranges, epsilon, delta, rng).beta, own.y)
    p = u.shape[1]

    def release(used: np.ndarray) -> np.ndarray:
        sent = release_sums(own.x[used], own.y[used], ranges, epsilon, delta, rng)
        c = sent.sigma_second / sent.sigma_first
        features = np.column_stack([c * u * (own.y - 0.5)[:, None], *(u * u[:, [k]] for k in range(p))])
        return _match_records(features, np.concatenate([c * sent.first, sent.second.ravel()]))

    return release


def _match_records(
    features: Float[np.ndarray, "rows numbers"], total: Float[np.ndarray, " numbers"]
) -> Float[np.ndarray, " rows"]:
    """Share of each record in a sum, beyond what records have in common."""
    centred = features - features.mean(axis=0)
    # Directions in which records vary much hide one record behind the others.
    values, vectors = np.linalg.eigh(centred.T @ centred / len(centred))
    kept = values > 1e-9 * values[-1]
    along = centred @ vectors[:, kept]
    rest = (total - features.mean(axis=0) * len(features) / 2) @ vectors[:, kept]
    return along @ (rest / values[kept])


def _private(own: Own, rows: int, epsilon: float, delta: float) -> Any:
    """DP-SGD of a silo of ``rows`` rows: fifteen rounds of six epochs are one training here."""
    from fedrank.silos.config import RecordPrivacy
    from fedrank.silos.network import TabularNetwork
    from fedrank.silos.records.private_sgd import PrivateSgd

    network = TabularNetwork(own.x.shape[1], _WIDTHS, "layer")
    return PrivateSgd(network, epochs=_EPOCHS, privacy=RecordPrivacy(epsilon=epsilon, delta=delta)).for_rows({rows})


def _networks(
    own: Own, used: Bool[np.ndarray, "shadows rows"], seed: int, sgd: Any = None, ranges: Ranges | None = None
) -> Float[np.ndarray, "shadows rows"]:
    """Networks of a run of silos, each trained by itself for fifteen rounds of six epochs, all at once."""
    from fedrank.silos.data.splits import Rows
    from fedrank.silos.local_sgd import LocalSgd
    from fedrank.silos.network import TabularNetwork

    standard = moments_of(own.x).standardise(own.x) if ranges is None else ranges.scale_rows(own.x)
    x, y = standard.astype(np.float32), own.y.astype(np.float32)
    if sgd is None:
        sgd = LocalSgd(TabularNetwork(x.shape[1], _WIDTHS, "batch", 0.1), epochs=_EPOCHS)
    size = int(used[0].sum())
    chosen = np.array([np.flatnonzero(one) for one in used])
    keys = split(run_words([seed])[0], len(used))
    at_once = _AT_ONCE if sgd.draws_noise else len(used)
    out = []
    for first in range(0, len(used), at_once):
        key, rows = keys[first : first + at_once], chosen[first : first + at_once]
        held = Rows(x[rows], y[rows], np.full(len(rows), size, np.int32))
        draws = sgd.draw(fold_words(key, 1), sgd.rng_shape(size))
        made = sgd.train(sgd.network.initial(fold_words(key, 0)), held, draws)
        out += [_by_label(scores, own.y) for scores in sgd.network.scores(made, x[None]).astype(float)]
    return np.array(out)


def _judge(
    mode: str,
    epsilon: float | None,
    scores: Float[np.ndarray, "shadows rows"],
    used: Bool[np.ndarray, "shadows rows"],
    most: float,
) -> Membership:
    """The likelihood ratio of each record in each shadow, from the other shadows, and how well it tells."""
    each, right = [], []
    for victim in range(len(scores)):
        others = np.arange(len(scores)) != victim
        ratio = np.zeros(scores.shape[1])
        for inside, sign in ((True, 1.0), (False, -1.0)):
            there = used[others] == inside
            count = np.maximum(there.sum(axis=0), 1)
            mean = (scores[others] * there).sum(axis=0) / count
            variance = ((scores[others] - mean) ** 2 * there).sum(axis=0) / count
            spread = np.maximum(np.sqrt(variance), _NARROW * (1 + np.abs(mean)))
            ratio += sign * (-0.5 * ((scores[victim] - mean) / spread) ** 2 - np.log(spread))
        each.append(auc(ratio, used[victim].astype(float)).value)
        bar = np.quantile(ratio[~used[victim]], 1 - _FALSE)
        right.append(float((ratio[used[victim]] > bar).mean()))
    mean = float(np.mean(each))
    half = float(stats.t.ppf(0.995, len(each) - 1) * np.std(each, ddof=1) / len(each) ** 0.5)
    return Membership(mode, epsilon, mean, mean - half, mean + half, float(np.mean(right)), most)
