"""What one silo gets of others' noisy messages: every way side by side, and who helps, from its own rows alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Float
from threadpoolctl import threadpool_limits

from fedrank.core.trees import Json
from fedrank.silos.records.ranges import Ranges
from fedrank.silos.records.ways import WAYS, ChosenPrivately, Sent, candidates, choose_privately
from fedrank.silos.sceptic.auc import Estimate, auc, difference
from fedrank.silos.sceptic.rows import Own, folds
from fedrank.silos.sceptic.verdicts import FOLDS, Verdict, verdict_of


@dataclass(frozen=True, eq=False)
class PrivateAnswer:
    """What a silo gets to know.

    Attributes:
        rows: Way -> AUC on all own rows by models that have not seen them, and the same minus that of the silo alone.
        nested: AUC of choosing anew in each fold.
        recommended: What is recommended by all rows; the silo's own model where that did no better on them.
        verdicts: Who helps and who harms; the number of a verdict's silo is that of its message.
        chosen: The models of all own rows.
    """

    rows: dict[str, tuple[Estimate, Estimate]]
    nested: Estimate
    recommended: str
    verdicts: tuple[Verdict, ...]
    chosen: ChosenPrivately = field(repr=False)

    @property
    def reached(self) -> Estimate:
        """AUC of what is recommended: the number of its row."""
        return self.rows[self.recommended][0]

    @property
    def gain(self) -> Estimate:
        """The same minus that of the silo alone."""
        return self.rows[self.recommended][1]

    def as_json(self, names: Sequence[str]) -> dict[str, Json]:
        """As it stands in a file; ``names`` are those of the senders."""
        return {
            "recommended": self.recommended,
            "auc": _numbers(self.reached),
            "over_alone": _numbers(self.gain),
            "nested_auc": _numbers(self.nested),
            "ways": {
                way: {"title": WAYS[way], "auc": _numbers(a), "over_alone": _numbers(b)}
                for way, (a, b) in self.rows.items()
            },
            "verdicts": {names[v.silo]: v.as_json() for v in self.verdicts},
        }


def private_answer(own: Own, sent: Sequence[Sent], ranges: Ranges, seed: int = 0) -> PrivateAnswer:
    """Compare every way for one silo.

    Args:
        own: Its rows, of both labels.
        sent: What the others sent.
        ranges: Public ranges of the columns.
        seed: Draws the folds.
    """
    rng = np.random.default_rng([seed, own.rows])
    fold = folds(own, FOLDS, rng)
    scores: dict[str, Float[np.ndarray, " rows"]] = {}
    reached = np.empty(own.rows)
    each = np.empty((len(sent), own.rows))
    with threadpool_limits(1):
        for number in np.unique(fold):
            test = fold == number
            train = own[~test]
            chosen = choose_privately(train, sent, ranges, rng)
            for way, model in chosen.models.items():
                scores.setdefault(way, np.empty(own.rows))[test] = model(own.x[test])
            reached[test] = chosen.models[chosen.best](own.x[test])
            for k, one in enumerate(sent):
                model = candidates(train, [one], ranges, fully=True)["federated", 0.0]
                each[k, test] = model(own.x[test])
        final = choose_privately(own, sent, ranges, rng)
    one, many = own.first, len(sent)  # copies are no further evidence
    y, fold, alone = own.y[one], fold[one], scores["alone"][one]
    verdicts = [verdict_of(k, difference(each[k, one], alone, y, fold), many) for k in range(many)]
    rows = {
        way: (auc(scores[way][one], y, fold), difference(scores[way][one], alone, y, fold))
        for way in WAYS
        if way in scores
    }
    return PrivateAnswer(
        rows=rows,
        nested=auc(reached[one], y, fold),
        recommended=final.best if rows[final.best][1].value > 0 else "alone",
        verdicts=tuple(verdicts),
        chosen=final,
    )


def _numbers(found: Estimate) -> dict[str, Json]:
    low, high = found.interval()
    values = {"value": found.value, "error": found.error, "low": low, "high": high}
    return {name: float(value) if np.isfinite(value) else None for name, value in values.items()}
