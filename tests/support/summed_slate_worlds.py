"""Three platforms with tiny networks whose coordinator sees sums, in the middle of a run, one exchange at a time."""

from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np

from fedrank.core.protocol import Party
from fedrank.slates.fedslate import FedSlate
from fedrank.slates.fedslate.secure_sum import SecureSum
from fedrank.slates.fedslate.settings import Exploration, SlateSettings
from fedrank.slates.fedslate_2024 import Fault
from fedrank.slates.networks import ItemHead, ItemQ
from fedrank.slates.world.satisfaction import Satisfaction

K, N, B, ROUNDS = 3, 4, 3, 9
EVERYBODY = jnp.ones(K, bool)


def settings(**given):
    """Features as they come, so that a candidate's is its kaleness."""
    world = Satisfaction(candidates=N, slate=2, platforms=given.pop("platforms", K), time_budget=12)
    feedback = given.pop("feedback", (True,) + (False,) * (world.platforms - 1))
    given = {"secure_sum": SecureSum(), "faults": (Fault.RAW_FEATURES,), "regress": "shown", **given}
    given = {"exploration": Exploration(0.0, 1.0, 0.0), "learning_rate": 0.05, **given}
    given = {"batch": B, "memory": 8, "burn_in": 5, "learn_every": 2, "copy_every": 4, **given}
    return SlateSettings(world, ItemQ(4, 1, (3,)), ItemHead((3,)), feedback, **given)


def summed(noise=None, **given):
    return FedSlate(settings(noise=noise, **given))


PROTOCOL = summed()


def exchange(name, protocol=PROTOCOL):
    return next(e for e in protocol.exchanges if e.name == name)


@partial(jax.jit, static_argnums=0)
def _asked(name, state, own, heard):
    e = exchange(name)
    request = e.ask(state)

    def answer(own, key):
        party, reply = e.answer(request, Party(None, own), key)
        return party.own, reply

    own, replies = jax.vmap(answer)(own, jax.random.split(jax.random.key(5), K))
    return request, e.tell(state, replies, heard), own, replies


def asked_of_all(name, state, own, heard=EVERYBODY):
    """One exchange with every platform: the request, the states after it, the replies [K, ...]."""
    return _asked(name, state, own, heard)


def through(names, state, own):
    """The states after some exchanges."""
    for name in names:
        _, state, own, _ = asked_of_all(name, state, own)
    return state, own


@cache
def met():
    """Coordinator and platforms in the middle of a run, made up (a run would have to be compiled), with a batch."""
    rng = np.random.default_rng(0)

    def start():
        platforms = PROTOCOL.parties(jax.random.split(jax.random.key(1), 1))
        return PROTOCOL.init(jax.random.key(0)), jax.tree.map(lambda leaf: leaf[0], platforms.own)

    def made_up(leaf):
        if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            return jax.random.key(0)
        kind = jnp.issubdtype(leaf.dtype, jnp.floating)
        return jnp.asarray(rng.uniform(-1, 1, leaf.shape) if kind else np.ones(leaf.shape), leaf.dtype)

    state, own = jax.tree.map(made_up, jax.eval_shape(start))
    slates = np.stack([[rng.permutation(N)[:2] for _ in range(8)] for _ in range(K)]).astype(np.int32)
    slots = rng.integers(0, 2, (K, 8))
    clicked = np.take_along_axis(slates, slots[..., None], axis=2)[..., 0]
    told = np.arange(K)[:, None] == 0
    own = own._replace(
        number=jnp.arange(K),
        feedback=jnp.arange(K) == 0,
        rounds=jnp.full(K, 9),
        optimiser=jax.tree.map(jnp.abs, own.optimiser),
        view=own.view._replace(documents=jnp.abs(own.view.documents)),
        replay=own.replay._replace(
            items=jnp.abs(own.replay.items),
            slate=jnp.asarray(slates),
            item=jnp.asarray(np.where(told, clicked, -1), jnp.int32),
            slot=jnp.asarray(np.where(told, slots, 2), jnp.int32),
            over=jnp.asarray(rng.integers(0, 2, (K, 8)), jnp.float32),
        ),
    )
    state = state._replace(round=jnp.uint32(9), optimiser=jax.tree.map(jnp.abs, state.optimiser))
    return through(["look", "batch", "targets"], state, own)
