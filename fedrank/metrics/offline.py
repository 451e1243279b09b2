"""Offline metrics: the quality of a ranking, computed from relevance labels; and that of a classifier.

The classifiers of silos are measured by :func:`host_auc` and :func:`host_log_loss`. All others have one signature,
``fn(scores, labels, where, *, k=None, ties="fixed", best=None) -> values``, arrays of NumPy:

- ``scores``: float32 [..., d]; higher is better. None: the documents stand in ranked order, padding last.
- ``labels``: int32 [..., d], 0 = not relevant, at most 30.
- ``where``: bool [..., d], False on padding, which never ranks and never counts.
- ``k``: the cutoff; None looks at the whole list.
- ``best``: labels of each list from the highest down, where they are known and padding has the label 0; None: they are
  sorted.
- ``ties``: how equal scores are ordered. ``"fixed"``: the lower index first. ``"expected"``: the exact mean over all
  orders (McSherry & Najork 2008).

Values are float32 [...], in [0, 1], larger for a better ranking; the exception is :func:`map_jos`, kept to compare
with one paper. A list without a relevant document has the value 0. Some papers average over
all queries, some over those that have a relevant document, and their numbers cannot be compared: a table must say
which.

Names, parameters and meanings are those of ir-measures: ``nDCG@10`` has the label itself as gain, and the gain
2^label − 1 of learning to rank is ``nDCG(dcg='exp-log2')@10``; ``P(rel=2)@5`` counts labels from 2 on. ``MAP`` and
``MAP-JOS`` are no names of it. ir-measures orders equal scores as its tools do, by document id or as they come; runs
and models here by one shuffle, always the same, that knows no labels (:class:`fedrank.ranking.evaluate.Measurement`): a
ranker without an opinion gains nothing from the order of the data.

Binary classifiers are measured by the area under the ROC curve, and by the cross-entropy.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from jaxtyping import Bool, Float, Float32, Int, Integer, Shaped

from fedrank.core.arrays import AnyArray
from fedrank.core.errors import ConfigError
from fedrank.core.registry import Registry

#: Scores, labels and padding of lists of d documents.
Scores: TypeAlias = Float[AnyArray, "*lists d"]
Labels: TypeAlias = Integer[AnyArray, "*lists d"]
Where: TypeAlias = Bool[AnyArray, "*lists d"]
#: One value a list, of a metric, and on the way there, where NumPy has numbers for arrays of no axes.
Values: TypeAlias = Float32[np.ndarray, "*lists"]
PerList: TypeAlias = Float[AnyArray, "*lists"]

#: Largest label: gains 2^label − 1 are computed in 32 bits.
MOST_LABEL = 30
#: Ways to order documents with equal scores.
TIES = ("fixed", "expected")

#: Offline metrics by name, without the cutoff.
OFFLINE: Registry[Callable[..., Values]] = Registry("offline metric")


class _Ranked(NamedTuple):
    """Lists from the first rank to the last."""

    where: Bool[AnyArray, "*#lists n"]  # False on padding
    labels: Int[AnyArray, "*lists d"]  # 0 on padding; of broken ties down to the cutoff
    ties: str  # one of TIES
    first: Int[AnyArray, "*#lists d"]  # index of the tie group's first rank; a document's own where ties are broken
    last: Int[AnyArray, "*#lists d"]  # index of the tie group's last rank
    best: Int[AnyArray, "*#lists n"]  # all labels from the highest down

    @property
    def size(self) -> Int[AnyArray, "*#lists d"]:
        """Number of documents in the tie group of each rank."""
        return self.last - self.first + 1

    @property
    def offset(self) -> Int[AnyArray, "*#lists d"]:
        """Ranks between the first of the tie group and each rank."""
        return np.arange(self.labels.shape[-1]) - self.first

    def group_sum(self, x: Float[AnyArray, "*lists d"]) -> Float[AnyArray, "*lists d"]:
        """Sum of x over the tie group of each rank; exact for integers below 2²⁴."""
        if self.ties == "fixed":
            return x
        total = np.cumsum(x, axis=-1)
        before = np.take_along_axis(total - x, np.asarray(self.first), axis=-1)
        return np.take_along_axis(total, np.asarray(self.last), axis=-1) - before

    def relevant(self, rel: int) -> Float[AnyArray, "*#lists"]:
        """Number of documents with a label of at least ``rel``."""
        return (self.best >= rel).sum(axis=-1).astype(np.float32)

    def group_mean(self, x: Float[AnyArray, "*lists d"]) -> Float[AnyArray, "*lists d"]:
        """Mean of x over the tie group of each rank."""
        return x if self.ties == "fixed" else self.group_sum(x) / self.size


def _rank_lists(
    scores: Scores | None,
    labels: Labels,
    where: Where,
    k: int | None,
    ties: str,
    best: Integer[AnyArray, "*#lists d"] | None,
) -> _Ranked:
    """The lists sorted by score, highest first, padding last, ties treated as asked; cut at k where they are broken."""
    if ties not in TIES:
        raise ConfigError(f"ties must be one of {', '.join(TIES)}, got {ties!r}.")
    if k is not None and k < 1:
        raise ConfigError(f"The cutoff k of an offline metric must be at least 1, got {k}. Use k=None for no cutoff.")
    where = np.asarray(where)
    if best is None:
        labels = np.where(where, labels, 0)
        best = -np.sort(-labels, axis=-1)
    if scores is not None:
        scores = np.asarray(scores, np.float32)
        # Padding sorts last whatever its score; −0 and 0 are the same. The sort is stable: the lower index first.
        falling = np.where(scores == 0, np.float32(0), -scores)
        order = np.lexsort((falling, ~where), axis=-1)
        falling, padding, labels = (np.take_along_axis(one, order, axis=-1) for one in (falling, ~where, labels))
        if ties == "expected":
            index, edge = np.arange(labels.shape[-1]), np.ones_like(padding[..., :1])
            new = (falling[..., 1:] != falling[..., :-1]) | (padding[..., 1:] != padding[..., :-1])
            first = np.where(np.concatenate([edge, new], axis=-1), index, 0)
            last = np.where(np.concatenate([new, edge], axis=-1), index, len(index))
            last = np.minimum.accumulate(last[..., ::-1], axis=-1)[..., ::-1]
            return _Ranked(where, labels, ties, np.maximum.accumulate(first, axis=-1), last, best)
    labels = np.asarray(labels)[..., :k]
    index = np.arange(labels.shape[-1])
    return _Ranked(where, labels, "fixed", index, index, best)


def _register_metric(name: str, summary: str, citation: str = "") -> Callable[..., Callable[..., Values]]:
    """A measure of ranked lists, ``measure(ranked, k, **settings)``, as a metric with the signature of the module."""

    def register(measure: Callable[..., Values]) -> Callable[..., Values]:
        @functools.wraps(measure)
        def metric(
            scores: Scores | None,
            labels: Labels,
            where: Where,
            *,
            k: int | None = None,
            ties: str = "fixed",
            best: Integer[AnyArray, "*#lists d"] | None = None,
            **settings: Any,
        ) -> Values:
            return np.asarray(measure(_rank_lists(scores, labels, where, k, ties, best), k, **settings))

        return OFFLINE.register(name, summary=summary, citation=citation)(metric)

    return register


def _weights(by_rank: Callable[[np.ndarray], np.ndarray], ranked: _Ranked, k: int | None) -> Float[np.ndarray, " k"]:
    """A weight for each rank 1 .. d, or 1 .. k if that is less, computed in double precision."""
    documents = ranked.labels.shape[-1]
    return by_rank(np.arange(1, min(k or documents, documents) + 1, dtype=np.float64)).astype(np.float32)


def _weigh(values: Float[AnyArray, "*lists d"], weights: Float[np.ndarray, " k"]) -> PerList:
    """The weighted sum of the first values of each list."""
    return values[..., : len(weights)].astype(np.float32) @ weights


def _gain(labels: Int[AnyArray, "*lists d"]) -> Float[AnyArray, "*lists d"]:
    """The gain of a document, 2^label − 1, computed in integers and so exact."""
    return ((np.int32(1) << labels.astype(np.int32)) - 1).astype(np.float32)


#: Gains of a document by the name of a DCG.
GAINS = {"log2": lambda labels: labels.astype(np.float32), "exp-log2": _gain}


def _ratio(part: Float[AnyArray, "*lists"], whole: Float[AnyArray, "*#lists"]) -> PerList:
    """The quotient, and 0 where the whole is 0."""
    return np.where(whole > 0, part / np.where(whole > 0, whole, np.float32(1)), np.float32(0)).astype(np.float32)


def _first_stop(chance: Float[AnyArray, "*lists d"], weights: Float[np.ndarray, " k"]) -> PerList:
    """The expected weight of the rank at which a reader stops, given the chance to stop at each rank once reached."""
    chance = chance[..., : len(weights)]
    going = np.cumprod(1 - chance, axis=-1)
    going = np.concatenate([np.ones_like(going[..., :1]), going[..., :-1]], axis=-1)
    return _weigh(going * chance, weights)


@_register_metric(
    "nDCG", summary="Discounted gain of the ranking over that of the best ranking.", citation="jarvelin2002ndcg"
)
def ndcg(ranked: _Ranked, k: int | None, dcg: str = "log2") -> PerList:
    """Normalised discounted cumulative gain (Järvelin & Kekäläinen 2002), with discount 1 / log2(1 + rank).

    The best ranking is cut off at k as well.

    Args:
        ranked: Made of scores, labels and padding; see module.
        k: See module.
        dcg: The gain of a document: ``"log2"``, its label, as trec_eval has it; ``"exp-log2"``, 2^label − 1 (Burges et
            al. 2005), as usual in learning to rank.

    >>> lists = np.array([3.0, 2.0, 1.0]), np.array([0, 2, 1]), np.ones(3, bool)
    >>> round(float(ndcg(*lists)), 4), round(float(ndcg(*lists, dcg="exp-log2")), 4)
    (0.6697, 0.659)
    """
    if dcg not in GAINS:
        raise ConfigError(f"dcg of nDCG must be one of {', '.join(GAINS)}, got {dcg!r}.")
    gain, discount = GAINS[dcg], _weights(lambda rank: 1 / np.log2(1 + rank), ranked, k)
    return _ratio(_weigh(ranked.group_mean(gain(ranked.labels)), discount), _weigh(gain(ranked.best), discount))


@_register_metric("RR", summary="1 over the rank of the first relevant document.", citation="voorhees1999trec8qa")
def reciprocal_rank(ranked: _Ranked, k: int | None, rel: int = 1) -> PerList:
    """Reciprocal rank of the first document with a label of at least ``rel``; 0 if there is none up to rank k.

    Under ``ties="expected"``: given that no rank above holds a relevant document, rank o + 1 of a tie group
    of m documents, R of them relevant, holds one with probability R / (m − o). Other arguments: see module.
    """
    hits = ranked.group_sum((ranked.labels >= rel).astype(np.float32))
    # With fewer than R documents left in the group one was met before: no reader gets here, any chance up to 1 will do.
    chance = np.minimum(hits / (ranked.size - ranked.offset), 1)
    return _first_stop(chance, _weights(lambda rank: 1 / rank, ranked, k))


@_register_metric(
    "ERR",
    summary="Mean reciprocal rank at which a reader is satisfied who reads from the top.",
    citation="chapelle2009err",
)
def err(ranked: _Ranked, k: int | None, max_label: int = 4) -> PerList:
    """Expected reciprocal rank (Chapelle et al. 2009).

    Each document satisfies the reader, independently, with probability (2^label − 1) / 2^max_label.

    The mean over all orders of equal scores has no cheap closed form.

    Args:
        ranked: Made of scores, labels and padding; see module.
        k: See module.
        max_label: The largest label of the scale: 2 for LETOR 4.0; 4 for MSLR and Yahoo, and in TREC's gdeval, whatever
            the labels are. Larger labels count as this one.
    """
    if ranked.ties == "expected":
        raise ConfigError("ERR has no ties='expected'. Average over several orders of the documents.")
    chance = _gain(np.minimum(ranked.labels, max_label)) / 2.0**max_label
    return _first_stop(chance, _weights(lambda rank: 1 / rank, ranked, k))


@_register_metric(
    "AP", summary="Mean precision at the ranks of the relevant documents.", citation="buckley2000stability"
)
def average_precision(ranked: _Ranked, k: int | None, rel: int = 1) -> PerList:
    """Average precision; relevant documents are those with a label of at least ``rel``.

    The sum over the first k ranks is divided by the number of all relevant documents, as trec_eval does, also
    if that is more than k. Under ``ties="expected"``, rank o + 1 of a tie group of m documents, R of them
    relevant, holds a relevant one with probability R / m, and then (R − 1) / (m − 1) of the o ranks above it
    in the group do. Other arguments: see module.
    """
    hit = (ranked.labels >= rel).astype(np.float32)
    hits = ranked.group_sum(hit)
    before = np.take_along_axis(np.cumsum(hit, axis=-1), np.broadcast_to(ranked.last, hit.shape), axis=-1) - hits
    mates = ranked.offset * (hits - 1) / np.maximum(ranked.size - 1, 1)
    weights = _weights(lambda rank: 1 / rank, ranked, k)
    return _ratio(_weigh(ranked.group_mean(hit) * (before + 1 + mates), weights), ranked.relevant(rel))


def _expected_hits(ranked: _Ranked, k: int | None, rel: int) -> tuple[PerList, Float[AnyArray, "*#lists"]]:
    """Expected relevant documents up to rank k, and all relevant ones."""
    hit = (ranked.labels >= rel).astype(np.float32)
    return _weigh(ranked.group_mean(hit), _weights(np.ones_like, ranked, k)), ranked.relevant(rel)


@_register_metric("P", summary="Share of relevant documents among the first k.", citation="buckley2000stability")
def precision(ranked: _Ranked, k: int | None, rel: int = 1) -> PerList:
    """Relevant documents up to rank k, with a label of at least ``rel``, divided by k, also where fewer are ranked.

    Without k they are divided by the length of the list. Other arguments: see module.
    """
    found, _ = _expected_hits(ranked, k, rel)
    return _ratio(found, ranked.where.sum(axis=-1).astype(np.float32)) if k is None else found / np.float32(k)


@_register_metric("R", summary="Share of the relevant documents among the first k.", citation="buckley2000stability")
def recall(ranked: _Ranked, k: int | None, rel: int = 1) -> PerList:
    """Relevant documents up to rank k, with a label of at least ``rel``, divided by all of them; 0 if there are none.

    Other arguments: see module.
    """
    return _ratio(*_expected_hits(ranked, k, rel))


# Its mean over queries is what the literature calls MAP.
OFFLINE.register(
    "MAP", summary="The same; its mean over queries has this name.", citation=OFFLINE.entry("AP").citation
)(average_precision)


@_register_metric(
    "MAP-JOS",
    summary="Mean of ideal rank over rank, as one paper prints its MAP; 1 is best and larger is worse.",
    citation="shi2021csfltr",
)
def map_jos(ranked: _Ranked, k: int | None) -> PerList:
    """The mean average precision that Shi et al. (Journal of Software 2021, section 5.1) print. It is not AP.

    The mean over all documents of rank / position: ``position`` is the document's place in the ranking, from 1,
    and ``rank`` its place after sorting by label. The paper leaves open how equal labels share places; here they
    keep the order of the ranking, so that every ranking without a wrong pair has the value 1, also a list without
    a relevant document.

    All other rankings have a larger value: the product of the quotients is 1, so their mean is at least 1. However
    equal labels share places, the best ranking has the smallest value (rearrangement inequality). So the formula is
    a cost, while the paper reads larger values of its MAP as better (Figure 8b): its numbers come from another one.
    Report :func:`average_precision`.

    The mean over all orders of equal scores has no cheap closed form.

    Args:
        ranked: Made of scores, labels and padding; see module.
        k: Must be None; the paper knows no cutoff.

    Returns:
        float32 [...], at least 1; 0 for a list without any document.

    >>> float(map_jos(np.array([2.0, 1.0]), np.array([0, 1]), np.ones(2, bool)))
    1.25
    """
    if k is not None or ranked.ties == "expected":
        raise ConfigError("MAP-JOS has neither a cutoff nor ties='expected'; AP has both and is what to report.")
    # Padding has label 0 and is last, so a stable sort keeps it behind the documents.
    ideal = np.argsort(-ranked.labels, axis=-1, stable=True)
    rank, position = np.argsort(ideal, axis=-1) + 1, np.arange(1, ideal.shape[-1] + 1)
    documents = ranked.where.sum(axis=-1, keepdims=True).astype(np.float32)
    return _ratio(np.where(position <= documents, rank / position, 0).sum(axis=-1), documents[..., 0])


def offline_metric(name: str) -> Callable[..., Values]:
    """The metric of a name such as ``nDCG@10``, ``nDCG(dcg='exp-log2')@10``, ``RR(rel=2)@10`` or ``AP``.

    Args:
        name: A name in :data:`OFFLINE`; then, in brackets, a parameter of the function; then the cutoff.

    Returns:
        The function with these arguments filled in: ``fn(scores, labels, where, *, ties="fixed")``.

    Raises:
        UnknownNameError: No such metric.
        ConfigError: The name is malformed, or a parameter is missing or unknown.

    >>> metric = offline_metric("RR(rel=2)@10")
    >>> float(metric(np.array([3.0, 2.0]), np.array([1, 2]), np.ones(2, bool)))
    0.5
    """
    pattern = r"""([\w-]+)(?:\((\w+)=(?:(\d+)|(['"])([\w-]+)\4)\))?(?:@([1-9]\d*))?"""
    match = re.fullmatch(pattern, name.strip())
    if match is None:
        raise ConfigError(
            f"{name!r} names no offline metric with a cutoff; write for example nDCG@10 or ERR(max_label=4)@10."
        )
    base, parameter, number, _, word, cutoff = match.groups()
    function = OFFLINE.get(base)
    known = {"nDCG": ("dcg",), "MAP-JOS": (), "ERR": ("max_label",)}.get(base, ("rel",))
    if parameter is not None and (parameter not in known or (word is None) != (parameter != "dcg")):
        raise ConfigError(f"{base} has no such parameter in {name!r}; it has {', '.join(known) or 'none'}.")
    if word is not None and word not in GAINS:
        raise ConfigError(f"{name!r}: dcg must be one of {', '.join(GAINS)}, got {word!r}.")
    if base == "MAP-JOS" and cutoff is not None:
        raise ConfigError(f"{name!r}: MAP-JOS has no cutoff; write MAP-JOS, or AP@{cutoff}, which is what to report.")
    settings: dict[str, Any] = {} if parameter is None else {parameter: word or int(number)}
    return functools.partial(function, k=None if cutoff is None else int(cutoff), **settings)


def host_auc(
    scores: Float[np.ndarray, "*#lists rows"],
    labels: Shaped[np.ndarray, "*#lists rows"],
    where: Bool[np.ndarray, "*#lists rows"],
) -> Float32[np.ndarray, "*lists"]:
    """Area under the ROC curve: the probability that a positive row scores above a negative one; a tie counts half.

    The rank formula (Hanley & McNeil 1982): what it counts are the negative rows below each positive one. Everything up
    to the last division is whole numbers.

    Args:
        scores: Float [..., rows]; a higher score means that label 1 is more likely.
        labels: [..., rows]; above 0 is positive.
        where: bool [..., rows], False on padding. What padding holds, NaN included, has no effect. The three broadcast
            against each other.

    Returns:
        float32 [...], in [0, 1]. NaN where there is no positive or no negative row: AUC is not defined there, and 0.5
        would be a claim. NaN also where the score of a row that counts is NaN: a model that diverged.
    """
    scores, labels, where = np.broadcast_arrays(np.asarray(scores, np.float32), labels, where)
    positive, negative = (labels > 0) & where, (labels <= 0) & where
    n1, n0 = positive.sum(-1), negative.sum(-1)
    held = np.where(where, scores, np.inf)
    order = np.argsort(held, axis=-1)
    ranked, up, down = (np.take_along_axis(a, order, axis=-1) for a in (held, positive, negative))
    upto = np.cumsum(down, axis=-1)
    # Negative rows below, and not above, each group of equal scores: sums at its first and after its last row.
    change = ranked[..., 1:] != ranked[..., :-1]
    edge = np.ones((*change.shape[:-1], 1), bool)
    first, last = np.concatenate([edge, change], axis=-1), np.concatenate([change, edge], axis=-1)
    below = np.maximum.accumulate(np.where(first, upto - down, 0), axis=-1)
    within = np.minimum.accumulate(np.where(last, upto, upto.shape[-1])[..., ::-1], axis=-1)[..., ::-1]
    wins = np.where(up, below + within, 0).sum(-1)
    pairs = n1 * n0
    defined = (pairs > 0) & ~(np.isnan(scores) & where).any(-1)
    found = wins.astype(np.float32) / (2 * np.maximum(pairs, 1)).astype(np.float32)
    return np.where(defined, found, np.float32(np.nan))


def host_log_loss(
    margins: Float[np.ndarray, "*#lists rows"],
    labels: Shaped[np.ndarray, "*#lists rows"],
    where: Bool[np.ndarray, "*#lists rows"],
) -> Float32[np.ndarray, "*lists"]:
    """Mean cross-entropy of two logits, in natural units: −mean log p(label).

    Args:
        margins: Float [..., rows]: the logit of label 1 minus that of label 0.
        labels: [..., rows]; above 0 is label 1.
        where: bool [..., rows], False on padding. What padding holds has no effect.

    Returns:
        float32 [...], at least 0; NaN where no row counts. Guessing gives log 2 ≈ 0.693.
    """
    gap = np.where(where, margins, np.float32(0))
    loss = np.where(where, np.logaddexp(np.float32(0), np.where(labels > 0, -gap, gap)), np.float32(0))
    n = np.broadcast_to(where, loss.shape).sum(-1)
    mean = loss.sum(-1) / np.maximum(n, 1)
    return np.where(n > 0, mean, np.nan).astype(np.float32)
