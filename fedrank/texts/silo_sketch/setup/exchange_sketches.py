"""Exchange of published sketches, and the rows that a silo makes of them.

Sketches are handed out once, and cross sealed for the silos (:mod:`fedrank.texts.sketch.key`).

Counts are posterior means from noisy cells, with the federation's statistics as prior. A median of noisy cells treats
every value as equally likely. But the federation's statistics tell how many documents hold a word, and how often it
stands in them; so the mean of the posterior is taken instead::

    P(c = 0) = 1 − p,   P(c) = p (1 − r) r^(c − 1) for c ≥ 1        a word's prior in a document of mean length
    P(x | c) ∝ Π over rows a of f(g_a x_a − c)                      f the noise's density; collisions are left out
    ĉ = Σ c P(c | x)

p is the share of documents that hold the word, times the document's length over the mean length; r comes from the mean
count where it stands. This is post-processing of what was published, so that it costs no privacy. The estimates are
shrunk: near 0 where the noise is large, instead of far off.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import numpy as np
from jaxtyping import Bool, Float, Float32, Float64, Int32, Integer, Real, Shaped, UInt8
from typing_extensions import override

from fedrank.core import registry
from fedrank.core.arrays import PyTree
from fedrank.core.errors import ConfigError
from fedrank.core.kernels import check_shapes
from fedrank.core.messages import Layout
from fedrank.core.protocol import Party
from fedrank.texts.silo_sketch.setup import settings as wire
from fedrank.texts.silo_sketch.setup.rows import ForeignDocuments, cross_rows, moments, own_rows, scale_of, scale_rows
from fedrank.texts.silo_sketch.setup.settings import (
    FederatedStatistics,
    HostExchange,
    SetupSettings,
    SetupState,
    with_fields,
    without_fields,
)
from fedrank.texts.silo_sketch.state import TRAIN
from fedrank.texts.sketch import cells_at, counts_of, encode, hash_terms
from fedrank.texts.sketch.key import ALL_SILOS, NONCE, seal, unseal
from fedrank.texts.sketch.noise import Source

#: Largest count that is considered.
LARGEST = 24
#: A prior's share of documents is kept in this range: noisy statistics can be anything.
_SHARE = (1e-4, 0.9)
#: Likewise the mean count of a word where it stands.
_MEAN = (1.05, 8.0)


def posterior_counts(
    cells: Real[np.ndarray, "terms documents z"],
    signs: Integer[np.ndarray, "terms z"],
    share: Float[np.ndarray, " terms"],
    mean: Float[np.ndarray, " terms"],
    lengths: Real[np.ndarray, " documents"],
    mechanism: str,
    scale: float,
) -> Float32[np.ndarray, "terms documents"]:
    """The posterior mean of every count.

    Args:
        cells: Noisy cells at the terms' own positions.
        signs: +1 or −1.
        share: Share of documents that hold a term.
        mean: Mean count of a term in these.
        lengths: Words of each document; zero or less counts as one.
        mechanism: ``"laplace"`` or ``"gaussian"``.
        scale: Scale of the noise in a cell, or σ.

    Returns:
        Counts from 0 on. Where the cells' mean is beyond :data:`LARGEST`, it is that mean: the prior has nothing to add
        there.

    Raises:
        ConfigError: The scale is not positive.
    """
    if not scale > 0:
        raise ConfigError(
            f"a posterior needs noise of a positive scale, got {scale}; take the median where there is none."
        )
    terms, documents, z = cells.shape
    check_shapes(
        signs=(signs, (terms, z)), share=(share, (terms,)), mean=(mean, (terms,)), lengths=(lengths, (documents,))
    )
    lengths = np.maximum(np.asarray(lengths, np.float64), 1.0)
    share, mean = np.clip(share, *_SHARE), np.clip(mean, *_MEAN)
    return _kernel()(
        np.ascontiguousarray(cells, np.float32),
        np.ascontiguousarray(signs, np.float32),
        np.asarray(share, np.float64),
        1.0 - 1.0 / np.asarray(mean, np.float64),
        lengths / lengths.mean() if len(lengths) else lengths,
        mechanism == "laplace",
        float(scale),
    )


@functools.cache
def _kernel() -> Callable[..., np.ndarray]:
    """The loop over terms and documents, compiled when it is first needed."""
    from fedrank.core.compiled import njit, prange  # loads Numba

    low, high = _SHARE

    @njit(parallel=True, cache=True)
    def posterior(cells, signs, share, ratio, relative, laplace, scale):
        terms, documents, z = cells.shape
        out = np.empty((terms, documents), np.float32)
        for term in prange(terms):
            logs = np.empty(LARGEST + 1)
            step, first = math.log(ratio[term]), math.log1p(-ratio[term])
            for document in range(documents):
                plain = 0.0
                for row in range(z):
                    plain += cells[term, document, row] * signs[term, row] / z
                if plain > LARGEST:
                    out[term, document] = plain
                    continue
                present = min(max(share[term] * relative[document], low), high)
                before = math.log(present) + first
                best = -math.inf
                for count in range(LARGEST + 1):
                    value = math.log1p(-present) if count == 0 else before + (count - 1) * step
                    for row in range(z):
                        off = cells[term, document, row] * signs[term, row] - count
                        value -= abs(off) / scale if laplace else off * off / (2 * scale * scale)
                    logs[count] = value
                    best = max(best, value)
                total, weighted = 0.0, 0.0
                for count in range(LARGEST + 1):
                    weight = math.exp(logs[count] - best)
                    total += weight
                    weighted += weight * count
                out[term, document] = weighted / total
        return out

    return posterior


M = TypeVar("M")

#: Prefix of the names under which a silo keeps its rows.
_ROWS = "rows."
_INT16, _INT32 = np.iinfo(np.int16), np.iinfo(np.int32)


class WithTotals(HostExchange, request=wire.Totals):
    """An exchange whose request carries the summed statistics."""

    @override
    def address(self, state: SetupState, party: int) -> wire.Totals:
        return wire.Totals(state.totals)

    def noisy_sizes(
        self, party: Party, rng: Source
    ) -> tuple[Int32[np.ndarray, "fields documents"], Int32[np.ndarray, "fields documents"]]:
        """Lengths and numbers of different words with their noise, padded to the agreed number of documents."""
        s, corpus = self.settings, party.shared.corpus
        sizes = s.noise.sizes(np.stack([corpus.lengths.T, corpus.distinct.T], axis=-1), rng)
        out = np.zeros((2, s.fields, s.documents), np.int32)
        out[:, :, : corpus.n_documents] = np.clip(np.moveaxis(sizes, -1, 0), 0, _INT32.max)
        return out[0], out[1]


class Publish(WithTotals, reply=wire.Published):
    """Every silo hands out a noisy sketch of each field of each document, once."""

    name = "publish"

    @override
    def respond(self, request: wire.Totals, party: Party, draws: Source) -> tuple[Party, wire.Published]:
        s, documents = self.settings, party.shared.corpus.n_documents
        cells = np.zeros((s.fields, s.documents, s.shape.cells), np.int32)
        bounds = _INT32 if s.wide else _INT16
        for field, sketches in enumerate(own_sketches(s, party)):
            noisy = s.noise.publish(sketches, draws).reshape(documents, -1)
            cells[field, :documents] = np.clip(noisy, bounds.min, bounds.max)
        lengths, distinct = self.noisy_sizes(party, draws)
        party = with_fields(party, totals=np.asarray(request.totals, np.int32))
        own = wire.OwnSketches(np.uint32(documents), cells, lengths, distinct)
        return party, wire.Published(seal_for(s, party, own, ALL_SILOS))


class Receive(HostExchange, request=wire.Sketches):
    """Every silo gets what the others show, looks its query words up, and makes its rows."""

    name = "receive"

    @property
    @override
    def reply(self) -> Layout[Any]:
        return self.layout(wire.Moments if self.settings.texts.scale == "federation" else wire.Prepared)

    @override
    def address(self, state: SetupState, party: int) -> Any:
        replies, arrived = state.replies["publish"]
        return wire.Sketches(only(arrived & (np.arange(state.silos) != party), replies.sealed))

    @override
    def respond(self, request: PyTree, party: Party, draws: Source) -> tuple[Party, wire.Moments | wire.Prepared]:
        s = self.settings
        statistics = federated_statistics(s, party)
        others = self.foreign_documents(party, request)
        rows = own_rows(party.shared, statistics, s) | cross_rows(party.shared, others, statistics, s)
        if s.texts.scale != "federation":
            return _prepare(party, scale_rows(rows, s.texts.scale))
        count, sums, squares = moments(rows)
        party = with_fields(party, **{_ROWS + name: array for name, array in rows.items()})
        return party, wire.Moments(np.uint32(count), sums.astype(np.float32), squares.astype(np.float32))

    def foreign_documents(self, party: Party, request: Any) -> list[ForeignDocuments | None]:
        """A silo's view of the others' documents, by silo number; None for itself and for silos that were not heard.

        Args:
            party: The silo.
            request: The request of this exchange.

        Raises:
            SecureSumError: Something was changed on its way.
        """
        return _from_sketches(self.settings, party, request)


class SetScale(HostExchange, request=wire.Scale, reply=wire.Prepared):
    """Every silo centres and scales its features by the moments of all silos."""

    name = "scale"

    @override
    def address(self, state: SetupState, party: int) -> wire.Scale:
        replies, arrived = state.replies["receive"]
        heard = np.asarray(arrived, bool)
        count = float(np.asarray(replies.rows)[heard].sum())
        sums, squares = (np.asarray(a)[heard].astype(np.float64).sum(axis=0) for a in (replies.sums, replies.squares))
        means, deviations = scale_of(count, sums, squares, crossed=True)
        return wire.Scale(means.astype(np.float32), deviations.astype(np.float32))

    @override
    def respond(self, request: wire.Scale, party: Party, draws: Source) -> tuple[Party, wire.Prepared]:
        rows = rows_of_party(party)
        names = tuple(_ROWS + name for name in rows)
        rows = scale_rows(rows, self.settings.texts.scale, np.asarray(request.means), np.asarray(request.deviations))
        return _prepare(without_fields(party, *names), rows)


def own_sketches(s: SetupSettings, party: Party) -> list[Int32[np.ndarray, "documents z w"]]:
    """A silo's own sketches without noise, one array a field.

    Args:
        s: What was agreed.
        party: The silo, once it has the common secret.
    """
    corpus = party.shared.corpus
    hashes = hash_terms(corpus.vocabulary, s.shape, party.own["secret"].tobytes())
    return [encode(counts, hashes, s.shape) for counts in corpus.counts]


def federated_statistics(s: SetupSettings, party: Party) -> FederatedStatistics:
    """The federation's statistics as a silo reads them from the sum.

    Args:
        s: What was agreed.
        party: The silo, after it got the sum.
    """
    totals, secret = np.asarray(party.own["totals"]), party.own["secret"].tobytes()
    if not s.shrinks:
        return FederatedStatistics(totals, s.statistics, secret)
    return FederatedStatistics(totals, s.statistics, secret, party.shared.corpus, s.statistics_deviation)


def rows_of_party(party: Party) -> dict[str, np.ndarray]:
    """The rows that a silo has made, by name; empty before it has made them."""
    return {name.removeprefix(_ROWS): a for name, a in party.own.items() if name.startswith(_ROWS)}


def _prepare(party: Party, rows: dict[str, np.ndarray]) -> tuple[Party, wire.Prepared]:
    training = (rows["part"] == TRAIN)[:, None]
    own, pairs = (np.uint32((rows[name] & training).sum()) for name in ("where", "cross_where"))
    return with_fields(party, **{_ROWS + name: array for name, array in rows.items()}), wire.Prepared(own, pairs)


def only(there: Bool[np.ndarray, " silos"], array: Any) -> Shaped[np.ndarray, "silos ..."]:
    """The rows of the silos that were heard; zeros for the others."""
    array = np.asarray(array)
    return np.where(there.reshape(-1, *(1,) * (array.ndim - 1)), array, np.zeros((), array.dtype))


def sizes_of(
    said: Any, documents: int
) -> tuple[Float64[np.ndarray, "documents fields"], Float64[np.ndarray, "documents fields"]]:
    """Lengths and numbers of different words of one silo's documents."""
    lengths, distinct = (np.asarray(a)[:, :documents].T.astype(float) for a in (said.lengths, said.distinct))
    return lengths, distinct


def seal_for(s: SetupSettings, party: Party, inside: Any, reader: int) -> UInt8[np.ndarray, " bytes"]:
    """A message sealed for one silo, or for all."""
    text = s.inside(type(inside)).encode(inside)
    own = int(party.own["number"])
    sealed = seal(party.own["secret"].tobytes(), type(inside).__name__, own, reader, text)
    return np.frombuffer(sealed, np.uint8)


def open_sealed(s: SetupSettings, party: Party, message: type[M], sender: int, reader: int, sealed: Any) -> M | None:
    """The message that a silo sealed, as another opens it.

    Args:
        s: What was agreed.
        party: The silo that opens it.
        message: What stands inside the seal.
        sender: Number of the silo that sealed it.
        reader: Number of the silo that it is for, or :data:`~fedrank.texts.sketch.key.ALL_SILOS`.
        sealed: The bytes, uint8; zeros where nothing came.

    Returns:
        The message; None where nothing came.

    Raises:
        SecureSumError: The bytes were changed on their way.
    """
    sealed = np.asarray(sealed, np.uint8)
    if not sealed[:NONCE].any():
        return None
    text = unseal(party.own["secret"].tobytes(), message.__name__, sender, reader, sealed.tobytes())
    return s.inside(message).decode(text)


def _from_sketches(s: SetupSettings, party: Party, request: wire.Sketches) -> list[ForeignDocuments | None]:
    """Others' documents through their sketches. No other party sees which words are looked up in them."""
    words = party.shared.words
    places = {word: number for number, word in enumerate(words)}
    hashes = hash_terms(words, s.shape, party.own["secret"].tobytes())

    def foreign(published: wire.OwnSketches | None) -> ForeignDocuments | None:
        documents = 0 if published is None else min(int(published.documents), s.documents)
        if published is None or not documents:
            return None
        lengths, distinct = sizes_of(published, documents)
        shape = (documents, s.shape.z, s.shape.w)
        fields = [field[:documents].reshape(shape) for field in np.asarray(published.cells)]
        if s.shrinks:
            own = np.stack([cells_at(field, hashes.rows) for field in fields])
            table = posterior(s, party, own, hashes.signs, lengths)
        else:
            table = np.stack([counts_of(field, hashes, s.shape) for field in fields], axis=-1)
        name = s.texts.candidates
        likely = None if name == "all" else registry.get("fedrank.candidates", name)(s, fields, hashes, places)
        return ForeignDocuments(look_up(places, table), lengths, distinct, likely)

    return [foreign(one) for one in sketches_of(s, party, request)]


def sketches_of(s: SetupSettings, party: Party, request: wire.Sketches) -> Iterator[wire.OwnSketches | None]:
    """Sketches of each silo, in order, as a silo opens them; None for itself and for silos that were not heard."""
    for silo, sealed in enumerate(np.asarray(request.sealed)):
        yield open_sealed(s, party, wire.OwnSketches, silo, ALL_SILOS, sealed)


def posterior(
    s: SetupSettings,
    party: Party,
    cells: Shaped[np.ndarray, "fields terms documents z"],
    signs: Integer[np.ndarray, "terms z"],
    lengths: Float64[np.ndarray, "documents fields"],
) -> Float32[np.ndarray, "terms documents fields"]:
    """Posterior means of the counts in noisy cells, with the federation's statistics as prior."""
    words, scale = party.shared.words[: cells.shape[1]], s.noise.scale()
    statistics = federated_statistics(s, party)(words)
    assert scale is not None
    frequency = np.maximum(statistics.document_frequency, 1.0)
    share, mean = frequency / max(statistics.documents, 1.0), statistics.collection / frequency
    parts = [
        posterior_counts(cells[f], signs, share[:, f], mean[:, f], lengths[:, f], s.noise.mechanism, scale)
        for f in range(len(cells))
    ]
    return np.stack(parts, axis=-1)


def look_up(
    places: dict[str, int], table: Float32[np.ndarray, "terms documents fields"]
) -> Callable[[Sequence[str]], np.ndarray]:
    """A function from words to their rows of the table."""
    return lambda words: table[[places[word] for word in words]]
