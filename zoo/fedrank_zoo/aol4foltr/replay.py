"""Federated PDGD over a log of real users: each is a client with its own searches in their order of time.

Nothing simulates a user. A ranking of a search's candidates is drawn from the client's model, and what the user clicked
then counts as clicked wherever it stands now (the study of AOL4FOLTR, CIKM 2025). Two ways for answers to arrive:

* ``synchronous``: in round r every user with a whole r-th batch of searches takes part; the server takes the mean of
  the weights (FPDGD).
* ``asynchronous``: a batch is answered when its last search was made. The server merges the answer at once,
  θ ← (1 − w)θ + wθᵢ with w = 1/(s + 1), s the merges since this client's last, itself included.

Then a client goes on from λ times its own weights and 1 − λ times the server's. **The published code has λ = 1**: its
clients never take the server's model. λ = 0 is FPDGD as its paper has it.

Judged on the last searches of all, by the reciprocal rank of the first click among 20 (MRR@20). Without noise.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from fedrank.core.errors import ConfigError, DataError
from fedrank.core.lazy import jax, jnp
from fedrank.ranking.learners import pdgd_gradient, sample_ranking
from fedrank.ranking.rankers.linear import Linear
from fedrank_zoo.aol4foltr.log import UserLog

ARRIVALS = ("synchronous", "asynchronous")
#: Results shown and looked at.
DEPTH = 20


@dataclass(frozen=True)
class Replayed:
    """The course of a replay.

    Attributes:
        events: int [m], searches learned from when the model was judged.
        mrr: float [m], MRR@20 of the server's model on the held-out searches.
        weights: float32 [n], the server's last model.
    """

    events: Int[np.ndarray, " m"]
    mrr: Float[np.ndarray, " m"]
    weights: Float[np.ndarray, " n"]


def replay_log(
    log: UserLog,
    arrival: str = "asynchronous",
    batch: int = 4,
    events: int | None = None,
    learning_rate: float = 0.1,
    own: float = 0.0,
    held_out: float = 0.2,
    shuffled: bool = False,
    seed: int = 0,
    points: int = 20,
) -> Replayed:
    """Train a linear ranker on a log.

    Args:
        log: The searches.
        arrival: One of :data:`ARRIVALS`.
        batch: Searches of an answer.
        events: Most searches to learn from; None: all.
        learning_rate: η of PDGD.
        own: λ, the part of its previous weights that a client keeps, in [0, 1].
        held_out: Share of the searches, the last ones, that the model is judged on.
        shuffled: Deal the searches that are learned from out to the users at random, so that all are alike.
        seed: Seed of rankings and of that deal.
        points: Times that the model is judged, about.

    Raises:
        ConfigError: Numbers that make no sense.
        DataError: No user has a whole batch.
    """
    if arrival not in ARRIVALS:
        raise ConfigError(f"arrival must be one of {', '.join(ARRIVALS)}, got {arrival!r}.")
    if batch < 1 or not 0 <= own <= 1 or not 0 < held_out < 1 or not 0 < learning_rate < 1e6 or points < 1:
        raise ConfigError(
            "batch and points must be at least 1, own in [0, 1], held_out in (0, 1), learning_rate positive; got "
            f"{batch}, {points}, {own}, {held_out}, {learning_rate}."
        )
    n = log.queries.n_queries
    cut = int(n * (1 - held_out))
    users, random = len(log.names), np.random.default_rng(seed)
    user = log.user[:cut]
    steps = rounds_of(random.permutation(user) if shuffled else user, users, batch, arrival)
    if events is not None:
        taken = np.cumsum([len(members) * batch for members, _ in steps])
        steps = steps[: int(np.searchsorted(taken, events, side="right"))]
    if not steps:
        raise DataError(f"no user has {batch} searches to learn from, or fewer than one round fits into {events}.")
    data, ranker = log.queries.padded(), Linear(log.queries.n_features)
    features, labels, where = (jnp.asarray(a) for a in (data.features, data.labels, data.where))

    @jax.jit
    def learn(weights: Any, queries: Any, keys: Any) -> Any:
        """New weights [clients, n] after a batch each."""

        def client(weights: Any, queries: Any, key: Any) -> Any:
            def step(weights: Any, each: Any) -> tuple[Any, None]:
                query, key = each
                bits = jax.random.bits(key, where.shape[1:], jnp.uint32)
                ranking = sample_ranking(ranker.scores(weights, features[query]), where[query], bits, DEPTH)
                pattern = jnp.sum((labels[query][ranking] > 0) << jnp.arange(ranking.shape[0]))
                gradient = pdgd_gradient(ranker, weights, features[query], where[query], ranking, pattern)
                return weights + jnp.float32(learning_rate) * gradient, None

            return jax.lax.scan(step, weights, (queries, jax.random.split(key, batch)))[0]

        return jax.vmap(client)(weights, queries, keys)

    server, clients = np.zeros(ranker.size, np.float32), np.zeros((users, ranker.size), np.float32)
    merged = np.zeros(users, int)
    key, wide = jax.random.key(seed), users if arrival == "synchronous" else 1
    seen, course, every = 0, [(0, mrr(log, server, cut))], max(1, len(steps) // points)
    for number, (members, queries) in enumerate(steps):
        padded = np.zeros((wide, batch), np.int32)  # one compiled shape
        padded[: len(members)] = queries
        start = np.zeros((wide, ranker.size), np.float32)
        start[: len(members)] = clients[members]
        keys = jax.random.split(jax.random.fold_in(key, number), wide)
        answers = np.asarray(learn(start, padded, keys))[: len(members)]
        if arrival == "synchronous":
            server = answers.mean(axis=0)
            clients[members] = answers
            clients = np.float32(own) * clients + np.float32(1 - own) * server
        else:
            (member,) = members
            weight = np.float32(1 / (number + 1 - merged[member] + 1))
            merged[member] = number + 1
            server = (1 - weight) * server + weight * answers[0]
            clients[member] = np.float32(own) * answers[0] + np.float32(1 - own) * server
        seen += len(members) * batch
        if (number + 1) % every == 0 or number + 1 == len(steps):
            course.append((seen, mrr(log, server, cut)))
    judged, values = zip(*course, strict=True)
    return Replayed(np.asarray(judged), np.asarray(values), server)


def rounds_of(
    user: Int[np.ndarray, " n"], users: int, batch: int, arrival: str
) -> list[tuple[Int[np.ndarray, " members"], Int[np.ndarray, "members {batch}"]]]:
    """Users who answer in each round, and the searches of their answers; whole batches only.

    Args:
        user: int [n], the user of each search, in the order of time.
        users: Number of users.
        batch: Searches of an answer.
        arrival: One of :data:`ARRIVALS`.
    """
    batches = []
    for member in range(users):
        mine = np.flatnonzero(user == member)
        whole = mine[: len(mine) // batch * batch].reshape(-1, batch)
        batches += [(index, member, searches) for index, searches in enumerate(whole)]
    if arrival == "asynchronous":
        ordered = sorted(batches, key=lambda one: int(one[2][-1]))
        return [(np.asarray([member]), searches[None]) for _, member, searches in ordered]
    last = max((index for index, _, _ in batches), default=-1)
    out = []
    for number in range(last + 1):
        these = [(member, searches) for index, member, searches in batches if index == number]
        out.append((np.asarray([m for m, _ in these]), np.stack([s for _, s in these])))
    return out


def mrr(log: UserLog, weights: Float[np.ndarray, " n"], first: int) -> float:
    """MRR@20 of a linear ranker on the searches from number ``first`` on; equal scores stay in the data's order."""
    q, total = log.queries, 0.0
    scores = q.features[q.offsets[first] :] @ weights
    labels, offsets = q.labels[q.offsets[first] :], q.offsets[first:] - q.offsets[first]
    for start, stop in itertools.pairwise(offsets):
        order = np.argsort(-scores[start:stop], kind="stable")[:DEPTH]
        hit = np.flatnonzero(labels[start:stop][order] > 0)
        total += 1 / (hit[0] + 1) if hit.size else 0.0
    return total / (len(offsets) - 1)
