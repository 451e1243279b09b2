"""Configurations as dictionaries, files and names; sweeps over them."""

import contextlib
import tomllib
from dataclasses import replace

import pytest
from short_settings import run_of

from fedrank.core.errors import ConfigError, RunError, UnknownNameError
from fedrank.engine.methods import method, method_names
from fedrank.engine.run import run_experiment
from fedrank.engine.settings import (
    as_dict,
    changes,
    from_dict,
    given_toml,
    parts_in,
    parts_of,
    read_config,
    to_toml,
    with_setting,
)
from fedrank.engine.sweep import run_sweep
from fedrank.engine.task import Task
from fedrank.engine.variations import parse_vary, variations
from fedrank.ranking.config import Evaluation


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    """A run of a blink: two queries of one file."""
    path = tmp_path_factory.mktemp("data") / "tiny.txt"
    path.write_text("1 qid:1 1:1\n0 qid:1 1:0\n2 qid:2 1:0.5\n0 qid:2 1:0.25\n")
    return run_of(
        "foltr-es",
        data=str(path),
        clients=6,
        rounds=2,
        seeds=1,
        evaluation=Evaluation(measures=("nDCG(dcg='exp-log2')@10",)),
    )


# -- configurations ------------------------------------------------------------------------------------------------


def test_toml_and_dictionary_forms_are_inverses(tmp_path):
    settings = run_of(
        "foltr-es",
        clients=7,
        privacy=dict(epsilon_interaction=2.0),
        evaluation=Evaluation(users=("perfect",)),
        budget=1000,
    )
    path = tmp_path / "c.toml"
    path.write_text(to_toml(settings))
    assert read_config(path) == settings == from_dict(as_dict(settings))
    assert settings.rounds == 1000 // 28


def test_a_wrong_setting_is_named():
    for values, says in [
        ({"cliens": 3}, "Did you mean 'clients'"),
        ({"privacy": {"q": 0.5}}, "'privacy.q'"),
        ({"privacy": 0.5}, "table"),
        ({"clients": "many"}, "type int"),
        ({"clients": True}, "type int"),
        ({"clients": 0}, "clients must be in"),
        ({"share": "fixd"}, "Did you mean 'fixed'"),
        ({"privacy": {"p": 0.5, "epsilon_interaction": 1.0}}, "one of them"),
        ({"privacy": {"p": 0.9, "epsilon_interaction": 1.0}}, "one of them"),
        ({"protocol": "foltr-pdgd", "privacy": {"epsilon": 1.0, "epsilon_user": 1.0}}, "contradict each other"),
        ({"privacy": {"p": 1.0, "epsilon_user": 1.0}}, "contradict each other"),
        ({"budget": 10}, "at least one round"),
        ({"budget": 80_000, "rounds": 2}, "disagree"),
        ({"rounds": -1}, "rounds must be in"),
        ({"rounds": 10**7}, "rounds must be in"),
        ({"protocol": "foltr-e"}, "Did you mean 'foltr-es'"),
    ]:
        with pytest.raises(ConfigError, match=says):
            from_dict(values)


def test_a_broken_file_is_named_with_its_line(tmp_path):
    path = tmp_path / "broken.toml"
    path.write_text("clients = 3\nrounds = = 4\n")
    with pytest.raises(ConfigError, match=r"broken.toml: not a TOML file.*line 2"):
        read_config(path)
    with pytest.raises(ConfigError, match=r"absent.toml: cannot be read"):
        read_config(tmp_path / "absent.toml")


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"interactions": 3, "privacy.p": 0.9}, "even"),
        ({"privacy.p": 0.05}, r"p must be in \[1/n, 1\]"),
        ({"sigma": 0.0}, "sigma"),
        ({"server.learning_rate": float("nan")}, "learning_rate"),
        ({"reward": "NDCG"}, "online metric"),
        ({"evaluation.measures": ["nDGC@10"]}, "nDCG"),
    ],
)
def test_settings_that_cannot_be_are_refused(config, tmp_path, settings, says):
    changed = config
    with pytest.raises(ConfigError, match=says):
        for key, value in settings.items():
            changed = with_setting(changed, key, value)
        run_experiment(changed, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_setting_that_means_nothing_is_refused():
    for settings, says in [
        ({"protocol": "pdgd", "sigma": 0.5}, "sigma means nothing to this protocol"),
        ({"protocol": "foltr-pdgd", "privacy": {"p": 0.5}}, "privacy.p means nothing"),
        ({"protocol": "dbgd", "devices": {"dropout": 0.5}}, "devices means nothing to this protocol"),
        ({"candidates": 3}, "setting of .*mgd"),
        ({"queries_per_client": 3}, "share = 'fixed'"),
        ({"queries_per_client": 0, "share": "fixed"}, "queries_per_client must be at least 1"),
        ({"devices": {"delay": 3}}, "devices.delay means nothing without devices.late"),
        ({"privacy": {"delta": 1.0}}, "privacy.delta must be between 0 and 1"),
        ({"privacy": {"name": "laplace", "epsilon_interaction": 1.0, "p": 0.5}}, "privacy.p means nothing with"),
        ({"protocol": "dbgd", "population": 5}, "population means nothing"),
        ({"protocol": "fedper-pdgd", "population": 5}, "population means nothing"),
        ({"holdout": 1.0}, "holdout"),
        ({"attack": {"share": 0.5}}, "attack.kind"),
        ({"attack": {"share": 1.5, "kind": "lie"}}, "attack.share"),
    ]:
        with pytest.raises(ConfigError, match=says):
            from_dict(settings).resolved()


def test_what_is_not_said_is_the_papers():
    rates = {n: from_dict({"protocol": n}).resolved().method.learning_rate for n in ("foltr-pdgd", "dbgd")}
    assert rates == {"foltr-pdgd": 0.1, "dbgd": 0.01}
    es = run_of("foltr-es", privacy={"name": "randomised-response"}).resolved().method
    assert (es.privacy.probability, es.server.learning_rate) == (0.9, 1e-3)
    noised = run_of("foltr-pdgd", privacy=dict(epsilon=2.0)).resolved()
    privacy = noised.method.privacy
    assert (privacy.name, privacy.clip, privacy.clip_norm) == ("laplace-shares", 5.0, "l1")
    assert noised.resolved() == noised


def test_a_table_without_a_name_is_the_part_that_its_keys_imply():
    for protocol, table, name in (
        ("foltr-es", {"p": 0.5}, "randomised-response"),
        ("foltr-es", {"epsilon_user": 1.0}, "piecewise"),
        ("foltr-pdgd", {"clip": 1.0}, "clear"),
        ("foltr-pdgd", {"epsilon": 1.0}, "laplace-shares"),
        ("foltr-pdgd", {"epsilon_user": 1.0, "clip": 2.0}, "gaussian-shares"),
        ("fedopt-pdgd", {}, "clear"),
    ):
        assert from_dict({"protocol": protocol, "privacy": table}).method.privacy.name == name
    private = from_dict({"privacy": {"epsilon_user": 1.0}})
    assert with_setting(private, "privacy.p", 0.5).method.privacy.probability == 0.5
    laplace = with_setting(private, "privacy.name", "laplace")
    with pytest.raises(ConfigError, match="epsilon_interaction"):
        laplace.resolved()
    assert with_setting(laplace, "privacy.epsilon_interaction", 2.0).resolved().method.privacy.name == "laplace"
    assert with_setting(private, "privacy.clip", 0.5).method.privacy.epsilon_user == 1.0
    response = from_dict({"privacy": {"epsilon_interaction": 0.25}})
    assert with_setting(response, "privacy.name", "laplace").resolved().method.privacy.epsilon_interaction == 0.25
    steps = from_dict({"protocol": "fedopt-pdgd", "server": {"tau": 0.1}}).method.server
    assert (steps.name, steps.tau, steps.learning_rate) == ("fedadam", 0.1, 0.01)
    with pytest.raises(ConfigError, match=r"value of server\.name"):
        from_dict({"server": "fedadam"})  # steps towards a mean, which evolution strategies do not have


# -- sweeps --------------------------------------------------------------------------------------------------------


def test_a_sweep_runs_every_combination_once(config, tmp_path):
    todo = variations(
        replace(config, rounds=2, seeds=1), parse_vary(["privacy.p=0.5,1.0", "presentation.name=antithetic,one-sided"])
    )
    assert [v.name for v in todo] == [
        "privacy.p=0.5,presentation.name=antithetic", "privacy.p=0.5,presentation.name=one-sided",
        "privacy.p=1.0,presentation.name=antithetic", "privacy.p=1.0,presentation.name=one-sided",
    ]  # fmt: skip
    first = run_sweep(todo[:1], tmp_path)
    before = (first[0] / "done.json").stat().st_mtime_ns
    runs = run_sweep(todo[:2], tmp_path)
    assert [r.name for r in runs] == [v.name for v in todo[:2]]
    assert (first[0] / "done.json").stat().st_mtime_ns == before
    other = variations(
        with_setting(config, "sigma", 0.5), parse_vary(["privacy.p=0.5", "presentation.name=antithetic"])
    )
    with pytest.raises(RunError, match="another configuration"):
        run_sweep(other, tmp_path)


def test_cases_change_settings_together():
    cases = [{"name": "a"}, {"name": "b", "protocol": "pdgd", "evaluation": {"every": 3}}]
    todo = variations(run_of("foltr-es"), {"clicks": ["perfect", "navigational"]}, cases)
    assert [v.name for v in todo] == [f"case={c},clicks={u}" for c in "ab" for u in ("perfect", "navigational")]
    assert (todo[2].config.protocol, todo[2].config.evaluation.every) == ("pdgd", 3)
    assert todo[2].where == {"case": "b", "clicks": "perfect"}
    with pytest.raises(ConfigError, match="needs a distinct name"):
        variations(run_of("foltr-es"), {}, [{"name": "a"}, {"name": "a"}])


def test_a_varied_value_may_bring_settings_along():
    methods = [{"protocol": "foltr-es", "privacy.p": 0.9, "evaluation": {"every": 3}}, "pdgd"]
    todo = variations(run_of("foltr-es"), {"protocol": methods, "seed": [1, 2]})
    assert [v.name for v in todo] == [f"protocol={m},seed={s}" for m in ("foltr-es", "pdgd") for s in (1, 2)]
    assert todo[0].where == {"protocol": "foltr-es", "seed": 1}
    assert (todo[1].config.method.privacy.p, todo[1].config.evaluation.every, todo[1].config.seed) == (0.9, 3, 2)
    assert todo[2].config.evaluation.every == run_of("pdgd").evaluation.every
    with pytest.raises(ConfigError, match="no two the same"):
        variations(run_of("foltr-es"), {"protocol": [*methods, "foltr-es"]})
    with pytest.raises(ConfigError, match=r"brings privacy\.p along"):
        variations(run_of("foltr-es"), {"protocol": methods, "privacy.p": [0.5]})


def test_what_varies_may_be_lists_and_paths():
    assert parse_vary(['evaluation.users=["perfect"],["perfect","informational"]', "data=./a.txt,b"]) == {
        "evaluation.users": [["perfect"], ["perfect", "informational"]],
        "data": ["./a.txt", "b"],
    }
    names = [v.name for v in variations(run_of("foltr-es"), {"data": ["./a/b.txt", "c d"]})]
    assert names == ["data=.-a-b.txt", "data=c-d"]


def test_a_varied_budget_or_number_of_rounds_counts():
    rounds = [v.config.rounds for v in variations(run_of("foltr-es", budget=80_000), {"rounds": [2, 4]})]
    assert rounds == [2, 4]
    budgets = [v.config.rounds for v in variations(run_of("foltr-es", budget=80_000), {"interactions": [2, 8]})]
    assert budgets == [20, 5]


def test_what_varies_must_be_said_clearly():
    for text in ["privacy.p", "=1", "clients="]:
        with pytest.raises(ConfigError, match="--vary"):
            parse_vary([text])


def test_what_differs_from_the_defaults_describes_a_configuration_whole():
    """Every method of the package, and each with every part that it may have in place of its own."""
    for name in method_names():
        base = method(name).defaults()
        variants = [base, with_setting(base, "seeds", 7)]
        for field, one in parts_in(base).items():
            for part in parts_of(one):
                with contextlib.suppress(ConfigError):  # a part that the method refuses
                    variants.append(with_setting(base, f"{field}.name", part))
        for config in variants:
            assert from_dict(tomllib.loads(given_toml(config))) == config, (name, given_toml(config))
        full = base.resolved()
        assert from_dict(tomllib.loads(given_toml(full))).resolved() == full, (name, given_toml(full))


def test_what_was_given_stays_where_it_is_what_would_be_taken_anyway():
    sketch = from_dict({"protocol": "silo-sketch", "sketch": {"epsilon": 0.2}})
    for config in (sketch, sketch.resolved(), sketch.resolved().resolved()):
        assert with_setting(config, "sketch.noise", "gaussian").resolved().method.sketch.epsilon == 0.2
    open_ = with_setting(from_dict({"protocol": "silo-sketch"}).resolved(), "sketch.mode", "plain").resolved()
    assert open_.method.sketch.epsilon is None
    silos = from_dict({"protocol": "fedavg", "data": "heart-disease", "silos": {"train": 0.6}}).resolved()
    again = from_dict(tomllib.loads(given_toml(silos))).resolved()
    assert again == silos and not again.silos.stratified
    plain = from_dict({"protocol": "fedavg", "data": "heart-disease"}).resolved()
    assert plain.silos.stratified and "silos" not in tomllib.loads(given_toml(plain))
    other = replace(silos, rounds=3)  # no longer what the first one was resolved to
    assert other.as_given is other and changes(other)["rounds"] == 3


def test_another_protocol_keeps_given_defaults_that_it_has():
    given = from_dict({"protocol": "foltr-es", "clients": 2000, "sigma": 0.01})
    assert {"clients", "sigma"} <= changes(given).keys()
    other = with_setting(given, "protocol", "foltr-pdgd")
    assert "clients" in other.said and "sigma" not in other.said
    with pytest.raises(ConfigError, match="sigma"):
        with_setting(with_setting(given, "sigma", 0.02), "protocol", "foltr-pdgd")


def test_a_part_named_nothing_is_refused():
    with pytest.raises(UnknownNameError, match=r"privacy\.name"):
        from_dict({"protocol": "foltr-es", "privacy": {"name": None}})


def test_a_task_without_a_runner_is_refused_where_it_is_defined():
    with pytest.raises(TypeError, match="runner"):
        type("Aimless", (Task,), {"name": "aimless"})
