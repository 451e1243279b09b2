"""Users whom platforms that send sums explore: what each adds to the sums, its engagement, what platforms see of it."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

from fedrank.core.lazy import jit
from fedrank.core.protocol import Exchange, Party
from fedrank.slates.attacks.crossing import Parties
from fedrank.slates.sums import SummedSlates


class Stays(NamedTuple):
    """Whole stays of users.

    Attributes:
        sums: What each adds to the sums of a platform, clipped, in steps.
        norms: What each adds to its counts of norms; zeros of all but those by whom the clip is found.
        logs: Mean logarithm of the engagement of its clicks there; 0 where nothing was clicked.
        known: What the platform sees of it without any message: the mean of the satisfaction that it observes, and of
            its second half; with feedback also the logarithm of engagement, and what it adds to the sums.
    """

    sums: Int[np.ndarray, "users platforms statistics"]
    norms: Int[np.ndarray, "users platforms bins"]
    logs: Float[np.ndarray, "users platforms"]
    known: Float[np.ndarray, "users platforms features"]


def stays(protocol: SummedSlates, before: Parties, first: int, key: Key[Array, ""], users: int) -> Stays:
    """Play users one by one, each as the only one since the last release.

    Args:
        protocol: The protocol.
        before: Everybody before these users; the platforms' clip and model count.
        first: Number of their first round, which says whether the clip is found by them or sums are made of them.
        key: Consumed.
        users: How many.
    """
    # What users do does not depend on noise that is drawn later: one program for all ε.
    quiet = replace(protocol, settings=replace(protocol.settings, epsilon=None))
    sums, norms, observed, engagement = map(np.asarray, _played(quiet, before, first, jax.random.split(key, users)))
    clicked = engagement > 0
    logs = np.where(clicked, np.log(np.where(clicked, engagement, 1.0)), 0.0).sum(1) / np.maximum(clicked.sum(1), 1)
    feedback = np.asarray(protocol.feedback)
    half = observed.shape[1] // 2
    seen = [observed.mean(1), observed[:, half:].mean(1), np.where(feedback, logs, 0.0)]
    known = np.concatenate([np.stack(seen, axis=2), sums, norms], axis=2).astype(np.float64)
    return Stays(sums, norms, logs.astype(np.float64), known)


@partial(jit, quick=True, static_argnums=0)
def _played(
    protocol: SummedSlates, before: Parties, first: Int[Array, ""] | int, keys: Key[Array, " users"]
) -> tuple[Any, ...]:
    show: Exchange = next(one for one in protocol.exchanges if one.environment is not None)
    visits, k, rounds = show.environment, protocol.world.platforms, protocol.world.rounds_per_episode
    assert visits is not None  # there is one

    def of_user(key):
        begin, later = jax.random.split(key)
        own = before.own._replace(rounds=jnp.full(k, first, jnp.int32))
        scene, own = visits.begin(begin, own)

        def one_round(carry, given):
            scene, own = carry
            key, number = given
            drawing, acting = jax.random.split(key)
            draws = jax.vmap(show.draw)(jax.random.split(drawing, k))
            request = show.ask(before.state._replace(round=number.astype(jnp.uint32)))
            party, _ = jax.vmap(show.respond, in_axes=(None, 0, 0))(request, Party(None, own), draws)
            observed = own.view.observed
            scene, own, seen = visits.happen(scene, party.own, acting, number)
            return (scene, own), (observed, seen["engagement"])

        numbers = first + jnp.arange(rounds)
        (_, own), shown = jax.lax.scan(one_round, (scene, own), (jax.random.split(later, rounds), numbers))
        return own.sums - before.own.sums, own.norms - before.own.norms, *shown

    return jax.vmap(of_user)(keys)
