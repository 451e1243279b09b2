"""Offline metrics: the quality of a ranking, computed from relevance labels; and that of a classifier.

The classifiers of silos are measured by :func:`host_auc` and :func:`host_log_loss`. All others have one signature,
``fn(scores, labels, where, *, k=None, ties="fixed", key=None) -> values``:

- ``scores``: float32 [..., d]; higher is better.
- ``labels``: int32 [..., d], 0 = not relevant, at most 30.
- ``where``: bool [..., d], False on padding, which never ranks and never counts.
- ``k``: the cutoff; None looks at the whole list.
- ``ties``: how equal scores are ordered. ``"fixed"``: the lower index first. ``"random"``: one random order, drawn
  with ``key`` (a typed key, consumed). ``"expected"``: the exact mean over all orders (McSherry & Najork 2008).

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

import jaxtyping
import numpy as np
from jaxtyping import Bool, Float, Float32, Int, Integer, Shaped

from fedrank.core.arrays import AnyArray
from fedrank.core.arrays import JaxArray as Array
from fedrank.core.errors import ConfigError
from fedrank.core.lazy import jax, jnp
from fedrank.core.registry import Registry

#: Scores, labels and padding of lists of d documents.
Scores: TypeAlias = Float[AnyArray, "*lists d"]
Labels: TypeAlias = Integer[AnyArray, "*lists d"]
Where: TypeAlias = Bool[AnyArray, "*lists d"]
#: A typed key of JAX.
Key: TypeAlias = jaxtyping.Key[Array, ""]
#: One value a list.
Values: TypeAlias = Float[Array, "*lists"]

#: Largest label: gains 2^label − 1 are computed in 32 bits.
MOST_LABEL = 30
#: Ways to order documents with equal scores.
TIES = ("fixed", "random", "expected")

#: Offline metrics by name, without the cutoff.
OFFLINE: Registry[Callable[..., Values]] = Registry("offline metric")


class _Ranked(NamedTuple):
    """A list from the first rank to the last. Where ties are broken, each document is its own tie group."""

    where: Where  # False on padding
    labels: Int[Array, "*lists d"]  # 0 on padding
    offset: Int[Array, "*lists d"]  # ranks between the first of the tie group and this one
    size: Int[Array, "*lists d"]  # documents in the tie group
    last: Int[Array, "*lists d"]  # index of the tie group's last rank
    ties: str  # one of TIES

    def group_sum(self, x: Float[Array, "*lists d"]) -> Float[Array, "*lists d"]:
        """Sum of x over the tie group of each rank; exact for integers below 2²⁴."""
        total = jnp.cumsum(x, axis=-1)
        upto_last = jnp.take_along_axis(total, self.last, axis=-1)
        before = total - x
        return upto_last - jnp.take_along_axis(before, self.last - self.size + 1, axis=-1)


def _rank_lists(scores: Scores, labels: Labels, where: Where, ties: str, key: Key | None) -> _Ranked:
    """The lists sorted by score, highest first, with padding last and ties treated as asked."""
    if ties not in TIES:
        raise ConfigError(f"ties must be one of {', '.join(TIES)}, got {ties!r}.")
    if (ties == "random") != (key is not None):
        raise ConfigError("ties='random' needs a key, such as jax.random.key(0), and the other two take none.")
    labels = jnp.where(where, labels, 0)
    # Padding sorts last whatever its score; −0 and 0 are the same score. The sort is stable: the lower index first.
    keys = [~where, jnp.where(scores == 0, 0.0, -scores)]
    if key is not None:
        keys.append(jax.random.bits(key, scores.shape))
    padding, falling, *_, labels = jax.lax.sort((*keys, labels), num_keys=len(keys))
    index = jnp.broadcast_to(jnp.arange(scores.shape[-1]), scores.shape)
    if ties != "expected":
        return _Ranked(where, labels, jnp.zeros_like(index), jnp.ones_like(index), index, ties)
    new = (falling[..., 1:] != falling[..., :-1]) | (padding[..., 1:] != padding[..., :-1])
    edge = jnp.ones_like(padding[..., :1])
    first = jnp.where(jnp.concatenate([edge, new], axis=-1), index, 0)
    last = jnp.where(jnp.concatenate([new, edge], axis=-1), index, scores.shape[-1])
    first = jax.lax.cummax(first, axis=first.ndim - 1)
    last = jax.lax.cummin(last, axis=last.ndim - 1, reverse=True)
    return _Ranked(where, labels, index - first, last - first + 1, last, ties)


def _register_metric(name: str, summary: str, citation: str = "") -> Callable[..., Callable[..., Values]]:
    """A measure of ranked lists, ``measure(ranked, k, **settings)``, as a metric with the signature of the module."""

    def register(measure: Callable[..., Values]) -> Callable[..., Values]:
        @functools.wraps(measure)
        def metric(
            scores: Scores,
            labels: Labels,
            where: Where,
            *,
            k: int | None = None,
            ties: str = "fixed",
            key: Key | None = None,
            **settings: Any,
        ) -> Values:
            return measure(_rank_lists(scores, labels, where, ties, key), k, **settings)

        return OFFLINE.register(name, summary=summary, citation=citation)(metric)

    return register


def _weights(
    by_rank: Callable[[np.ndarray], np.ndarray], ranked: _Ranked, k: int | None
) -> Float[np.ndarray, "*ones d"]:
    """A weight for each rank 1 .. d, computed in double precision, 0 after rank k; as many axes as the lists have."""
    if k is not None and k < 1:
        raise ConfigError(f"The cutoff k of an offline metric must be at least 1, got {k}. Use k=None for no cutoff.")
    *batch, documents = ranked.labels.shape
    ranks = np.arange(1, documents + 1, dtype=np.float64)
    weights = np.where(ranks <= (k or documents), by_rank(ranks), 0.0).astype(np.float32)
    return weights.reshape((1,) * len(batch) + (documents,))


def _gain(labels: Int[Array, "*lists d"]) -> Float[Array, "*lists d"]:
    """The gain of a document, 2^label − 1, computed in integers and so exact."""
    return ((jnp.int32(1) << labels.astype(jnp.int32)) - 1).astype(jnp.float32)


#: Gains of a document by the name of a DCG.
GAINS = {"log2": lambda labels: labels.astype(jnp.float32), "exp-log2": _gain}


def _ratio(part: Float[Array, "*lists"], whole: Float[Array, "*lists"]) -> Float[Array, "*lists"]:
    """The quotient, and 0 where the whole is 0."""
    return jnp.where(whole > 0, part / jnp.where(whole > 0, whole, 1.0), 0.0)


def _first_stop(chance: Float[Array, "*lists d"], weights: Float[np.ndarray, "*ones d"]) -> Values:
    """The expected weight of the rank at which a reader stops, given the chance to stop at each rank once reached."""
    going = jnp.cumprod(1.0 - chance, axis=-1)
    going = jnp.concatenate([jnp.ones_like(going[..., :1]), going[..., :-1]], axis=-1)
    return jnp.sum(going * chance * weights, axis=-1)


@_register_metric(
    "nDCG", summary="Discounted gain of the ranking over that of the best ranking.", citation="jarvelin2002ndcg"
)
def ndcg(ranked: _Ranked, k: int | None, dcg: str = "log2") -> Values:
    """Normalised discounted cumulative gain (Järvelin & Kekäläinen 2002), with discount 1 / log2(1 + rank).

    The best ranking is cut off at k as well.

    Args:
        ranked: Made of scores, labels and padding; see module.
        k: See module.
        dcg: The gain of a document: ``"log2"``, its label, as trec_eval has it; ``"exp-log2"``, 2^label − 1 (Burges et
            al. 2005), as usual in learning to rank.

    >>> lists = jnp.array([3.0, 2.0, 1.0]), jnp.array([0, 2, 1]), jnp.ones(3, bool)
    >>> round(float(ndcg(*lists)), 4), round(float(ndcg(*lists, dcg="exp-log2")), 4)
    (0.6697, 0.659)
    """
    if dcg not in GAINS:
        raise ConfigError(f"dcg of nDCG must be one of {', '.join(GAINS)}, got {dcg!r}.")
    gain = GAINS[dcg](ranked.labels)
    discount = _weights(lambda rank: 1 / np.log2(1 + rank), ranked, k)
    best = -jnp.sort(-gain, axis=-1)
    return _ratio(jnp.sum(ranked.group_sum(gain) / ranked.size * discount, axis=-1), jnp.sum(best * discount, axis=-1))


@_register_metric("RR", summary="1 over the rank of the first relevant document.", citation="voorhees1999trec8qa")
def reciprocal_rank(ranked: _Ranked, k: int | None, rel: int = 1) -> Values:
    """Reciprocal rank of the first document with a label of at least ``rel``; 0 if there is none up to rank k.

    Under ``ties="expected"``: given that no rank above holds a relevant document, rank o + 1 of a tie group
    of m documents, R of them relevant, holds one with probability R / (m − o). Other arguments: see module.
    """
    hits = ranked.group_sum((ranked.labels >= rel).astype(jnp.float32))
    # With fewer than R documents left in the group one was met before: no reader gets here, any chance up to 1 will do.
    chance = jnp.minimum(hits / (ranked.size - ranked.offset), 1.0)
    return _first_stop(chance, _weights(lambda rank: 1 / rank, ranked, k))


@_register_metric(
    "ERR",
    summary="Mean reciprocal rank at which a reader is satisfied who reads from the top.",
    citation="chapelle2009err",
)
def err(ranked: _Ranked, k: int | None, max_label: int = 4) -> Values:
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
        raise ConfigError("ERR has no ties='expected'. Use ties='random' with a key, and average over several keys.")
    chance = _gain(jnp.minimum(ranked.labels, max_label)) / 2.0**max_label
    return _first_stop(chance, _weights(lambda rank: 1 / rank, ranked, k))


@_register_metric(
    "AP", summary="Mean precision at the ranks of the relevant documents.", citation="buckley2000stability"
)
def average_precision(ranked: _Ranked, k: int | None, rel: int = 1) -> Values:
    """Average precision; relevant documents are those with a label of at least ``rel``.

    The sum over the first k ranks is divided by the number of all relevant documents, as trec_eval does, also
    if that is more than k. Under ``ties="expected"``, rank o + 1 of a tie group of m documents, R of them
    relevant, holds a relevant one with probability R / m, and then (R − 1) / (m − 1) of the o ranks above it
    in the group do. Other arguments: see module.
    """
    hit = (ranked.labels >= rel).astype(jnp.float32)
    hits = ranked.group_sum(hit)
    before = jnp.take_along_axis(jnp.cumsum(hit, axis=-1), ranked.last, axis=-1) - hits
    mates = ranked.offset * (hits - 1) / jnp.maximum(ranked.size - 1, 1)
    share = hits / ranked.size
    weights = _weights(lambda rank: 1 / rank, ranked, k)
    return _ratio(jnp.sum(share * (before + 1 + mates) * weights, axis=-1), jnp.sum(hit, axis=-1))


def _expected_hits(ranked: _Ranked, k: int | None, rel: int) -> tuple[Values, Values]:
    """Expected relevant documents up to rank k, and all relevant ones."""
    hit = (ranked.labels >= rel).astype(jnp.float32)
    upto = _weights(np.ones_like, ranked, k)
    return jnp.sum(ranked.group_sum(hit) / ranked.size * upto, axis=-1), jnp.sum(hit, axis=-1)


@_register_metric("P", summary="Share of relevant documents among the first k.", citation="buckley2000stability")
def precision(ranked: _Ranked, k: int | None, rel: int = 1) -> Values:
    """Relevant documents up to rank k, with a label of at least ``rel``, divided by k, also where fewer are ranked.

    Without k they are divided by the length of the list. Other arguments: see module.
    """
    found, _ = _expected_hits(ranked, k, rel)
    return _ratio(found, jnp.sum(ranked.where, axis=-1).astype(jnp.float32)) if k is None else found / k


@_register_metric("R", summary="Share of the relevant documents among the first k.", citation="buckley2000stability")
def recall(ranked: _Ranked, k: int | None, rel: int = 1) -> Values:
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
def map_jos(ranked: _Ranked, k: int | None) -> Values:
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

    >>> float(map_jos(jnp.array([2.0, 1.0]), jnp.array([0, 1]), jnp.ones(2, bool)))
    1.25
    """
    if k is not None or ranked.ties == "expected":
        raise ConfigError("MAP-JOS has neither a cutoff nor ties='expected'; AP has both and is what to report.")
    # Padding has label 0 and is last, so a stable sort keeps it behind the documents.
    ideal = jnp.argsort(-ranked.labels, axis=-1, stable=True)
    rank = jnp.argsort(ideal, axis=-1) + 1
    documents = jnp.sum(ranked.where, axis=-1, keepdims=True)
    position = jnp.broadcast_to(jnp.arange(1, rank.shape[-1] + 1), rank.shape)
    quotient = jnp.where(position <= documents, rank / position, 0.0)
    return _ratio(jnp.sum(quotient, axis=-1), documents[..., 0].astype(jnp.float32))


def offline_metric(name: str) -> Callable[..., Values]:
    """The metric of a name such as ``nDCG@10``, ``nDCG(dcg='exp-log2')@10``, ``RR(rel=2)@10`` or ``AP``.

    Args:
        name: A name in :data:`OFFLINE`; then, in brackets, a parameter of the function; then the cutoff.

    Returns:
        The function with these arguments filled in: ``fn(scores, labels, where, *, ties="fixed", key=None)``.

    Raises:
        UnknownNameError: No such metric.
        ConfigError: The name is malformed, or a parameter is missing or unknown.

    >>> metric = offline_metric("RR(rel=2)@10")
    >>> float(metric(jnp.array([3.0, 2.0]), jnp.array([1, 2]), jnp.ones(2, bool)))
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
