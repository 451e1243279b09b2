"""A search goes on where it stopped, keeps to its space, and chooses by what it was told to."""

import optuna
import pytest

from fedrank.core.errors import ConfigError, MissingExtraError, RunError
from fedrank.engine.run_folder import RunFolder
from fedrank.engine.settings import from_dict
from fedrank_zoo.optuna_search import search
from fedrank_zoo.optuna_search.search import Range, best, parse_space, run_search

CONFIG = from_dict({"clients": 10, "rounds": 5})
SPACE = {"sigma": Range(0.001, 0.1, log=True), "clients": Range(5, 9), "ranker": ["linear", "mlp"]}


@pytest.fixture
def configs(monkeypatch):
    """Runs that leave their configuration only; what is told and how often."""
    made = []

    def run(config, folder, listener):
        made.append(config)
        RunFolder(folder).create(config)
        return folder

    monkeypatch.setattr(search, "run_experiment", run)
    monkeypatch.setattr(search, "resume_experiment", lambda folder, listener: made.append("resumed"))
    return made


def clients(folder):
    return float(RunFolder(folder).reopen().clients)


def test_ranges_and_lists_are_read():
    assert parse_space(["sigma=0.001..0.1:log", "clients=5..9", "ranker=linear,mlp"]) == SPACE
    assert parse_space(["sigma=-1..1.5"]) == {"sigma": Range(-1.0, 1.5)}
    for wrong in (["sigma=2..1"], ["sigma=0..1:log"], ["sigma=.1..1", "sigma=1,2"], ["sigma"], ["sigma=1..e"]):
        with pytest.raises(ConfigError, match="vary"):
            parse_space(wrong)


def test_trials_stay_in_their_space_and_the_best_is_found(tmp_path, configs):
    found = run_search(CONFIG, SPACE, tmp_path, clients, trials=12)
    assert len(found) == len(configs) == 12 and [one.number for one in found] == list(range(12))
    for trial, config in zip(found, configs, strict=True):
        assert 0.001 <= config.method.sigma <= 0.1 and 5 <= config.clients <= 9 and config.ranker in ("linear", "mlp")
        settings = {"sigma": config.method.sigma, "clients": config.clients, "ranker": config.ranker}
        assert trial.settings == settings and trial.value == config.clients
    assert len({config.method.sigma for config in configs}) == 12
    assert best(found).value == max(one.clients for one in configs)
    assert best(found, minimise=True).value == min(one.clients for one in configs)


def test_a_search_goes_on_with_the_run_that_was_stopped(tmp_path, configs):
    def stopped(folder):
        raise KeyboardInterrupt

    first = run_search(CONFIG, SPACE, tmp_path, clients, trials=2)
    with pytest.raises(KeyboardInterrupt):
        run_search(CONFIG, SPACE, tmp_path, stopped, trials=4)
    drawn = configs[-1]
    found = run_search(CONFIG, SPACE, tmp_path, clients, trials=4)
    assert found[:2] == first and len(found) == 4
    assert (
        configs[3] == "resumed" and found[2].settings["sigma"] == drawn.method.sigma and found[2].value == drawn.clients
    )
    assert len({trial.settings["sigma"] for trial in found}) == 4
    assert run_search(CONFIG, SPACE, tmp_path, clients, trials=4) == found and len(configs) == 5


def test_a_folder_has_one_search(tmp_path, configs):
    run_search(CONFIG, SPACE, tmp_path, clients, trials=1)
    for other in ({"space": {"clients": [1, 2]}}, {"about": "vali: RR@10"}, {"minimise": True}):
        with pytest.raises((RunError, ValueError), match=r"something else|direction"):
            run_search(CONFIG, **{"space": SPACE, **other}, folder=tmp_path, objective=clients, trials=2)


def test_settings_that_are_refused_are_trials_that_failed(tmp_path, monkeypatch, configs):
    found = run_search(CONFIG, {"rounds": [3, 0]}, tmp_path, clients, trials=8)
    failed = [trial for trial in found if trial.failed]
    assert failed and len(failed) == len(found) - len(configs) and all("rounds" in trial.failed for trial in failed)
    assert all(trial.value is None and trial.settings == {"rounds": 0} for trial in failed)
    with pytest.raises(RunError, match="all 1 trials failed"):
        best(failed[:1])
    with pytest.raises(ConfigError, match="sigmo"):
        run_search(CONFIG, {"sigmo": [1, 2]}, tmp_path / "other", clients, trials=1)
    monkeypatch.setattr("fedrank.core.lazy.find_spec", lambda package: None)
    with pytest.raises(MissingExtraError, match=r"fedrank\[optuna\]"):
        run_search(CONFIG, SPACE, tmp_path / "none", clients, trials=1)


def test_optuna_itself_reads_what_a_search_leaves(tmp_path, configs):
    found = run_search(CONFIG, SPACE, tmp_path, clients, trials=3)
    study = optuna.load_study(study_name="fedrank", storage=f"sqlite:///{tmp_path / 'search.db'}")
    assert study.best_value == best(found).value and [one.value for one in study.trials] == [t.value for t in found]
