"""Play a bandit whose mean increments are known, to see which arms a decision rule plays and what its regret is."""

from __future__ import annotations

from jaxtyping import Bool, Float, Int, Key

from fedrank.core.arrays import JaxArray as Array
from fedrank.core.lazy import jax, jnp
from fedrank.silos.bandits.rules import Rule, best, choose, explores, start, update


def play(
    rule: Rule,
    means: Float[Array, "*rounds arms"],
    rounds: int,
    key: Key[Array, ""],
    noise: float | Float[Array, ""] = 0.1,
    binary: bool | Bool[Array, ""] = False,
) -> tuple[Int[Array, " rounds"], Float[Array, " rounds"]]:
    """Play a bandit for so many rounds in one ``lax.scan``; ``vmap`` over rules and keys.

    In an Extreme-Explore round all arms are observed, and the arm of the round is that of the highest reward, as its
    model would become the global one.

    Args:
        rule: The rule.
        means: Mean increments, [arms], or [rounds, arms] if they change.
        rounds: Number of rounds; static.
        key: Consumed.
        noise: Standard deviation of increments around their mean (normal).
        binary: Increments are 0 or 1 instead, and ``means`` the probabilities of 1; give the rule a threshold between.

    Returns:
        The arms, and the regret of each round: how far the mean of its arm is below that of the best arm of the round.
        Its running sum is the regret curve.
    """
    arms = means.shape[-1]
    table = jnp.broadcast_to(means if means.ndim == 2 else means[None, :], (rounds, arms))
    playable = jnp.ones(arms, bool)

    def step(estimates, inputs):
        round, mean = inputs
        explore_key, world, own = jax.random.split(jax.random.fold_in(key, round), 3)
        normal = jax.random.normal(world, (arms,), jnp.float32)
        wins = jax.scipy.special.ndtr(normal) < mean  # Φ of a normal number is uniform
        increments = jnp.where(binary, wins.astype(jnp.float32), mean + noise * normal)
        everything = explores(rule, round, explore_key)
        arm = jnp.where(everything, best(rule, estimates, increments, playable), choose(rule, estimates, playable, own))
        observed = everything | (jnp.arange(arms) == arm)
        return update(rule, estimates, increments, observed), (arm, jnp.max(mean) - mean[arm])

    _, (chosen, regret) = jax.lax.scan(step, start(rule, arms), (jnp.arange(rounds, dtype=jnp.int32), table))
    return chosen, regret
