"""The task of silos with texts: own data and own protocols are built, and run as named ones are."""

import dataclasses

import numpy as np
import pytest
import text_worlds

import fedrank
from fedrank.core.errors import ConfigError
from fedrank.engine.methods import method, task_of
from fedrank.engine.settings import read_config
from fedrank.engine.task import Given
from fedrank.silos.averaging import FedAvg
from fedrank.texts.config import Evaluation, Sketch, Texts, TextsRun, Training
from fedrank.texts.data.generate import generate_texts
from fedrank.texts.silo_sketch import SiloSketch
from fedrank.texts.task import TASK

SKETCH = Sketch(mode="plain", z=2, w=64, statistics_z=2, statistics_w=256)
CONFIG = TextsRun(
    seeds=2,
    texts=Texts(silos=3, depth=4, negatives=1, foreign=2),
    method=SiloSketch(sketch=SKETCH),
    evaluation=Evaluation(baselines=("local", "exact")),
).resolved()


class Halved(SiloSketch):
    """Somebody's own variant."""

    name = "halved"


def _texts(seed, documents=36):
    return generate_texts(seed, documents=documents, queries=18, topics=3, words=500, length=12)


def test_the_protocol_and_its_task_are_found_by_name():
    assert task_of("silo-sketch") is TASK and method("silo-sketch").protocol is SiloSketch
    assert (
        TextsRun.of(SiloSketch()).protocol == "silo-sketch"
        and TASK.folder_name(CONFIG) == "silo-sketch-generated-plain"
    )


def test_a_collection_of_the_callers_own_is_cut_into_silos_and_several_are_one_each():
    one = TASK.build(CONFIG, Given(data=_texts(1)))
    assert one.n_parties == 3 and sum(silo.n_documents for silo in one.federations[0].silos) == 36
    several = [dataclasses.replace(_texts(seed), name=name) for seed, name in ((1, "north"), (2, "south"))]
    config = dataclasses.replace(CONFIG, texts=Texts(depth=4, negatives=1, foreign=2))
    assert TASK.build(config, Given(data=several)).names == ("north", "south")


def test_a_protocol_of_the_callers_own_gets_the_setup_of_the_settings():
    mine = Halved(sketch=SKETCH, training=Training(local_steps=2))
    experiment = TASK.build(dataclasses.replace(CONFIG, method=mine), Given(data=_texts(1)))
    made = experiment.protocol
    assert (
        isinstance(made, Halved) and made.training.local_steps == 2 and made.account(4, 1e-6).details["mode"] == "plain"
    )
    assert "shi2021csfltr" not in experiment.citations
    own, shared = experiment.parties.own, experiment.parties.shared
    assert own.local.shape == (6, 3, made.learner.size)  # three variants of two seeds
    assert shared.x.shape[:3] == (4, 2, 3)
    np.testing.assert_array_equal(own.features, np.repeat([[0], [1], [2]], 2, axis=0).repeat(3, axis=1))
    assert experiment.setup_results() is experiment.setup_results()


def test_another_kind_of_protocol_is_refused():
    other = FedAvg()
    with pytest.raises(ConfigError, match="must be a SiloSketch"):
        TextsRun.of(other)


def test_a_setup_takes_silos_that_can_see_each_others_documents():
    setup = text_worlds.setup_of("plain")
    for silos in (0, 1):
        with pytest.raises(ConfigError, match="silos must be at least 2"):
            dataclasses.replace(setup, silos=silos)


def test_a_method_with_its_settings_is_trained(tmp_path):
    """In Python the class is the configuration; further settings change it, and the run's folder has both."""
    mine = SiloSketch(sketch=SKETCH, training=Training(local_steps=2, batch=8, cross_batch=8), learning_rate=0.1)
    run = {"rounds": 2, "texts": {"silos": 2, "depth": 4, "negatives": 1, "foreign": 2}, "l2": 0.01}
    result = fedrank.train(mine, _texts(1), folder=tmp_path / "run", baselines=[], folds=0, **run)
    assert np.isfinite(np.asarray(result.model().weights)).all()
    kept = read_config(tmp_path / "run" / "config.toml").method
    assert kept == dataclasses.replace(mine.resolved(), training=dataclasses.replace(mine.training, l2=0.01))
