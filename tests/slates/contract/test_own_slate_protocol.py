"""A protocol of somebody else for platforms that share users: an object that is handed to a run, registered nowhere.

Every platform shows random slates, and tells the coordinator how often it has done so.
"""

import json
import secrets
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import polars as pl
import pytest
from jaxtyping import Array

import fedrank
from fedrank.core.messages import Array as WireArray
from fedrank.core.messages import field, message, u4
from fedrank.core.protocol import Environment, Exchange, Party
from fedrank.slates.protocol import PlatformProtocol
from fedrank.slates.world.policies import BASELINES
from fedrank.slates.world.satisfaction import Satisfaction


@message(kind=1)
class Show:
    """Coordinator to platforms: show a slate."""

    round: WireArray = field(u4, "number of the round")


@message(kind=2)
class Shown:
    """Platform to coordinator: how many slates it has shown."""

    slates: WireArray = field(u4, "number of slates that the platform has shown")


class Own(NamedTuple):
    slate: Array
    shown: Array


@dataclass(frozen=True)
class Users(Environment):
    world: Satisfaction

    def begin(self, key, own):
        return self.world.first(self.world.draw(key)), own

    def happen(self, world, own, key, number):
        scene, turns, over = self.world.round(world, own.slate, self.world.draw(key))
        return scene, own, {"engagement": turns.engagement, "over": over}


@dataclass(frozen=True)
class ShowRandom(Exchange, request=Show, reply=Shown):
    world: Satisfaction
    name = "show"

    @property
    def environment(self):
        return Users(self.world)

    def ask(self, state):
        return Show(state[1])

    def draw(self, key):
        return jax.random.permutation(key, self.world.candidates)[: self.world.slate].astype(jnp.int32)

    def draw_from_os(self):
        shown = secrets.SystemRandom().sample(range(self.world.candidates), self.world.slate)
        return jnp.asarray(shown, jnp.int32)

    def respond(self, request, party, draws):
        own = Own(draws, party.own.shown + 1)
        return party._replace(own=own), Shown(own.shown)

    def tell(self, state, replies, arrived):
        return jnp.sum(replies.slates * arrived, dtype=jnp.float32)[None], state[1] + 1


@dataclass(frozen=True)
class RandomSlates(PlatformProtocol):
    world: Satisfaction
    name = "random-slates"

    @property
    def feedback(self):
        return (True,) * self.world.platforms

    @property
    def exchanges(self):
        return (ShowRandom(self.world),)

    def init(self, key):
        return jnp.zeros(1), jnp.uint32(0)

    def weights(self, state):
        return state[0]

    def parties(self, keys):
        runs, k = keys.shape[0], self.world.platforms
        return Party(None, Own(jnp.zeros((runs, k, self.world.slate), jnp.int32), jnp.zeros((runs, k), jnp.uint32)))

    def policy(self, state, own):
        return BASELINES.get("random")(self.world)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    world = Satisfaction(candidates=4, slate=2, time_budget=8)
    settings = {"rounds": 12, "seeds": 2, "evaluation": {"every": 6, "episodes": 3, "baselines": ["random"]}}
    return fedrank.run(RandomSlates(world), folder=tmp_path_factory.mktemp("own") / "run", **settings).path


def test_what_users_brought_is_measured(folder):
    metrics = pl.read_parquet(folder / "metrics.parquet")
    assert set(metrics["measure"]) == {"engagement", "engagement (A)", "engagement (B)"}
    assert metrics.filter(pl.col("split") == "online")["round"].unique().sort().to_list() == [4, 8, 12]
    found = json.loads((folder / "slates.json").read_text())["results"]
    # The same policy for the same users as the baseline.
    assert found["against"]["random"]["engagement"]["value"] == pytest.approx(0, abs=1e-3)


def test_messages_are_counted_and_nothing_is_promised(folder):
    ledger = [json.loads(line) for line in (folder / "ledger.jsonl").read_text().splitlines()]
    up = [line for line in ledger if line["sender"] == "parties"]
    assert sum(line["bytes"] for line in up) == 12 * 2 * 5
    assert json.loads((folder / "privacy.json").read_text())["epsilon_round"] is None


def test_the_coordinators_state_is_kept_for_each_seed(folder):
    from safetensors.numpy import load_file

    for seed in range(2):
        np.testing.assert_array_equal(load_file(folder / "weights" / f"seed{seed}.safetensors")["federated"], [24.0])
