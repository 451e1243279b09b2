"""The rows of silos with texts, as arrays that training and evaluation take.

As the silos see them; as a silo by itself has them, with the statistics of its own documents; and as they are, which
nobody in a federation sees: exact features are a control that tells what sketches and noise cost, the labels of cross
pairs one that tells what guessing costs.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from fedrank.core.ledger import Ledger
from fedrank.core.protocol import Party
from fedrank.engine.setup import run_opening
from fedrank.texts.build import TextExperiment
from fedrank.texts.data.features import statistics_of
from fedrank.texts.data.silos import Federation
from fedrank.texts.silo_sketch.arrays import SETUP_SEED, Size, grown, silo_arrays, size_of
from fedrank.texts.silo_sketch.setup import SketchSetup
from fedrank.texts.silo_sketch.setup.exchange_sketches import Receive, foreign_documents, rows_of_party
from fedrank.texts.silo_sketch.setup.rows import (
    RowSettings,
    SiloTexts,
    cross_rows,
    exact_foreign,
    moments,
    own_rows,
    scale_of,
    scaled,
)
from fedrank.texts.silo_sketch.state import SketchRows

#: Missed documents are padded to a multiple of this, so that runs of a sweep share a compiled program.
_WIDTH = 16


class TextRows(NamedTuple):
    """Arrays with the leading axes [feature sets, seeds, silos].

    Attributes:
        rows: What silos train on.
        found: bool [queries, documents]: own documents that a search by BM25 finds.
        cross_found: bool [queries, foreign]: others' documents that it finds.
        bm25: float32 [queries, documents].
        cross_bm25: float32 [queries, foreign].
        missed: int32 [queries, n]: grades of relevant documents, anywhere in the federation, that are in no list of
            the query; 0 on padding.
    """

    rows: SketchRows
    found: np.ndarray
    cross_found: np.ndarray
    bm25: np.ndarray
    cross_bm25: np.ndarray
    missed: np.ndarray


class CountErrors(NamedTuple):
    """How far off the counts are that silos use.

    Attributes:
        all: Mean absolute error over words of queries and documents of others.
        held: The same where the document holds the word.
        true_all: Mean true count over all of them.
        true_held: Mean true count where the document holds the word.
    """

    all: float
    held: float
    true_all: float
    true_held: float


#: Feature sets, in order: as silos see them, as a silo by itself has them; and, if wanted, as they are, and the
#: same with all judged documents of everybody.
SEEN, ISOLATED, EXACT, POOLED = 0, 1, 2, 3


@dataclass(frozen=True)
class Opened:
    """What the openings of all seeds came to.

    Attributes:
        arrays: The rows.
        queries: Of each seed and silo, the ids of its queries, in order.
        ledger: What crossed, of the first seed.
        seen: Of each seed and silo, what an owner of documents knows of its budget: ``spent`` and ``answered``.
        errors: Of each seed, what :func:`count_errors` says.
    """

    arrays: TextRows
    queries: list[list[list[str]]]
    ledger: Ledger
    seen: list[list[dict[str, Any]]]
    errors: list[CountErrors]


def opened(experiment: TextExperiment, exact: bool, stage: Callable[[str], None]) -> Opened:
    """Run the opening of every seed.

    Args:
        experiment: The experiment.
        exact: Whether exact features are made, too: a third feature set.
        stage: Is told what is done.

    Raises:
        FedrankError: What an opening raises.
    """
    sets: list[list[list[dict]]] = [[], [], [], []] if exact else [[], []]
    ledger, seen, errors = Ledger(), [], []
    for seed, federation, texts in zip(
        experiment.config.all_seeds, experiment.federations, experiment.texts, strict=True
    ):
        stage(f"Sketches of seed {seed}")
        rng = np.random.default_rng([seed, SETUP_SEED])
        state, parties, crossed = run_opening(experiment.opening, experiment.opening.parties(list(texts)), rng)
        ledger = ledger if len(ledger) else crossed
        own = [rows_of_party(party) for party in parties]
        sets[SEEN].append(own)
        sets[ISOLATED].append(
            [isolated_rows(one, experiment.opening.rows, rows) for one, rows in zip(texts, own, strict=True)]
        )
        seen.append([{k: party.own[k] for k in ("spent", "answered") if k in party.own} for party in parties])
        errors.append(count_errors(experiment.opening, state, parties, federation))
        if exact:
            sets[EXACT].append(exact_rows(federation, texts, experiment.opening.rows))
            sets[POOLED].append(exact_rows(federation, texts, experiment.opening.rows, everything=True))
    arrays = _stacked(experiment.federations, sets)
    queries = [[[one.corpus.query_ids[number] for number in one.used] for one in texts] for texts in experiment.texts]
    return Opened(arrays, queries, ledger, seen, errors)


def exact_rows(
    federation: Federation, texts: Sequence[SiloTexts], settings: RowSettings, everything: bool = False
) -> list[dict[str, np.ndarray]]:
    """Every silo's rows with exact counts and statistics, its candidates from them too.

    Args:
        federation: Who has what.
        texts: Each silo's.
        settings: Which rows.
        everything: With all judged documents of the others, as somebody has them who has everybody's data.
    """

    def look(words: Sequence[str]) -> Any:
        return statistics_of(federation.silos, words)

    foreign = [exact_foreign(silo) for silo in federation.silos]
    rows = []
    for number, one in enumerate(texts):
        others = [None if silo == number else other for silo, other in enumerate(foreign)]
        judged = _judged_abroad(federation, number, one) if everything else None
        rows.append(own_rows(one, look, settings) | cross_rows(one, others, look, settings, judged))
    if settings.scale != "federation":
        return [scaled(own, settings) for own in rows]
    counts, sums, squares = zip(*(moments(own) for own in rows), strict=True)
    scale = scale_of(float(sum(counts)), np.sum(sums, axis=0), np.sum(squares, axis=0), crossed=True)
    return [scaled(own, settings, *scale) for own in rows]


def _judged_abroad(federation: Federation, number: int, texts: SiloTexts) -> list[list[np.ndarray]]:
    """Of each of a silo's queries, and of each silo, the numbers of the documents that were judged for it there."""
    whole = federation.whole
    at, place = np.full(whole.n_documents, -1), np.zeros(whole.n_documents, np.int64)
    for silo, documents in enumerate(federation.documents):
        at[documents], place[documents] = silo, np.arange(len(documents))
    out = []
    for query in texts.used:
        judged = whole.judged_documents[whole.judged_queries == federation.queries[number][query]]
        silos = [silo if silo != number else -2 for silo in range(federation.n_silos)]
        out.append([place[judged[at[judged] == silo]] for silo in silos])
    return out


def isolated_rows(texts: SiloTexts, settings: RowSettings, seen: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """A silo's rows without a federation: its own documents, with its own statistics, and nobody else's.

    Args:
        texts: The silo's.
        settings: Which rows; scaled by its own even where a federation scales by all silos'.
        seen: The silo's rows in the federation, for the size of what there is none of.
    """

    def look(words: Sequence[str]) -> Any:
        return statistics_of((texts.corpus,), words)

    nothing = {name: np.zeros_like(array) for name, array in seen.items() if name.startswith("cross_")}
    alone = dataclasses.replace(settings, scale="silo" if settings.scale == "federation" else settings.scale)
    return scaled(own_rows(texts, look, settings) | nothing, alone)


def count_errors(opening: SketchSetup, state: Any, parties: Sequence[Party], federation: Federation) -> CountErrors:
    """How far off the counts are that the first silo uses of the second's documents; NaN where there are none."""
    request = Receive(opening).address(state, 0)
    seen = foreign_documents(opening, parties[0], request)[1]
    words = parties[0].shared.words
    if seen is None or not words:
        return CountErrors(*[float("nan")] * 4)
    true = exact_foreign(federation.silos[1]).counts(words)
    off = np.abs(seen.counts(words) - true)
    held = true > 0
    if not held.any():
        return CountErrors(float(off.mean()), float("nan"), float(true.mean()), float("nan"))
    return CountErrors(*(float(a.mean()) for a in (off, off[held], true, true[held])))


def _stacked(federations: Sequence[Federation], sets: list[list[list[dict]]]) -> TextRows:
    """All arrays at one size."""
    every = [own for seeds in sets for silos in seeds for own in silos]
    sizes = [size_of(own) for own in every]
    size = Size(*(max(one[axis] for one in sizes) for axis in range(len(Size._fields))))
    made = [
        [
            [_one(federation, number, own, size) for number, own in enumerate(silos)]
            for federation, silos in zip(federations, seeds, strict=True)
        ]
        for seeds in sets
    ]
    flat = [one for seeds in made for silos in seeds for one in silos]
    lengths = {name: max(len(one[name]) for one in flat) for name in ("rows", "cross_rows", "queries")}
    widest = -(-max(one["missed"].shape[1] for one in flat) // _WIDTH) * _WIDTH

    def whole(name: str) -> np.ndarray:
        def grown(array: np.ndarray) -> np.ndarray:
            if name in lengths:
                return np.pad(array, (0, max(1, lengths[name]) - len(array)))
            if name == "missed":
                return np.pad(array, ((0, 0), (0, max(1, widest) - array.shape[1])))
            return array

        return np.stack([np.stack([np.stack([grown(one[name]) for one in b]) for b in a]) for a in made])

    rows = SketchRows(**{name: whole(name) for name in SketchRows._fields})
    return TextRows(rows, *(whole(name) for name in TextRows._fields[1:]))


def _one(federation: Federation, number: int, own: dict[str, np.ndarray], size: Size) -> dict[str, Any]:
    """A silo's arrays at full size, with what only the whole knows."""
    truth, missed = _truth(federation, number, own)
    q, d, c = size
    here = {name: grown(own[name], (q, d), 0) for name in ("found", "bm25")}
    abroad = {name: grown(own[name], (q, c), 0) for name in ("cross_found", "cross_bm25")}
    return {**silo_arrays(own, size, truth), **here, **abroad, "missed": grown(missed, (q, missed.shape[1]), 0)}


def _truth(federation: Federation, number: int, own: dict[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Grades of cross pairs, int32 [q, c], and of relevant documents in no list, int32 [q, n]."""
    whole = federation.whole
    truth = np.zeros(own["cross_where"].shape, np.int32)
    left: list[np.ndarray] = []
    for row, query in enumerate(own["queries"].tolist()):
        labels = whole.labels(int(federation.queries[number][query]))
        rest = labels.copy()
        rest[federation.documents[number][own["documents"][row][own["where"][row]]]] = 0
        for place in np.flatnonzero(own["cross_where"][row]):
            silo, document = own["cross_silo"][row, place], own["cross_document"][row, place]
            name = federation.documents[silo][document]
            truth[row, place], rest[name] = labels[name], 0
        left.append(rest[rest > 0])
    missed = np.zeros((len(left), max((len(one) for one in left), default=0)), np.int32)
    for row, one in enumerate(left):
        missed[row, : len(one)] = one
    return truth, missed
