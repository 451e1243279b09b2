"""How a silo sees others' documents: published sketches, or questions and answers; and the rows that it makes of them.

Algorithms 1 and 2 of CS-F-LTR (Shi et al. 2021), and a mode in which sketches are handed out once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fedrank.core.errors import ConfigError
from fedrank.core.messages import Layout
from fedrank.core.protocol import Party
from fedrank.privacy.randomised_response import os_words
from fedrank.texts.data.features import NAMES
from fedrank.texts.silo_sketch import setup_messages as wire
from fedrank.texts.silo_sketch.rows import Foreign, cross_rows, moments, own_rows, scale_of, scaled
from fedrank.texts.silo_sketch.setup import HostExchange, OpeningState, SketchOpening, kept, without
from fedrank.texts.silo_sketch.statistics import FederatedStatistics
from fedrank.texts.sketch import Cells, Hashes, counts_of, encode, estimate, hash_terms
from fedrank.texts.sketch.decoys import Obfuscator
from fedrank.texts.sketch.posterior import own_cells, posterior_counts
from fedrank.texts.sketch.query_budget import QueryBudget
from fedrank.texts.sketch.reverse_top_k import build

#: Documents in a cell's list as a multiple of those wanted, and the share of rows in which one must stand (ICDE 2021).
_ALPHA, _BETA = 5, 0.1
_INT16, _INT32 = np.iinfo(np.int16), np.iinfo(np.int32)


class _Totals(HostExchange):
    """An exchange that begins with the summed statistics."""

    @property
    def request(self) -> Layout[wire.Totals]:
        """The sum."""
        return wire.totals_layout(self.settings.terms.length)

    def address(self, state: OpeningState, party: int) -> wire.Totals:
        """The same to all."""
        return wire.Totals(state.totals)

    def noisy_sizes(self, party: Party, draws: Any) -> tuple[np.ndarray, np.ndarray]:
        """Lengths and numbers of different words with their noise, padded: int32 [fields, documents] each."""
        s, corpus = self.settings, party.shared.corpus
        sizes = s.noise.sizes(np.stack([corpus.lengths.T, corpus.distinct.T], axis=-1), draws)
        out = np.zeros((2, s.fields, s.documents), np.int32)
        out[:, :, : corpus.n_documents] = np.clip(np.moveaxis(sizes, -1, 0), 0, _INT32.max)
        return out[0], out[1]

    def sketches(self, party: Party) -> list[np.ndarray]:
        """The silo's own sketches, without noise: a field's are int32 [documents, z, w]."""
        s, corpus = self.settings, party.shared.corpus
        hashes = hash_terms(corpus.vocabulary, s.shape, party.own["secret"].tobytes())
        return [encode(counts, hashes, s.shape) for counts in corpus.counts]


class Publish(_Totals):
    """Every silo hands out a sketch of each field of each document, with noise, once and for all."""

    name = "publish"

    @property
    def reply(self) -> Layout[wire.Published]:
        """Sketches and sizes."""
        s = self.settings
        return wire.published_layout(s.fields, s.documents, s.shape.cells, s.wide)

    def respond(self, request: wire.Totals, party: Party, draws: Any) -> tuple[Party, wire.Published]:
        """Encode, add noise."""
        s, documents = self.settings, party.shared.corpus.n_documents
        cells = np.zeros((s.fields, s.documents, s.shape.cells), np.int32)
        bounds = _INT32 if s.wide else _INT16
        for field, sketches in enumerate(self.sketches(party)):
            noisy = s.noise.publish(sketches, draws).reshape(documents, -1)
            cells[field, :documents] = np.clip(noisy, bounds.min, bounds.max)
        lengths, distinct = self.noisy_sizes(party, draws)
        party = kept(party, totals=np.asarray(request.totals, np.int32))
        return party, wire.Published(np.uint32(documents), cells, lengths, distinct)


class Ask(_Totals):
    """Every silo sends its query words, hashed among decoys (Algorithm 1), and the sizes of its documents."""

    name = "ask"

    @property
    def reply(self) -> Layout[wire.Asked]:
        """Hashes and sizes."""
        s = self.settings
        return wire.asked_layout(s.fields, s.words, s.shape.z, s.documents)

    def respond(self, request: wire.Totals, party: Party, draws: Any) -> tuple[Party, wire.Asked]:
        """Hash. The secret of the decoys is drawn once and kept: the same word is asked about in the same way."""
        s, words = self.settings, party.shared.words
        party = kept(party, totals=np.asarray(request.totals, np.int32))
        if "decoys" not in party.own:
            decoys = os_words((8,)).astype("<u4").tobytes() if draws is None else draws.bytes(32)
            party = kept(party, decoys=np.frombuffer(decoys, np.uint8))
        obfuscator = _obfuscator(s, party)
        rows = np.zeros((s.words, s.shape.z), np.int32)
        rows[: len(words)] = np.reshape([obfuscator.ask(word).rows for word in words], (-1, s.shape.z))
        lengths, distinct = self.noisy_sizes(party, draws)
        documents = np.uint32(party.shared.corpus.n_documents)
        return party, wire.Asked(np.uint32(len(words)), rows, documents, lengths, distinct)


class Answer(HostExchange):
    """Every silo answers the others' questions about each of its documents, with noise, until its budget is spent."""

    name = "answer"

    @property
    def request(self) -> Layout[wire.Questions]:
        """The others' hashes."""
        s = self.settings
        return wire.questions_layout(s.silos, s.words, s.shape.z)

    @property
    def reply(self) -> Layout[wire.Cells]:
        """Cells."""
        s = self.settings
        return wire.cells_layout(s.silos, s.fields, s.words, s.documents, s.shape.z)

    def address(self, state: OpeningState, party: int) -> wire.Questions:
        """What the others asked."""
        replies, arrived = state.kept["ask"]
        others = arrived & (np.arange(state.silos) != party)
        words = np.where(others, np.asarray(replies.words), 0).astype(np.uint32)
        return wire.Questions(words, np.where(others[:, None, None], np.asarray(replies.rows), 0))

    def respond(self, request: wire.Questions, party: Party, draws: Any) -> tuple[Party, wire.Cells]:
        """Look up, add noise; what would go beyond the budget is refused."""
        s, documents = self.settings, party.shared.corpus.n_documents
        stored = [Cells(sketches) for sketches in Publish(s).sketches(party)]
        shape = (s.silos, s.fields, s.words, s.documents, s.shape.z)
        out, answered = np.zeros(shape, np.float32), np.zeros(s.silos, np.uint32)
        budget = self._budget(documents)
        words = np.minimum(np.asarray(request.words, np.int64), s.words)
        for word in range(int(words.max(initial=0))):  # a word of each silo in turn: nobody takes all of the budget
            for silo in np.flatnonzero((words > word) & (answered == word)).tolist():
                rows = np.asarray(request.rows)[silo, word].astype(np.int64)
                raw = np.concatenate([cells.look_up(rows[None])[0] for cells in stored])
                answer = self._answer(budget, silo, rows, raw, draws)
                if answer is not None:
                    out[silo, :, word, :documents] = answer.reshape(s.fields, documents, -1)
                    answered[silo] += 1
        spent = np.zeros(1) if budget is None else np.atleast_1d(budget.spent().max(initial=0.0))
        return kept(party, spent=spent, answered=answered), wire.Cells(answered, out)

    def _budget(self, documents: int) -> QueryBudget | None:
        noise = self.settings.noise
        if noise.mode != "per-query" or noise.epsilon is None or not np.isfinite(self.settings.limit):
            return None
        sketches = documents * self.settings.fields
        budget = QueryBudget(
            noise.epsilon, self.settings.limit, sketches, self.settings.silos, noise.mechanism, noise.delta
        )
        budget.answers += 1  # what sizes and statistics cost
        return budget

    def _answer(self, budget: QueryBudget | None, silo: int, rows: Any, raw: np.ndarray, draws: Any) -> Any:
        """Noisy cells [fields · documents, z]; None where the budget is spent."""

        def noisy(which: np.ndarray) -> np.ndarray:
            return self.settings.noise.answer(raw[which][None], draws)[0]

        every = np.arange(len(raw))
        if budget is None:
            return noisy(every)
        try:
            return budget.ask(silo, rows, every, noisy)
        except ConfigError:
            return None


class Receive(HostExchange):
    """Every silo gets what the others show, looks its query words up, and makes its rows."""

    name = "receive"

    @property
    def request(self) -> Layout[Any]:
        """Sketches, or answers."""
        s = self.settings
        if s.asks:
            return wire.answers_layout(s.silos, s.fields, s.words, s.documents, s.shape.z)
        return wire.sketches_layout(s.silos, s.fields, s.documents, s.shape.cells, s.wide)

    @property
    def reply(self) -> Layout[Any]:
        """Moments, where features are scaled by all silos'; else counts."""
        if self.settings.rows.scale == "federation":
            return wire.moments_layout(len(NAMES))
        return wire.prepared_layout()

    def address(self, state: OpeningState, party: int) -> Any:
        """What the others show this silo."""
        others = np.arange(state.silos) != party
        if not self.settings.asks:
            replies, arrived = state.kept["publish"]
            there = others & arrived
            sizes = (_only(there, array) for array in (replies.lengths, replies.distinct))
            return wire.Sketches(_only(there, replies.documents), _only(there, replies.cells), *sizes)
        asked, heard = state.kept["ask"]
        replies, arrived = state.kept["answer"]
        there = others & arrived & heard
        sizes = (_only(there, array) for array in (asked.lengths, asked.distinct))
        answered = _only(there, np.asarray(replies.answered)[:, party])
        cells = _only(there, np.asarray(replies.cells)[:, party])
        return wire.Answers(_only(there, asked.documents), answered, cells, *sizes)

    def respond(self, request: Any, party: Party, draws: Any) -> tuple[Party, Any]:
        """Look up and make rows."""
        s = self.settings
        statistics = statistics_seen(s, party)
        seen = seen_by(s, party, request)
        rows = own_rows(party.shared, statistics, s.rows) | cross_rows(party.shared, seen, statistics, s.rows)
        if s.rows.scale != "federation":
            return _prepared(party, scaled(rows, s.rows))
        count, sums, squares = moments(rows)
        party = kept(party, **{f"rows.{name}": array for name, array in rows.items()})
        return party, wire.Moments(np.uint32(count), sums.astype(np.float32), squares.astype(np.float32))


class SetScale(HostExchange):
    """Every silo centres and scales its features by the moments of all silos."""

    name = "scale"

    @property
    def request(self) -> Layout[wire.Scale]:
        """Two numbers a feature."""
        return wire.scale_layout(len(NAMES))

    @property
    def reply(self) -> Layout[wire.Prepared]:
        """Counts."""
        return wire.prepared_layout()

    def address(self, state: OpeningState, party: int) -> wire.Scale:
        """The same to all."""
        replies, arrived = state.kept["receive"]
        heard = np.asarray(arrived, bool)
        count = float(np.asarray(replies.rows)[heard].sum())
        sums, squares = (np.asarray(a)[heard].astype(np.float64).sum(axis=0) for a in (replies.sums, replies.squares))
        means, deviations = scale_of(count, sums, squares, crossed=True)
        return wire.Scale(means.astype(np.float32), deviations.astype(np.float32))

    def respond(self, request: wire.Scale, party: Party, draws: Any) -> tuple[Party, wire.Prepared]:
        """Scale."""
        rows = rows_of_party(party)
        names = tuple(f"rows.{name}" for name in rows)
        rows = scaled(rows, self.settings.rows, np.asarray(request.means), np.asarray(request.deviations))
        return _prepared(without(party, *names), rows)


def statistics_seen(s: SketchOpening, party: Party) -> FederatedStatistics:
    """The federation's statistics as a silo reads them from the sum.

    Args:
        s: What was agreed.
        party: The silo, after it was told the sum.
    """
    totals, secret = np.asarray(party.own["totals"]), party.own["secret"].tobytes()
    if not s.shrinks:
        return FederatedStatistics(totals, s.statistics, secret)
    return FederatedStatistics(totals, s.statistics, secret, party.shared.corpus, s.statistics_deviation)


def seen_by(s: SketchOpening, party: Party, request: Any) -> list[Foreign | None]:
    """What a silo sees of the others' documents, by their numbers; None for itself and for who was not heard.

    Args:
        s: What was agreed.
        party: The silo.
        request: What :class:`Receive` asked it with.
    """
    return (_answered if s.asks else _published)(s, party, request)


def rows_of_party(party: Party) -> dict[str, np.ndarray]:
    """The rows that a silo has made, by name; empty before it has."""
    return {name.removeprefix("rows."): a for name, a in party.own.items() if name.startswith("rows.")}


def _prepared(party: Party, rows: dict[str, np.ndarray]) -> tuple[Party, wire.Prepared]:
    own = np.uint32((rows["where"] & (rows["part"] == 0)[:, None]).sum())
    pairs = np.uint32((rows["cross_where"] & (rows["part"] == 0)[:, None]).sum())
    return kept(party, **{f"rows.{name}": array for name, array in rows.items()}), wire.Prepared(own, pairs)


def _obfuscator(s: SketchOpening, party: Party) -> Obfuscator:
    """The silo's questions. Decoys are other words of its own queries.

    Words of its documents would not do: whoever reads a decoy off would know that a document holds it, which no noise
    covers. So nothing here depends on the documents.
    """
    terms = party.shared.words
    hashes = hash_terms(terms, s.shape, party.own["secret"].tobytes())
    return Obfuscator(s.shape, s.z1, terms, hashes, party.own["decoys"].tobytes(), s.decoys)


def _only(there: np.ndarray, array: Any) -> np.ndarray:
    """The rows of silos that are there; zeros for the others."""
    array = np.asarray(array)
    return np.where(there.reshape(-1, *(1,) * (array.ndim - 1)), array, np.zeros((), array.dtype))


def _sizes_of(request: Any, silo: int, documents: int) -> tuple[np.ndarray, np.ndarray]:
    lengths, distinct = (
        np.asarray(a)[silo, :, :documents].T.astype(float) for a in (request.lengths, request.distinct)
    )
    return lengths, distinct


def _published(s: SketchOpening, party: Party, request: wire.Sketches) -> list[Foreign | None]:
    """Others' documents through their sketches. What is looked up in them, nobody sees."""
    secret = party.own["secret"].tobytes()
    words = party.shared.words
    place = {word: number for number, word in enumerate(words)}
    hashes = hash_terms(words, s.shape, secret)

    def seen(silo: int, documents: int) -> Foreign:
        lengths, distinct = _sizes_of(request, silo, documents)
        shape = (documents, s.shape.z, s.shape.w)
        fields = [field[:documents].reshape(shape) for field in np.asarray(request.cells)[silo]]
        if s.shrinks:
            own = np.stack([own_cells(field, hashes, s.shape.w) for field in fields])
            table = _posterior(s, party, own, hashes.signs, lengths)
        else:
            table = np.stack([counts_of(Cells(field), hashes, s.shape) for field in fields], axis=-1)
        likely = _lists(s, fields, hashes, place) if s.rows.candidates == "reverse-top-k" else None
        return Foreign(_in_table(place, table), lengths, distinct, likely)

    return [seen(silo, n) if n else None for silo, n in enumerate(np.asarray(request.documents).tolist())]


def _lists(
    s: SketchOpening, fields: list[np.ndarray], hashes: Hashes, place: dict[str, int]
) -> Callable[[Sequence[str], np.ndarray], np.ndarray]:
    """Reverse top-K lists of published sketches: the documents that hold a query's words most, field by field."""
    k = s.rows.foreign
    lists = [
        build(field, _ALPHA, k, kind=s.shape.kind, ends="both" if s.shape.kind == "count" else "top")
        for field in fields
    ]

    def likely(words: Sequence[str], idf: np.ndarray) -> np.ndarray:
        mine = hashes.select(np.array([place[word] for word in words], np.int64))
        found = [one.top_documents(mine, idf[:, field], _BETA, _ALPHA * k) for field, one in enumerate(lists)]
        return np.unique(np.concatenate(found))

    return likely


def _answered(s: SketchOpening, party: Party, request: wire.Answers) -> list[Foreign | None]:
    """Others' documents through their answers. A word that was refused counts as absent."""
    words = party.shared.words
    place = {word: number for number, word in enumerate(words)}
    obfuscator = _obfuscator(s, party)
    questions = [obfuscator.ask(word) for word in words]
    own = np.reshape([question.own for question in questions], (1, -1, 1, s.z1))
    signs = np.reshape([question.signs for question in questions], (1, -1, 1, s.z1))

    def seen(silo: int, documents: int) -> Foreign:
        answered = int(np.asarray(request.answered)[silo])
        cells = np.asarray(request.cells)[silo, :, :answered, :documents]
        mine = np.take_along_axis(cells, own[:, :answered], axis=-1)
        lengths, distinct = _sizes_of(request, silo, documents)
        table = np.zeros((len(words), documents, s.fields), np.float32)
        if s.shrinks:
            table[:answered] = _posterior(s, party, mine, signs[0, :answered, 0], lengths)
        else:
            estimates = estimate(mine, signs[:, :answered], s.shape.kind)
            table[:answered] = np.moveaxis(np.maximum(estimates, 0.0), 0, -1)
        return Foreign(_in_table(place, table), lengths, distinct)

    return [seen(silo, n) if n else None for silo, n in enumerate(np.asarray(request.documents).tolist())]


def _posterior(s: SketchOpening, party: Party, cells: np.ndarray, signs: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Counts [terms, documents, fields] of noisy cells [fields, terms, documents, z], given the statistics."""
    words, scale = party.shared.words[: cells.shape[1]], s.noise.scale()
    statistics = statistics_seen(s, party)(words)
    assert scale is not None
    frequency = np.maximum(statistics.document_frequency, 1.0)
    share, mean = frequency / max(statistics.documents, 1.0), statistics.collection / frequency
    parts = [
        posterior_counts(cells[f], signs, share[:, f], mean[:, f], lengths[:, f], s.noise.mechanism, scale)
        for f in range(len(cells))
    ]
    return np.stack(parts, axis=-1)


def _in_table(place: dict[str, int], table: np.ndarray) -> Callable[[Sequence[str]], np.ndarray]:
    return lambda words: table[[place[word] for word in words]]
