"""Shares: which queries each party of a simulation holds, and how parties differ.

The four kinds of data that are not alike at all parties (*non-IID*) of Wang and Zuccon, SIGIR 2022. They are made apart
and combine freely:

* by topic of the query: :func:`by_topic`;
* by relevance label of the documents: :func:`by_labels`;
* by the user's way of clicking: :func:`users_of_parties` says whose click model a party has;
* by amount: :func:`amounts`, interactions of each party in a round.

Source:
    Wang and Zuccon: *Is non-IID data a threat in federated online learning to rank?*, SIGIR 2022. The study's code
    differs in parts; the functions say where.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int32

from fedrank.core.errors import ConfigError
from fedrank.core.lazy import dataclass_of_arrays, jax, require
from fedrank.ranking.data.queries import QuerySet, concatenate


@dataclass_of_arrays
@dataclass(frozen=True)
class Shares:
    """The queries of each party; a JAX pytree.

    Party p holds ``queries[first[p] : first[p] + count[p]]``, at least one query. Shares may overlap, so a
    million parties that hold everything cost no more memory than one.

    Attributes:
        queries: int32 [m], indices into a query set.
        first: int32 [parties].
        count: int32 [parties], at least 1.
    """

    queries: np.ndarray | jax.Array
    first: np.ndarray | jax.Array
    count: np.ndarray | jax.Array

    @property
    def parties(self) -> int:
        """Number of parties that hold a share."""
        return self.first.shape[0]

    def of(self, party: int) -> np.ndarray | jax.Array:
        """The queries of one party: int32 [count[party]]."""
        return self.queries[self.first[party] : self.first[party] + self.count[party]]


def uniform(n_queries: int, parties: int) -> Shares:
    """Every party holds all queries: users ask what anybody may ask.

    The setting of Kharitonov 2019 and of Wang et al. 2021, where each user's query is drawn uniformly from
    the data set.

    Raises:
        ConfigError: No queries or no parties.

    >>> uniform(3, parties=2).of(1)
    array([0, 1, 2], dtype=int32)
    """
    _check(n_queries, parties)
    return Shares(
        np.arange(n_queries, dtype=np.int32),
        np.zeros(parties, np.int32),
        np.full(parties, n_queries, np.int32),
    )


def fixed_share(n_queries: int, parties: int, per_party: int | None = None, seed: int = 0) -> Shares:
    """Every party keeps a fixed share of the queries, all shares of one size.

    If there are enough queries (``parties * per_party <= n_queries``) the shares are disjoint: the queries
    are shuffled and dealt out, and those left over belong to no party. Otherwise each party draws its share by
    itself, without replacement, so a query may be held by several parties but by none twice.

    Args:
        n_queries: Queries of the data set.
        parties: Number of parties.
        per_party: Queries of each; by default ``n_queries // parties``, and at least 1.
        seed: Seed of the draw (PCG64).

    Raises:
        ConfigError: No queries, no parties, or a share that is empty or larger than the data set.
    """
    _check(n_queries, parties)
    size = max(1, n_queries // parties) if per_party is None else per_party
    if not 1 <= size <= n_queries:
        raise ConfigError(f"a share must hold 1..{n_queries} queries, as many as the data set has; got {size}.")
    if parties * size > np.iinfo(np.int32).max:
        raise ConfigError(f"{parties} parties with {size} queries each are more than 32 bits can index; take fewer.")
    rng = np.random.Generator(np.random.PCG64(seed))
    if parties * size <= n_queries:
        queries = rng.permutation(n_queries)[: parties * size]
    else:
        queries = np.concatenate([rng.choice(n_queries, size, replace=False) for _ in range(parties)])
    return Shares(
        queries.astype(np.int32),
        np.arange(parties, dtype=np.int32) * np.int32(size),
        np.full(parties, size, np.int32),
    )


def _check(n_queries: int, parties: int) -> None:
    if not 1 <= n_queries <= np.iinfo(np.int32).max:
        raise ConfigError(f"a partition needs at least one query (and at most 2³¹ − 1), got {n_queries}.")
    if not 1 <= parties <= np.iinfo(np.int32).max:
        raise ConfigError(f"parties must be at least 1 (and at most 2³¹ − 1), got {parties}.")


# The purpose of a draw, mixed into its seed, so that draws for different purposes are independent.
_TOPICS, _LABELS, _USERS, _AMOUNTS = range(1, 5)


def by_topic(queries: QuerySet, parties: int, topics: int, seed: int = 0) -> Shares:
    """Each party asks about one topic: a cluster of queries whose documents are alike.

    A query is described by the mean of its documents' features, each feature standardised over the queries, and queries
    are grouped by k-means. Every topic gets a party, and each further party goes to the topic that has most queries a
    party. The queries of a topic are shuffled and dealt out among its parties; where these are more than the queries,
    each holds one query, which several then share.

    The study has one party a topic and does not standardise, which leaves the clusters to the features with the largest
    numbers.

    Args:
        queries: The queries.
        parties: Number of parties, at least ``topics``. Parties of one topic have numbers in a row.
        topics: Number of clusters, at least 1.
        seed: Seed of k-means and of the deal.

    Returns:
        Shares that cover all queries, disjoint if no topic has more parties than queries.

    Raises:
        ConfigError: Fewer parties than topics, or fewer queries with different documents than topics.
    """
    require("sklearn", "Dividing queries by topic", "sklearn")
    from sklearn.cluster import k_means  # takes a second to import

    if not 1 <= topics <= parties:
        raise ConfigError(f"topics must be in 1..{parties}, one party for each at least; got {topics}.")
    means = query_means(queries)
    spread = means.std(axis=0)
    means = (means - means.mean(axis=0)) / np.where(spread > 0, spread, 1.0)
    different = len(np.unique(means, axis=0))
    if different < topics:
        raise ConfigError(f"there are {different} queries with different documents, too few for {topics} topics.")
    topic = np.asarray(k_means(means, topics, n_init=10, random_state=seed)[1])  # type: ignore[arg-type]

    queries_of = np.bincount(topic, minlength=topics)
    parties_of = np.ones(topics, np.int64)
    for _ in range(parties - topics):
        parties_of[np.argmax(queries_of / parties_of)] += 1
    rng = _generator(seed, _TOPICS)
    held = [_deal(np.flatnonzero(topic == t), int(parties_of[t]), rng) for t in range(topics)]
    return _shares(list(itertools.chain.from_iterable(held)))


def by_labels(queries: QuerySet, parties: int, labels_each: int, seed: int = 0) -> tuple[QuerySet, Shares]:
    """Each party sees only documents whose label is one of a few.

    All subsets of ``labels_each`` of the labels that occur are gone through in turn, in lexicographic order: party p
    has subset p modulo their number. For each subset in use, the queries are cut down to the documents with its labels.
    A query with fewer than two such documents is left out: there is nothing to rank. The parties of one subset divide
    its queries as those of a topic do in :func:`by_topic`.

    So a query may turn up under several subsets, each time with other documents, as in the first version of the study's
    split. With one label each (#R = 1) no document turns up twice, but no ranking of a party's documents is better than
    another either, and what is clicked is chance.

    Args:
        queries: The queries.
        parties: Number of parties.
        labels_each: #R, labels that a party sees, at least 1 and fewer than there are.
        seed: Seed of the deal (PCG64).

    Returns:
        The queries cut down, named after query and labels (``"q7 [0,2]"``), and shares of them that hold them all.

    Raises:
        ConfigError: No parties, all documents have one label, no subset of that size, or a subset without queries.
    """
    if parties < 1:
        raise ConfigError(f"parties must be at least 1, got {parties}.")
    known = np.unique(queries.labels)
    if len(known) < 2:
        raise ConfigError(f"all documents have the label {known[0]}: parties cannot differ in the labels they see.")
    if not 1 <= labels_each < len(known):
        raise ConfigError(
            f"labels_each must be in 1..{len(known) - 1}, got {labels_each}: the data has the labels "
            f"{', '.join(map(str, known))}, and a party that sees them all sees everything."
        )
    subsets = list(itertools.combinations(known.tolist(), labels_each))[:parties]
    rng = _generator(seed, _LABELS)
    parts, held, start = [], {}, 0
    for number, subset in enumerate(subsets):
        part = _cut_down(queries, subset)
        mine = range(number, parties, len(subsets))
        shares = _deal(start + np.arange(part.n_queries), len(mine), rng)
        held.update(zip(mine, shares, strict=True))
        parts.append(part)
        start += part.n_queries
    name = f"{queries.name}, {labels_each} of {len(known)} labels a party"
    return concatenate(parts, name), _shares([held[party] for party in range(parties)])


def users_of_parties(parties: int, kinds: int, seed: int = 0) -> Int32[np.ndarray, "{parties}"]:
    """The number of each party's user: all users equally often (but for one party), in random order.

    Args:
        parties: Number of parties.
        kinds: Number of users.
        seed: Seed of the order (PCG64).

    Returns:
        int32 [parties], in 0 .. kinds − 1.

    Raises:
        ConfigError: No parties or no users.

    >>> np.bincount(users_of_parties(8, kinds=3)).tolist()
    [3, 3, 2]
    """
    return _kinds(parties, kinds, _generator(seed, _USERS))


def amounts(
    parties: int, most: int, kinds: tuple[int, ...] = (1, 3, 5, 7, 9), *, even: bool = False, seed: int = 0
) -> Int32[np.ndarray, "{parties}"]:
    """Interactions of each party in a round, from a few amounts that occur equally often.

    Args:
        parties: Number of parties.
        most: Interactions of the busiest parties. The amounts are scaled so that their largest becomes this, and
            rounded up. With 9 they are the study's five.
        kinds: Relative amounts, above 0.
        even: Round up to even numbers, as antithetic halves want them; ``most`` must then be even.
        seed: Seed of who has which (PCG64).

    Returns:
        int32 [parties], in 1 .. most, or 2 .. most if even.

    Raises:
        ConfigError: No parties, no or no positive amounts, or a ``most`` that does not fit.

    >>> sorted(amounts(5, most=9).tolist()), sorted(amounts(5, most=4, even=True).tolist())
    ([1, 3, 5, 7, 9], [2, 2, 4, 4, 4])
    """
    if not kinds or min(kinds) < 1:
        raise ConfigError(f"kinds of amounts must be positive whole numbers, got {kinds}.")
    scaled = _rounded_up(np.asarray(kinds, np.int64) * most, max(kinds), most, even)
    return scaled[_kinds(parties, len(kinds), _generator(seed, _AMOUNTS))]


def query_means(queries: QuerySet) -> Float[np.ndarray, "queries features"]:
    """Mean of each query's feature vectors: float64 [q, f]."""
    sums = np.add.reduceat(queries.features.astype(np.float64), queries.offsets[:-1], axis=0)
    return sums / queries.lengths[:, None]


def _cut_down(queries: QuerySet, subset: tuple[int, ...]) -> QuerySet:
    """The documents with these labels, of the queries that have two or more of them."""
    fits = np.isin(queries.labels, subset)
    left = np.add.reduceat(fits, queries.offsets[:-1], dtype=np.int64)
    listed = ",".join(map(str, subset))
    if left.max() < 2:
        raise ConfigError(f"no query has two documents with labels {listed}; let each party see more labels.")
    row = np.flatnonzero(fits & np.repeat(left >= 2, queries.lengths))
    offsets = np.concatenate([[0], np.cumsum(left[left >= 2])])
    qids = np.array([f"{qid} [{listed}]" for qid in queries.qids[left >= 2]])
    return QuerySet(queries.features[row], queries.labels[row], offsets, qids, queries.name, queries.generated)


def _deal(queries: np.ndarray, parties: int, rng: np.random.Generator) -> list[np.ndarray]:
    """The queries, shuffled, in as many shares; one query each, some of them several times, if there are too few."""
    shuffled = rng.permutation(queries)
    if parties <= len(shuffled):
        return np.array_split(shuffled, parties)
    return [shuffled[[party % len(shuffled)]] for party in range(parties)]


def _shares(held: list[np.ndarray]) -> Shares:
    count = np.array([len(share) for share in held], np.int32)
    first = np.cumsum(count, dtype=np.int64) - count
    return Shares(np.concatenate(held).astype(np.int32), first.astype(np.int32), count)


def _generator(seed: int, purpose: int) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64([seed, purpose]))


def _kinds(parties: int, kinds: int, rng: np.random.Generator) -> np.ndarray:
    """Numbers 0 .. kinds − 1, each as often as the others but for one, in random order: int32 [parties]."""
    if parties < 1 or kinds < 1:
        raise ConfigError(f"there must be at least 1 party and 1 kind of party, got {parties} and {kinds}.")
    return rng.permutation(np.arange(parties, dtype=np.int32) % np.int32(kinds))


def _rounded_up(numerators: np.ndarray, denominators: int | np.ndarray, most: int, even: bool) -> np.ndarray:
    step = 2 if even else 1
    if most < 1 or most % step:
        raise ConfigError(f"most interactions must be {'even and ' * even}at least {step}, got {most}.")
    return (step * -(-numerators // (denominators * step))).astype(np.int32)
