"""A run of planned slates leaves a model that loads from its file, without JAX, and serves as its plan says."""

import dataclasses
import itertools
import json
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import fedrank
from fedrank.core.errors import ConfigError, DataError, ModelError, UnknownNameError

SETTINGS = {
    "rounds": 60,
    "seeds": 1,
    "world": {"candidates": 4, "slate": 2, "time_budget": 12},
    "slates": {"explorers": 5, "evidence": 0.0},
    "evaluation": {"episodes": 2, "baselines": ["random"]},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return fedrank.train("planned-slates", folder=tmp_path_factory.mktemp("planned") / "run", **SETTINGS).path


@pytest.fixture(scope="module")
def model(folder):
    return fedrank.load(folder)


def _last_round(model, documents, known):
    """exp(c + w z + t x / 2), as the model of engagement is written down; A's other platform acts once more."""
    c, w, mine, other = model.model.astype(float)
    z = 2 * np.asarray(documents) - 1
    after = 0.81 * known - z  # the past fades by 0.9 a tick of two platforms
    mean = float(model.learnt["learnt.typical A"].reshape(()))
    return np.exp(c + w * z + mine * known / 2) + np.exp(c + w * mean + other * after / 2)


def test_a_click_in_the_last_round_is_worth_what_the_model_says(model):
    documents = [0.1, 0.9, 0.4, 0.7, 0.2]
    view = model.view(documents, known=np.float32(1.5), into=5)
    np.testing.assert_allclose(model.score(view), _last_round(model, documents, 1.5), rtol=1e-4)


def test_its_slate_is_the_best_of_all_slates(model):
    documents = np.array([0.1, 0.9, 0.4, 0.7, 0.2])
    view = model.view(documents)
    worth, odds = model.score(view), np.exp(1 - documents)
    best = max(
        itertools.combinations(range(5), 2),
        key=lambda slate: (worth[list(slate)] @ odds[list(slate)]) / odds[list(slate)].sum(),
    )
    assert sorted(model.slate(view).tolist()) == list(best)


def test_what_is_kept_of_a_user_fades_and_counts_the_click(model):
    view = model.view([0.1, 0.9, 0.4], known=np.float32(1.0))
    assert model.after(view, 1) == pytest.approx(0.81 - 0.8, abs=1e-6)
    assert model.after(view, None) == pytest.approx(0.81)


def test_a_saved_model_is_the_same(model, tmp_path):
    again = fedrank.load(model.save(tmp_path / "model.safetensors"))
    assert again.to_bytes() == model.to_bytes() and again.privacy == model.privacy


def test_it_needs_no_jax(folder):
    code = (
        f"import fedrank, sys; m = fedrank.load({str(folder)!r}); m.slate(m.view([.1, .5, .9])); "
        "assert 'jax' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("wrong", [{"documents": [0.5]}, {"documents": [0.1, np.nan]}, {"into": 6}])
def test_what_is_no_view_is_refused(model, wrong):
    with pytest.raises(DataError):
        model.view(**{"documents": [0.1, 0.2, 0.3], **wrong})


def test_another_platform_is_refused(model):
    with pytest.raises(UnknownNameError):
        model.slate(model.view([0.1, 0.2, 0.3]), platform="C")


def test_a_model_whose_trial_failed_shows_slates_at_random(model):
    """After a verdict against the plan the slate follows no value: each of five candidates is shown by chance."""
    fallen = {f"verdict {name}": np.array([2, 0, -1, 0, -1, 0, 0], np.float32) for name in model.names}
    failed = dataclasses.replace(model, learnt={**model.learnt, **fallen})
    lists = np.random.default_rng(3).random((400, 5))
    shown = np.concatenate([failed.slate(failed.view(one)) for one in lists])
    best = np.argsort([failed.score(failed.view(one)) for one in lists], axis=1)
    by_rank = [np.mean([best[i, r] in shown[2 * i : 2 * i + 2] for i in range(400)]) for r in range(5)]
    np.testing.assert_allclose(by_rank, 0.4, atol=4 * (0.24 / 400) ** 0.5)
    assert len({tuple(failed.slate(failed.view(lists[0]))) for _ in range(40)}) > 5, "one list has many slates"


def test_a_run_starts_from_a_saved_model_and_serves_by_it(folder, model, tmp_path):
    """Without explorers nothing is learnt anew: model and tables stay those of the file, and the first user is served
    by them; explorers whose fit says no more than its noise leave the model as it was."""
    start = str(tmp_path / "start.safetensors")
    model.save(start)
    again = {**SETTINGS, "start_from": start, "slates": {}}
    run = fedrank.train("planned-slates", folder=tmp_path / "warm", **again)
    warm: Any = fedrank.load(run.path)
    assert set(warm.tensors) == set(model.tensors)
    for name, values in warm.tensors.items():
        if not name.startswith("verdict") and not name.startswith("learnt.lists"):
            np.testing.assert_array_equal(values, model.tensors[name])
    view = warm.view([0.1, 0.9, 0.4, 0.7])
    np.testing.assert_array_equal(warm.slate(view), model.slate(model.view([0.1, 0.9, 0.4, 0.7])))
    first = [json.loads((path / "stays.json").read_text())["run"] for path in (run.path, folder)]
    assert first[0] == first[1]  # the same fresh users, served by the same plan
    poor = {**SETTINGS, "start_from": start, "slates": {"explorers": 1, "evidence": 100.0}}
    kept: Any = fedrank.load(fedrank.train("planned-slates", folder=tmp_path / "poor", **poor).path)
    np.testing.assert_array_equal(kept.model, model.model)


def test_a_model_of_other_sizes_or_another_format_is_refused(model, tmp_path):
    start = tmp_path / "start.safetensors"
    model.save(start)
    other = {**SETTINGS, "world": {**SETTINGS["world"], "candidates": 5}, "start_from": str(start)}
    with pytest.raises(ConfigError, match="candidates"):
        fedrank.train("planned-slates", folder=tmp_path / "a", **other)
    content = start.read_bytes()
    place = content.index(b'\\"format\\": 1')
    start.write_bytes(content[:place] + b'\\"format\\": 2' + content[place + 13 :])
    with pytest.raises(ModelError, match="format 2"):
        fedrank.load(start)
