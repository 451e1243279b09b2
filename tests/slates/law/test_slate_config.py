"""Runs of platforms: what settings come to, what is refused, and what a run keeps, counts and goes on with."""

import dataclasses
import json
from typing import Any

import numpy as np
import polars as pl
import pytest

import fedrank
from fedrank.core.errors import ConfigError, FedrankError, RunError
from fedrank.core.fields import settings_of
from fedrank.core.frame import Frame
from fedrank.engine.config import Compute
from fedrank.engine.progress import Listener
from fedrank.engine.run import config_of, resume_experiment, run_experiment
from fedrank.engine.run_folder import SCHEMA, RunFolder
from fedrank.engine.settings import as_dict, changes, from_dict, read_config, to_toml, with_setting
from fedrank.slates.build import experiment_of
from fedrank.slates.config import (
    Evaluation,
    SlatesRun,
    World,
)
from fedrank.slates.fedslate import FedSlate, LocalSlateQ
from fedrank.slates.fedslate.learner import SlateQ
from fedrank.slates.fedslate.settings import FederatedSlates, Sharing
from fedrank.slates.networks import ItemHead, ItemLinearHead, ItemQ
from fedrank.slates.planning import PlannedSlates, Planning
from fedrank.slates.results import results
from fedrank.slates.run import SlateRunner
from fedrank.slates.task import TASK
from fedrank.slates.world.satisfaction import Satisfaction
from fedrank_zoo.fedslate_2024.faults import FAULTS, FAULTY_SETTINGS, PUBLISHED, Fault
from fedrank_zoo.fedslate_2024.networks import PositionalHead, PositionalQ

#: Users of five rounds, and networks of a few units.
SMALL = SlatesRun(
    rounds=24,
    seeds=2,
    world=World(candidates=4, slate=2, time_budget=10),
    method=FedSlate(FederatedSlates(local_widths=(3,), head_widths=(2,), batch=2, memory=12, burn_in=5)),
    evaluation=Evaluation(every=8, episodes=3, baselines=()),
)


def _config(**settings):
    return from_dict({"protocol": "vertical-slate"} | settings).resolved()


def _published(**slates):
    """The published FedSlate with corrected settings but for ``slates``."""
    return _config(protocol="vertical-slate-2024", slates={"mode": "corrected", **slates})


def _faults(config):
    return [
        one["key"].removeprefix("slates.").removeprefix("faults: ") for one in experiment_of(config).protocol.faults
    ]


# -- settings ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", ["vertical-slate", "slateq"])
def test_what_is_left_out_is_filled_in_and_nothing_else(protocol):
    config = from_dict({"protocol": protocol, "slates": {"memory": 777}}).resolved()
    assert config.method.learning_rate == 3e-4 and config.method.slates.memory == 777
    settings = {name: value for name, value, _ in settings_of(config.method.slates)}
    assert None not in settings.values() and ("others" in settings) is (protocol == "vertical-slate")
    assert settings["centred"] and settings["floor"] == 0.05
    assert config.resolved() == config
    assert (config.rounds, config.evaluation.every) == (24_400, 1220)
    assert config.evaluation.baselines == (
        "random", "choc", "kale", "kale-then-choc", "best-fixed", "myopic", "optimum",
    )  # fmt: skip


def test_the_published_mode_fills_in_the_code_s_values_and_the_corrected_one_those_of_vertical_slate():
    published = _config(protocol="vertical-slate-2024", slates={"memory": 777}).method
    assert published.learning_rate == 0.01 and published.slates.memory == 777
    for name, value in PUBLISHED.items():
        assert name == "memory" or getattr(published.slates, name) == value
    corrected, plain = _published().method, _config().method
    assert corrected.learning_rate == plain.learning_rate
    for name, value, _ in settings_of(plain.slates):
        assert name == "critic" or getattr(corrected.slates, name) == value
    assert _published(explore=0.01).method.slates.floor == 0.01
    assert None not in {value for _, value, _ in settings_of(corrected.slates)}


@pytest.mark.parametrize("name", FAULTY_SETTINGS)
def test_a_setting_whose_published_value_is_a_fault_can_have_it_alone(name):
    alone = _published(**{name: PUBLISHED[name]})
    assert _faults(alone) == [name]
    left_out = {name: None}
    plain = _published().method.slates
    assert dataclasses.asdict(alone.method.slates) | left_out == dataclasses.asdict(plain) | left_out


@pytest.mark.parametrize("fault", Fault)
def test_every_fault_of_the_published_code_can_be_switched_on_and_off_alone(fault):
    needed = [Fault.ONLINE_OTHERS] if fault is Fault.MOVING_TARGETS else []  # target networks do not move
    alone = _published(faults=[str(fault), *needed])
    assert set(_faults(alone)) == {fault, *needed}
    assert dataclasses.replace(alone.method.slates, faults=()) == _published().method.slates
    if fault is Fault.ONLINE_OTHERS:
        return  # moving targets need it
    others = [str(other) for other in Fault if other != fault]
    without = _config(protocol="vertical-slate-2024", slates={"faults": others})
    assert set(FAULTS) - set(_faults(without)) == {fault}


def test_faults_come_in_one_order():
    both = _published(faults=["tanh", "positional", "tanh"]).method.slates.faults
    assert both == (Fault.POSITIONAL, Fault.TANH)
    with pytest.raises(ConfigError, match="Did you mean 'tanh'"):
        _published(faults=["tan"])
    with pytest.raises(ConfigError, match="must be a list"):
        _published(faults="tanh")
    assert set(FAULTS) == {*FAULTY_SETTINGS, *Fault}


def test_a_changed_setting_chooses_anew_what_followed_from_it():
    mine = from_dict({"protocol": "vertical-slate-2024", "slates": {"batch": 16, "copy_every": 7}})
    corrected = with_setting(mine, "slates.mode", "corrected")
    for config in (mine, mine.resolved()):
        assert with_setting(config, "slates.mode", "corrected").resolved() == corrected.resolved()
    own = from_dict({"protocol": "vertical-slate-2024", "slates": {"memory": 900}}).resolved()
    assert with_setting(own, "slates.mode", "corrected").resolved().method.slates.memory == 900
    plain = from_dict({"protocol": "vertical-slate"})
    shorter = with_setting(plain.resolved(), "rounds", 1000)
    assert shorter.resolved() == with_setting(plain, "rounds", 1000).resolved()
    assert with_setting(_config(), "protocol", "slateq").resolved() == SlatesRun.of(LocalSlateQ()).resolved()


@pytest.mark.parametrize("rounds", [300, 24_400])
def test_exploration_is_at_its_floor_after_a_third_of_the_rounds(rounds):
    exploration = experiment_of(_config(rounds=rounds)).protocol.slates
    at = rounds // 3
    assert float(exploration.epsilon(0)) == pytest.approx(0.1)
    assert float(exploration.epsilon(at - at // 10)) > 0.05
    assert float(exploration.epsilon(at)) == pytest.approx(0.05, rel=1e-2)
    assert float(exploration.epsilon(rounds)) == pytest.approx(0.05)
    never = experiment_of(_config(slates={"explore": 0.0})).protocol.slates
    assert float(never.epsilon(0)) == float(never.epsilon(rounds)) == 0.0
    published = experiment_of(_config(protocol="vertical-slate-2024")).protocol.slates
    # 0.99995 a round is below 0.1 for the first time in round 46,050, episode 755 of 61 rounds.
    assert float(published.epsilon(46_040)) > 0.1 and float(published.epsilon(46_060)) == 0.0


def test_a_configuration_of_platforms_survives_a_file(tmp_path):
    config = _config(
        world={"preset": "tension", "turns": "shuffled"}, slates={"objective": "team", "local_widths": [5, 4]}
    )
    (tmp_path / "c.toml").write_text(to_toml(config))
    assert read_config(tmp_path / "c.toml") == config == from_dict(as_dict(config))


def test_settings_that_mean_nothing_or_cannot_be_are_refused():
    for settings, said in [
        ({"clients": 7}, "clients"),
        ({"devices": {"dropout": 0.5}}, "devices"),
        ({"protocol": "slateq", "sharing": {"clip": 1.0}}, "sharing means nothing to this protocol.*vertical-slate"),
        ({"protocol": "slateq", "slates": {"others": "pooled"}}, "slates.others means nothing.*vertical-slate"),
        ({"protocol": "slateq", "slates": {"head": "linear"}}, "slates.head means nothing.*vertical-slate"),
        ({"slates": {"objective": "mine"}}, "slates.objective"),
        ({"slates": {"discount": 1.0}}, "slates.discount must be below 1"),
        ({"slates": {"discount": -0.1}}, "slates.discount must be in 0..1"),
        ({"slates": {"explore": 1.5}}, "slates.explore must be in 0..1"),
        ({"slates": {"explore": 0.1, "floor": 0.2}}, "slates.floor must not be above slates.explore = 0.1, got 0.2"),
        ({"slates": {"decay": 0.0}}, "slates.decay must be above 0"),
        ({"slates": {"batch": 0}}, "slates.batch must be in 1"),
        ({"slates": {"floor": -0.1}}, "slates.floor must be in 0"),
        ({"slates": {"optimiser": "best"}}, "no value of slates.optimiser named 'best'"),
        ({"slates": {"memory": 20}}, "slates.memory must be above slates.batch = 32, got 20"),
        ({"slates": {"burn_in": 32}}, "slates.burn_in must be above slates.batch = 32, got 32"),
        ({"slates": {"local_widths": [4, 0]}}, "slates.local_widths must be numbers in 1"),
        ({"slates": {"reward_scale": 0.0}}, "slates.reward_scale"),
        ({"slates": {"feedback": "all", "regress": "shown"}}, "slates.regress means nothing without slates.feedback"),
        ({"world": {"slate": 11}}, r"world.slate must be in 1\.\.10, got 11"),
        ({"world": {"platforms": 0}}, "world.platforms must be in"),
        (
            {"world": {"platforms": 3, "time_budget": 122}},
            "world.time_budget must be a multiple of world.platforms = 3",
        ),
        ({"world": {"memory_discount": 1.0}}, "world.memory_discount"),
        ({"sharing": {"epsilon": 1.0}}, "sharing.epsilon needs sharing.clip"),
        ({"sharing": {"clip": 0.0}}, "sharing.clip must be above 0"),
        ({"sharing": {"mechanism": "laplace"}}, "sharing.mechanism means nothing without sharing.epsilon"),
        ({"sharing": {"centre": 2.0}}, "sharing.centre means nothing without sharing.clip"),
        ({"evaluation": {"episodes": 1}}, "evaluation.episodes must be in 2"),
    ]:
        with pytest.raises(FedrankError, match=said) as failed:
            _config(**settings)
        assert "\n" not in str(failed.value)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"evaluation": {"baselines": ["random", "MSE"]}}, "no baseline of platforms named 'MSE'"),
        ({"world": {"choice": "cascade"}}, "choice = 'learned'"),
    ],
)
def test_what_does_not_go_together_is_said_before_anything_runs(settings, said):
    with pytest.raises(ConfigError, match=said):
        experiment_of(_config(**settings))


def test_a_method_with_settings_is_a_configuration():
    class Negative(SlateQ):
        def values_of(self, weights, user, items):
            return -super().values_of(weights, user, items)

    method = FedSlate(FederatedSlates(batch=7, objective="team"), sharing=Sharing(clip=2.0), critic=Negative)
    config = config_of(method, {"world": {"platforms": 3}, "slates": {"memory": 900}})
    assert changes(config) == {
        "world.platforms": 3, "slates.batch": 7, "slates.objective": "team", "slates.memory": 900, "sharing.clip": 2.0
    }  # fmt: skip
    assert from_dict(as_dict(config)).method == dataclasses.replace(config.method, critic=None)
    protocol = experiment_of(config.resolved()).protocol
    assert isinstance(protocol.learner, Negative) and protocol.slates.noise.clip == 2.0
    assert (protocol.slates.batch, protocol.slates.memory, protocol.learning_rate) == (7, 900, 3e-4)
    assert config.unchanged() == SlatesRun(method=FedSlate(critic=Negative))


def test_a_protocol_with_its_users_has_no_settings_of_a_method():
    protocol = experiment_of(_config()).protocol
    config = config_of(protocol, {"rounds": 200})
    assert config.resolved() == config and changes(config) == {"rounds": 200}
    assert experiment_of(config).protocol is protocol and "slates" not in as_dict(config)
    with pytest.raises(ConfigError, match="slates means nothing to this protocol"):
        config_of(protocol, {"slates": {"batch": 3}})


@pytest.mark.slow
def test_python_trains_a_method_with_its_settings(tmp_path):
    world = {"candidates": 4, "slate": 2, "time_budget": 8}
    given = {"rounds": 40, "evaluation__episodes": 3, "evaluation__baselines": []}
    planned = PlannedSlates(slates=Planning(explorers=3))
    folder = fedrank.train(planned, folder=tmp_path / "planned", world=world, **given).path
    config = read_config(folder / "config.toml")
    assert (config.protocol, config.method.slates.explorers, config.method.learner) == ("planned-slates", 3, None)
    small = FederatedSlates(local_widths=(3,), head_widths=(2,), batch=2, memory=12, burn_in=5)
    users = Satisfaction(**world)
    folder = fedrank.train(FedSlate(small), users, folder=tmp_path / "learned", **given).path
    model: Any = fedrank.load(folder, own=users)
    assert (model.settings.batch, model.settings.world) == (2, users)


# -- what a configuration names ------------------------------------------------------------------------------------


def test_modes_name_the_networks_and_the_users_that_they_are_about():
    corrected = experiment_of(_config())
    assert corrected.protocol.faults == () and corrected.names == ("A", "B")
    settings = corrected.protocol.slates
    assert isinstance(settings.local, ItemQ) and settings.local.item_features == 1
    assert isinstance(settings.federated_network, ItemHead) and settings.sees == (True, False)
    assert corrected.world.rounds_per_episode == 61 and corrected.world.fresh
    published = experiment_of(_config(protocol="vertical-slate-2024"))
    settings = published.protocol.slates
    # The user, five slates of three engagements, ten candidates with a feature and a number: 1 + 2N + 5n.
    assert isinstance(settings.local, PositionalQ) and settings.local.squash
    assert settings.local.user_features + 10 * settings.local.item_features == 1 + 2 * 10 + 5 * 3
    assert (settings.local.widths, settings.learning_rate, settings.reward_scale) == ((64,) * 5, 0.01, 1.0)
    assert isinstance(settings.federated_network, PositionalHead) and settings.federated_network.widths == (32,) * 4
    assert not published.world.fresh and len(published.protocol.faults) == len(FAULTS)
    assert any("4,096" in note for note in published.notes)


def test_worlds_are_presets_with_what_was_said():
    three = experiment_of(_config(world={"platforms": 3, "preset": "tension"}, slates={"feedback": "all"}))
    assert (three.world.sensitivity, three.world.time_budget, three.names) == (0.03, 183, ("A", "B", "C"))
    assert three.protocol.feedback == (True, True, True)
    told = experiment_of(
        _config(world={"preset": "tension", "sensitivity": 0.05, "semantics": "paper", "time_budget": 40})
    )
    assert (told.world.sensitivity, told.world.semantics, told.world.rounds_per_episode) == (0.05, "paper", 20)
    apart = experiment_of(_config(world={"sensitivities": [0.01, 1], "drift": -1})).world
    assert (apart.sensitivities, apart.drift) == ((0.01, 1.0), -1.0)
    for world, said in (
        ({"sensitivities": [0.1]}, "one a platform"),
        ({"sensitivities": ["a", "b"]}, "list of numbers"),
        ({"sensitivities": [0.1, -1]}, "in 0..100"),
        ({"drift": 9}, "drift"),
    ):
        with pytest.raises(ConfigError, match=said):
            _config(world=world)
    assert isinstance(
        experiment_of(_config(slates={"head": "linear"})).protocol.slates.federated_network, ItemLinearHead
    )
    assert "deng2024fedslate" in told.citations and "ie2019slateq" in told.citations


def test_what_leaves_a_platform_is_cut_and_noised_only_where_that_is_asked_for():
    plain = experiment_of(_config())
    assert plain.protocol.slates.noise is None
    sharing = {"clip": 3.0, "centre": 9.0, "epsilon": 2.0, "mechanism": "laplace"}
    noise = experiment_of(_config(sharing=sharing)).protocol.slates.noise
    assert noise is not None
    assert (noise.clip, noise.centre, noise.epsilon, noise.mechanism) == (3.0, 9.0, 2.0, "laplace")


# -- what a run keeps ----------------------------------------------------------------------------------------------


def _runner(folder):
    config = SMALL.resolved()
    home = RunFolder(folder)
    home.create(config)
    return TASK.runner(TASK.build(config), home, Listener())


def _rounds(rounds=24, runs=2, seed=0):
    """What a simulator would show of users who stay for 5 rounds in one run, and for 5, 7, 5, ... in the other."""
    engagement = np.random.default_rng(seed).exponential(15.0, (rounds, runs, 2)).astype(np.float32)
    over = np.zeros((rounds, runs), bool)
    over[4::5, 0] = True
    over[[4, 11, 16], 1] = True
    return engagement, over


def _seen(engagement, over, exchanges):
    crossed = np.zeros((*over.shape, exchanges, 2), np.int32)
    crossed[:, :, 0] = 2
    return {"world": {"engagement": engagement, "over": over}, "crossed": crossed}


def _feed(runner_, first, last, step):
    engagement, over = _rounds()
    exchanges = len(runner_.experiment.protocol.exchanges)
    for at in range(first, last, step):
        part = slice(at, min(at + step, last))
        runner_.note(at, _seen(engagement[part], over[part], exchanges))


def test_every_user_who_left_is_one_row_however_the_rounds_are_cut(tmp_path):
    engagement, _ = _rounds()
    tables = []
    for step in (1, 3, 24):
        mine = _runner(tmp_path / str(step))
        _feed(mine, 0, 24, step)
        sort = ["seed", "round", "measure", "value"]
        by = ["seed", "episode", "platform"]
        tables.append((Frame.concat(mine.frames).sort(*sort), Frame.concat(mine.episodes).sort(*by)))
    for metrics, episodes in tables[1:]:
        assert metrics == tables[0][0] and episodes == tables[0][1]
    metrics, episodes = tables[0]
    assert episodes.where(seed=1).unique("round") == [5, 12, 17]
    first = engagement[5:12, 1].astype(float)  # the second user of the second run
    row = episodes.where(seed=1, episode=1, platform="B")
    assert row["engagement"].item() == pytest.approx(first[:, 1].sum())
    assert row["first"].item() == pytest.approx(first[0, 1])
    online = metrics.where(seed=1, round=12)
    values = dict(online.select(("measure", "value")).tuples())
    assert values["engagement"] == pytest.approx(first.sum())
    assert values["engagement (A)"] == pytest.approx(first[:, 0].sum())
    assert set(online["split"]) == {"online"} and set(online["interactions"]) == {24}


def test_a_run_that_goes_on_has_the_rows_of_one_that_was_not_stopped(tmp_path):
    whole = _runner(tmp_path / "whole")
    _feed(whole, 0, 24, 6)
    stopped = _runner(tmp_path / "stopped")
    _feed(stopped, 0, 12, 6)
    stopped.keep()
    _feed(stopped, 12, 18, 6)
    stopped.keep()  # and killed before the checkpoint of round 18 was there
    again = SlateRunner(stopped.experiment, stopped.home, Listener())
    again.restore(12)
    _feed(again, 12, 24, 6)
    sort = ["seed", "round", "measure", "value"]
    assert Frame.concat(again.frames).sort(*sort) == Frame.concat(whole.frames).sort(*sort)
    by = ["seed", "episode", "platform"]
    assert Frame.concat(again.episodes).sort(*by) == Frame.concat(whole.episodes).sort(*by)
    np.testing.assert_array_equal(np.concatenate(again.crossed), np.concatenate(whole.crossed))


def test_the_ledger_has_every_message_and_a_line_an_interval(tmp_path):
    mine = _runner(tmp_path / "run")
    _feed(mine, 0, 20, 5)
    mine.write_crossed(20)
    ledger = [json.loads(line) for line in (mine.home.path / "ledger.jsonl").read_text().splitlines()]
    look = mine.experiment.protocol.exchanges[0]
    assert {line["exchange"] for line in ledger} == {look.name}
    up = [line for line in ledger if line["sender"] == "parties"]
    assert [(line["round"], line["messages"]) for line in up] == [(0, 16), (8, 16), (16, 8)]
    # Two platforms send four candidates' values, and a byte that says what it is, in each round.
    assert sum(line["bytes"] for line in up) == mine.sent == 20 * 2 * (1 + 4 * 4)


# -- what comes out ------------------------------------------------------------------------------------------------


def test_regret_and_thresholds_are_what_the_curves_say():
    config = dataclasses.replace(SMALL, rounds=600, evaluation=Evaluation(every=200, episodes=3, baselines=()))
    experiment = experiment_of(config.resolved())
    curve = {0: (10.0, 20.0), 200: (70.0, 20.0), 400: (80.0, 60.0), 600: (90.0, 80.0)}  # of two seeds, each platform
    rows = [
        (seed, at, 0, 0, None, "test", measure, value * share)
        for at, values in curve.items()
        for seed, value in enumerate(values)
        for measure, share in (("engagement", 2.0), ("engagement (A)", 1.0), ("engagement (B)", 1.0))
    ]
    marks = [("random", 20.0, [[15.0, 15.0], [25.0, 25.0]]), ("optimum", 100.0, [[95.0, 95.0], [99.0, 99.0]])]
    known = [
        {
            "name": name,
            "values": [
                {"measure": measure, "value": value * share, "low": None, "high": None}
                for measure, share in (("engagement", 2.0), ("engagement (A)", 1.0), ("engagement (B)", 1.0))
            ],
            "runs": np.array(runs),
            "solution": None,
        }
        for name, value, runs in marks
    ]
    found = results(experiment, Frame.of_rows(rows, SCHEMA), known)
    assert found["test"]["engagement (A)"]["value"] == pytest.approx(85.0)
    assert found["regret"]["engagement"]["value"] == pytest.approx(((190 - 180) + (198 - 160)) / 2)
    assert found["against"]["random"]["engagement"]["value"] == pytest.approx(((180 - 30) + (160 - 50)) / 2)
    # Half-way from 20 to 100 is 60; users stay for five rounds.
    assert found["threshold"]["measures"]["engagement (A)"] == {"level": 60.0, "episodes": [40.0, 80.0]}
    few = results(experiment, Frame.of_rows(rows, SCHEMA), known[:1])
    assert few["optimum"] is few["regret"] is few["threshold"] is None


# -- whole runs ----------------------------------------------------------------------------------------------------


class StopAt(Listener):
    """Dies after some rounds."""

    def __init__(self, round_):
        self.round = round_

    def progress(self, progress):
        if progress.round == self.round:
            raise SystemExit("killed")


@pytest.mark.slow
def test_a_run_goes_on_with_the_critic_that_it_was_begun_with(tmp_path, monkeypatch):
    class Negative(SlateQ):
        def values_of(self, weights, user, items):
            return -super().values_of(weights, user, items)

    small = FederatedSlates(local_widths=(3,), head_widths=(2,), batch=2, memory=12, burn_in=5)
    method = FedSlate(small, critic=Negative)
    settings = {"rounds": 24, "seeds": 1, "evaluation": {"episodes": 3, "baselines": []}}
    settings |= {"world": {"candidates": 4, "slate": 2, "time_budget": 8}, "compute": {"checkpoint_seconds": 0.0}}
    monkeypatch.setattr("fedrank.slates.run.SlateRunner.per_call", 8)
    with pytest.raises(SystemExit):
        fedrank.run(method, folder=tmp_path / "run", listener=StopAt(12), **settings)
    with pytest.raises(RunError, match=r"Negative.*SlateQ"):
        resume_experiment(tmp_path / "run")
    resume_experiment(tmp_path / "run", protocol=method)
    assert (tmp_path / "run" / "done.json").exists()


@pytest.mark.slow
def test_a_killed_run_of_platforms_ends_like_one_that_was_not(tmp_path, monkeypatch):
    config = dataclasses.replace(
        SMALL,
        compute=Compute(checkpoint_seconds=0.0),
        evaluation=dataclasses.replace(SMALL.evaluation, baselines=("random", "optimum")),
    )
    monkeypatch.setattr("fedrank.slates.run.SlateRunner.per_call", 16)  # four rounds a call: users of five stay over
    whole = run_experiment(config, tmp_path / "whole")
    with pytest.raises(SystemExit):
        run_experiment(config, tmp_path / "killed", listener=StopAt(12))
    killed = resume_experiment(tmp_path / "killed")
    for name in ("metrics.parquet", "episodes.parquet", "crossed.parquet"):
        sort = [column for column in ("seed", "round", "episode", "platform", "split", "measure", "exchange")]
        tables = [pl.read_parquet(folder / name) for folder in (whole, killed)]
        first, second = (table.sort([c for c in sort if c in table.columns]) for table in tables)
        assert first.equals(second)
    for name in ("ledger.jsonl", "privacy.json", "baselines.json", "slates.json", "messages.json"):
        assert (whole / name).read_text() == (killed / name).read_text()
    assert (whole / "weights" / "seed1.safetensors").read_bytes() == (
        killed / "weights" / "seed1.safetensors"
    ).read_bytes()
    metrics = pl.read_parquet(whole / "metrics.parquet")
    assert metrics.filter(pl.col("split") == "test")["round"].unique().sort().to_list() == [0, 8, 16, 24]
    online = metrics.filter((pl.col("split") == "online") & (pl.col("measure") == "engagement"))
    assert online["round"].unique().sort().to_list() == [5, 10, 15, 20] and (online["value"] > 0).all()
    about = json.loads((whole / "slates.json").read_text())
    assert about["platforms"] == ["A", "B"] and about["feedback"] == [True, False]
    assert about["results"]["solution"]["value"] > 0
