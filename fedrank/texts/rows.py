"""The rows of silos with texts, as the arrays that training and evaluation take.

There are up to four sets of features: as the silos compute them from each other's sketches; as a silo by itself
computes them, with the statistics of own documents; and two controls that no federation has. Exact features tell
what sketches and noise cost; the true labels of all judged pairs tell what guessing labels costs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float32, Int32, Int64

from fedrank.core.ledger import Ledger
from fedrank.core.protocol import Party
from fedrank.engine.simulator import run_setup
from fedrank.texts.data.features import Statistics, statistics_of
from fedrank.texts.data.silos import Federation
from fedrank.texts.insider import insider_reads
from fedrank.texts.report.files import InsiderReads
from fedrank.texts.silo_sketch.setup import SketchSetup
from fedrank.texts.silo_sketch.setup.exchange_sketches import rows_of_party
from fedrank.texts.silo_sketch.setup.rows import (
    SiloTexts,
    cross_rows,
    exact_foreign,
    moments,
    own_rows,
    scale_of,
    scale_rows,
)
from fedrank.texts.silo_sketch.setup.settings import SetupSettings, SetupState
from fedrank.texts.silo_sketch.state import SETUP_SEED, Size, SketchRows, grown, silo_arrays, size_of

#: Numbers of the feature sets, in order: from the silos' sketches; of a silo by itself; and, if wanted, exact ones, and
#: exact ones with all judged documents of all silos.
SKETCHED, ISOLATED, EXACT, POOLED = 0, 1, 2, 3

#: Missed documents are padded to a multiple of this, so that runs of a sweep share a compiled program.
_WIDTH = 16


class TextRows(NamedTuple):
    """Arrays with the leading axes [feature sets, seeds, silos].

    Attributes:
        rows: What silos train on.
        found: Whether a search by BM25 finds an own document.
        cross_found: Whether it finds a document of another silo.
        bm25: BM25 of body and title together.
        cross_bm25: The same of documents of other silos.
        missed: Grades of relevant documents, anywhere in the federation, that are in no list of the query; 0 on
            padding.
    """

    rows: SketchRows
    found: Bool[np.ndarray, "sets seeds silos queries documents"]
    cross_found: Bool[np.ndarray, "sets seeds silos queries foreign"]
    bm25: Float32[np.ndarray, "sets seeds silos queries documents"]
    cross_bm25: Float32[np.ndarray, "sets seeds silos queries foreign"]
    missed: Int32[np.ndarray, "sets seeds silos queries missed"]


class CountErrors(NamedTuple):
    """Errors of the counts that silos estimate of each other's documents.

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


@dataclass(frozen=True)
class SetupResults:
    """Results of the setups of all seeds.

    Attributes:
        arrays: The rows.
        queries: Ids of the queries of each seed and silo, in order.
        ledger: What crossed, of the first seed.
        errors: Errors of the counts, for each seed.
        insider: What the first silo reads of the second's documents by the attack in the box, of the first seed.
        scales: For each seed and silo, mean and deviation by which features are scaled; empty where each query's list
            is scaled by itself.
    """

    arrays: TextRows
    queries: list[list[list[str]]]
    ledger: Ledger
    errors: list[CountErrors]
    scales: list[list[tuple[np.ndarray, ...]]]
    insider: InsiderReads | None = None


def run_setups(
    setup: SketchSetup,
    seeds: Sequence[int],
    federations: Sequence[Federation],
    texts: Sequence[Sequence[SiloTexts]],
    exact: bool,
    stage: Callable[[str], None],
) -> SetupResults:
    """Run the setup of every seed.

    Args:
        setup: The setup; the same for all seeds.
        seeds: The seeds.
        federations: Who has what, one for each seed.
        texts: Documents and queries of each silo, for each seed.
        exact: Whether the two controls are made, too.
        stage: Called with what is being done.

    Raises:
        FedrankError: A setup failed.
    """
    sets: list[list[list[dict[str, np.ndarray]]]] = [[], [], [], []] if exact else [[], []]
    ledger, errors, scales = Ledger(), [], []
    for seed, federation, silos in zip(seeds, federations, texts, strict=True):
        stage(f"Sketches of seed {seed}")
        rng = np.random.default_rng([seed, SETUP_SEED])
        state, parties, crossed = run_setup(setup, setup.parties(list(silos)), rng)
        ledger = ledger if len(ledger) else crossed
        rows = [rows_of_party(party) for party in parties]
        sets[SKETCHED].append(rows)
        scales.append([tuple(own[name] for name in ("mean", "deviation") if name in own) for own in rows])
        sets[ISOLATED].append([isolated_rows(one, setup, own) for one, own in zip(silos, rows, strict=True)])
        errors.append(count_errors(setup, state, parties, federation))
        if exact:
            sets[EXACT].append(exact_rows(federation, silos, setup))
            sets[POOLED].append(exact_rows(federation, silos, setup, everything=True))
    arrays = _stack(federations, sets)
    queries = [[[one.corpus.query_ids[number] for number in one.used_queries] for one in silos] for silos in texts]
    stage("Attack by another silo")
    return SetupResults(arrays, queries, ledger, errors, scales, insider_reads(setup, federations[0]))


def exact_rows(
    federation: Federation, texts: Sequence[SiloTexts], settings: SetupSettings, everything: bool = False
) -> list[dict[str, np.ndarray]]:
    """Rows of every silo with exact counts and statistics, which also choose the candidates.

    Args:
        federation: Who has what.
        texts: Documents and queries of each silo.
        settings: What was agreed; its ``texts`` say which rows.
        everything: Add all judged documents of the other silos, as for a party that has all data.
    """

    def statistics(words: Sequence[str]) -> Statistics:
        return statistics_of(federation.silos, words)

    foreign = [exact_foreign(silo) for silo in federation.silos]
    rows = []
    for number, one in enumerate(texts):
        others = [None if silo == number else other for silo, other in enumerate(foreign)]
        judged = _judged_abroad(federation, number, one) if everything else None
        rows.append(own_rows(one, statistics, settings) | cross_rows(one, others, statistics, settings, judged))
    if settings.texts.scale != "federation":
        return [scale_rows(own, settings.texts.scale) for own in rows]
    counts, sums, squares = zip(*(moments(own) for own in rows), strict=True)
    scale = scale_of(float(sum(counts)), np.sum(sums, axis=0), np.sum(squares, axis=0), crossed=True)
    return [scale_rows(own, settings.texts.scale, *scale) for own in rows]


def _judged_abroad(federation: Federation, number: int, texts: SiloTexts) -> list[list[Int64[np.ndarray, " judged"]]]:
    """Numbers of the judged documents at each other silo, for each query of silo ``number``."""
    whole = federation.whole
    at, place = np.full(whole.n_documents, -1), np.zeros(whole.n_documents, np.int64)
    for silo, documents in enumerate(federation.documents):
        at[documents], place[documents] = silo, np.arange(len(documents))
    out = []
    for query in texts.used_queries:
        judged = whole.judged_documents[whole.judged_queries == federation.queries[number][query]]
        silos = [silo if silo != number else -2 for silo in range(federation.n_silos)]
        out.append([place[judged[at[judged] == silo]] for silo in silos])
    return out


def isolated_rows(texts: SiloTexts, settings: SetupSettings, federated: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """A silo's rows without a federation: its own documents, with the statistics of these alone.

    Args:
        texts: Documents and queries of the silo.
        settings: What was agreed; rows are scaled by the silo's own even where a federation scales by all silos'.
        federated: The silo's rows in the federation; cross rows have their shape and are empty.
    """

    def statistics(words: Sequence[str]) -> Statistics:
        return statistics_of((texts.corpus,), words)

    nothing = {name: np.zeros_like(array) for name, array in federated.items() if name.startswith("cross_")}
    alone = "silo" if settings.texts.scale == "federation" else settings.texts.scale
    return scale_rows(own_rows(texts, statistics, settings) | nothing, alone)


def count_errors(
    setup: SketchSetup, state: SetupState, parties: Sequence[Party], federation: Federation
) -> CountErrors:
    """Errors of the first silo's counts of the second silo's documents; NaN where there are none."""
    receive = setup.receive
    foreign = receive.foreign_documents(parties[0], receive.address(state, 0))[1]
    words = parties[0].shared.words
    if foreign is None or not words:
        return CountErrors(*[float("nan")] * 4)
    true = exact_foreign(federation.silos[1]).counts(words)
    off = np.abs(foreign.counts(words) - true)
    held = true > 0
    if not held.any():
        return CountErrors(float(off.mean()), float("nan"), float(true.mean()), float("nan"))
    return CountErrors(*(float(a.mean()) for a in (off, off[held], true, true[held])))


def _stack(federations: Sequence[Federation], sets: list[list[list[dict]]]) -> TextRows:
    """All arrays, padded to the same shape and stacked."""
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
    """A silo's padded arrays, with the true labels and missed documents that only a simulation knows."""
    truth, missed = _truth(federation, number, own)
    q, d, c = size
    here = {name: grown(own[name], (q, d), 0) for name in ("found", "bm25")}
    abroad = {name: grown(own[name], (q, c), 0) for name in ("cross_found", "cross_bm25")}
    return {**silo_arrays(own, size, truth), **here, **abroad, "missed": grown(missed, (q, missed.shape[1]), 0)}


def _truth(
    federation: Federation, number: int, own: dict[str, np.ndarray]
) -> tuple[Int32[np.ndarray, "queries foreign"], Int32[np.ndarray, "queries missed"]]:
    """True grades of cross pairs, and of the relevant documents that are in no list."""
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
