"""Tables of scalars are the settings of a run, and every party belongs to one node."""

import dataclasses
import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from short_settings import run_of

from fedrank.core.errors import ConfigError
from fedrank.core.privacy_report import BASIC, Unit
from fedrank.engine.deployment import NodeSettings, block
from fedrank.engine.methods import task_of
from fedrank.engine.settings import from_dict
from fedrank.ranking.config import Compute, Devices
from fedrank.silos.bandit_fedavg import Bandit
from fedrank.silos.config import Network, Silos
from fedrank.texts.config import Privacy, Sketch, Texts, TextsRun
from fedrank.texts.silo_sketch import SiloSketch
from fedrank_flower import settings as flat

APPS = Path(__file__).resolve().parents[3] / "apps"


def test_a_runs_table_and_back():
    for config in [
        run_of("foltr-es"),
        run_of("foltr-pdgd", privacy=dict(clip=2.0), queries_per_client=3, share="fixed", byzantine=0),
        run_of(
            "foltr-es",
            devices=Devices(users=("perfect", "informational")),
            privacy=dict(epsilon_interaction=0.0),
            reward_values=5,
        ),
        run_of("mgd", candidates=4, learning_rate=0.5, compute=Compute(kernels="off")),
        run_of("foltr-pdgd", privacy=dict(epsilon_user=2.0)),
        run_of(
            "bandit-fedavg",
            data="own",
            silos=Silos(positive="no", exclude=("a", "b")),
            network=Network(widths=(8, 4)),
        ),
        run_of("bandit-fedavg", bandit=Bandit(threshold=0.025, patience=3, alone=False), data="own"),
        TextsRun(data="own", texts=Texts(documents=9, grades=3), method=SiloSketch(sketch=Sketch(epsilon=1.0))),
        TextsRun(data="own", method=SiloSketch(sketch=Sketch(mode="plain"))),
    ]:
        values = flat.flatten(config, flat.FlowerSettings(round_timeout=5.0))
        assert all(type(value) in (bool, int, float, str) for value in values.values())
        back, told = flat.read_run(values)
        assert back == dataclasses.replace(config, seeds=1).in_every_round().resolved() and told.round_timeout == 5.0


def test_the_account_of_a_run_has_the_delta_of_its_method():
    strict = run_of("foltr-pdgd", privacy=dict(epsilon_user=2.0, delta=1e-8))
    assert strict.delta == 1e-8 and TextsRun.of(SiloSketch(privacy=Privacy(delta=1e-9))).delta == 1e-9


def test_an_app_lists_every_setting_of_its_protocol_and_nothing_else():
    for app, changed in [
        ("foltr-es", {"clients", "num-server-rounds", "evaluation-every", "privacy-name"}),
        ("foltr-pdgd", {"clients", "num-server-rounds", "evaluation-every"}),
        ("bandit-fedavg", {"min-available-nodes"}),
        ("silo-sketch", {"min-available-nodes", "num-server-rounds", "training-steps", "training-ramp"}),
    ]:
        values = tomllib.loads((APPS / app / "pyproject.toml").read_text())["tool"]["flwr"]["app"]["config"]
        defaults = flat.flatten(from_dict({"protocol": app}))
        assert {name: type(value) for name, value in values.items()} == {n: type(v) for n, v in defaults.items()}
        assert {name for name, value in values.items() if value != defaults[name]} == changed


def test_the_table_of_an_app_can_choose_another_part():
    values = tomllib.loads((APPS / "foltr-es" / "pyproject.toml").read_text())["tool"]["flwr"]["app"]["config"]
    chosen = {"privacy-name": "piecewise", "privacy-epsilon-user": 2.0, "server-name": "sgd"}
    method = flat.read_run({**values, **chosen})[0].method
    assert (method.privacy.name, method.privacy.epsilon_user, method.server.name) == ("piecewise", 2.0, "sgd")
    with pytest.raises(ConfigError, match="piecewise"):
        flat.read_run({**values, "privacy-epsilon-user": 2.0})


def test_a_wrong_table_gets_one_clear_error():
    for values, said in [
        ({"sigmma": 0.1}, "sigma"),
        ({"devices-dropout": 0.1}, "no setting of a Flower run named 'devices-dropout'"),
        ({"clients": "many"}, "clients must be of type int"),
        ({"devices-users": 3}, "devices-users must be names with commas"),
        ({"privacy-secure-sum": "perhaps"}, "privacy-secure-sum"),
        ({"round-timeout": 0.0}, "round-timeout must be in 1"),
        ({"checkpoint-dir": ""}, "checkpoint-dir"),
        ({"protocol": "pdgd", "privacy-p": 0.5}, "no setting of a Flower run named 'privacy-p'"),
        ({"bandit-rule": "ucb"}, "no setting of a Flower run named 'bandit-rule'"),
        ({"protocol": "bandit-fedavg", "network-widths": "8,many"}, "network-widths must be whole numbers"),
        ({"protocol": "bandit-fedavg", "network-widths": 8}, "network-widths must be numbers with commas"),
    ]:
        with pytest.raises(ConfigError, match=said.replace(".", r"\.")):
            flat.read_run(values)


def test_a_run_whose_promise_counts_its_rounds_does_not_go_on_for_longer():
    """Where ε of a user is divided among all rounds, more rounds would be more than that ε."""
    for settings, bound in [
        ({"privacy": {"epsilon_user": 1.0}}, True),
        (
            {"privacy": {"epsilon_user": 1.0}, "population": 100_000, "interactions": 16, "server": {"name": "sgd"}},
            False,
        ),
        ({"privacy": {"p": 0.9}}, False),
    ]:
        short, long = (
            flat.about(from_dict({"protocol": "foltr-es", "rounds": rounds, "clients": 50, **settings}).resolved())
            for rounds in (10, 20)
        )
        assert (short != long) == bound


def test_an_epsilon_of_a_life_is_of_all_rounds_of_a_node():
    config, _ = flat.read_run({"clients": 20, "num-server-rounds": 10})
    assert (config.rounds, config.clients, config.population, config.participations) == (10, 20, 20, 10)
    method = config.method
    private = method.privacy.bind(config.bounds, None)
    assert (private.epsilon_user, private.epsilon_message) == (1.0, pytest.approx(0.1))
    assert config.bound_to_rounds  # answers are kept, and further rounds refused
    fixed, _ = flat.read_run({"clients": 20, "num-server-rounds": 10, "share": "fixed"})
    assert fixed.bound_to_rounds and fixed.population == 20
    with pytest.raises(ConfigError, match="participations means nothing"):
        flat.read_run({"clients": 20, "num-server-rounds": 10, "participations": 3})
    shared, _ = flat.read_run({"protocol": "foltr-pdgd", "clients": 20, "privacy-epsilon-user": 1.0})
    assert shared.bound_to_rounds and shared.population is None
    report = task_of("foltr-es").server(config, 46).protocol.account(10, 1e-6)
    assert report.epsilon(Unit.USER, basis=BASIC) == pytest.approx(1.0)


def test_an_anonymous_channel_is_for_simulations():
    config = from_dict({
        "protocol": "foltr-es", "population": 1000, "rounds": 2, "clients": 500,
        "privacy": {"epsilon_user": 1.0, "channel": "anonymous"},
    }).resolved()  # fmt: skip
    task = task_of("foltr-es")
    for deployed in (
        lambda: task.device_terms(config),
        lambda: task.server(config),
        lambda: task.node(config, NodeSettings(0, 2)),
    ):
        with pytest.raises(ConfigError, match=r"privacy\.channel"):
            deployed()


def test_a_node_that_does_not_know_its_place_is_told():
    for values in [{}, {"partition-id": 2, "num-partitions": 2}, {"partition-id": 0}]:
        with pytest.raises(ConfigError, match="partition"):
            flat.read_node(values)


@given(parties=st.integers(1, 500), partitions=st.integers(1, 500))
def test_blocks_follow_one_another_and_are_alike(parties, partitions):
    if partitions > parties:
        with pytest.raises(ConfigError, match="is empty"):
            [block(parties, i, partitions) for i in range(partitions)]
        return
    blocks = [block(parties, i, partitions) for i in range(partitions)]
    assert [party for block in blocks for party in block] == list(range(parties))
    assert max(map(len, blocks)) - min(map(len, blocks)) <= 1


def test_every_app_has_what_flower_packs():
    """`flwr build` refuses an app without the licence file and the README that its table names."""
    for app in sorted(path.name for path in APPS.iterdir()):
        project = tomllib.loads((APPS / app / "pyproject.toml").read_text())["project"]
        licence = (APPS / app / project["license"]["file"]).read_bytes()
        assert licence == (APPS.parent / "LICENSE").read_bytes() and (APPS / app / "README.md").is_file()
