"""Configurations as dictionaries, files and names; sweeps over them."""

from dataclasses import replace

import pytest

from fedrank.core.errors import ConfigError, RunError
from fedrank.engine.run import run
from fedrank.engine.settings import as_dict, from_dict, read_config, to_toml, with_setting
from fedrank.engine.sweep import run_sweep
from fedrank.engine.variations import parse_vary, variations
from fedrank.ranking.config import Evaluation, FoltrESConfig, FoltrESPrivacy, FoltrPDGDConfig, FoltrPDGDPrivacy


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    """A run of a blink: two queries of one file."""
    path = tmp_path_factory.mktemp("data") / "tiny.txt"
    path.write_text("1 qid:1 1:1\n0 qid:1 1:0\n2 qid:2 1:0.5\n0 qid:2 1:0.25\n")
    return FoltrESConfig(data=str(path), clients=6, rounds=2, seeds=1, evaluation=Evaluation(measures=("nDCG@10",)))


# -- configurations ------------------------------------------------------------------------------------------------


def test_toml_and_dictionary_forms_are_inverses(tmp_path):
    settings = FoltrESConfig(
        clients=7,
        privacy=FoltrESPrivacy(epsilon_interaction=2.0),
        evaluation=Evaluation(users=("perfect",)),
        budget=1000,
    )
    path = tmp_path / "c.toml"
    path.write_text(to_toml(settings))
    assert read_config(path) == settings == from_dict(as_dict(settings))
    assert settings.rounds == 1000 // 28


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"cliens": 3}, "Did you mean 'clients'"),
        ({"privacy": {"q": 0.5}}, "'privacy.q'"),
        ({"privacy": 0.5}, "table"),
        ({"clients": "many"}, "type int"),
        ({"clients": True}, "type int"),
        ({"clients": 0}, "clients must be in"),
        ({"share": "fixd"}, "Did you mean 'fixed'"),
        ({"privacy": {"p": 0.5, "epsilon_interaction": 1.0}}, "one of them"),
        ({"budget": 10}, "at least one round"),
        ({"budget": 80_000, "rounds": 2}, "disagree"),
        ({"rounds": -1}, "rounds must be in"),
        ({"rounds": 10**7}, "rounds must be in"),
        ({"protocol": "foltr-e"}, "Did you mean 'foltr-es'"),
    ],
)
def test_a_wrong_setting_is_named(values, says):
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
        ({"interactions": 3}, "even"),
        ({"privacy.p": 0.05}, r"p must be in \[1/n, 1\]"),
        ({"sigma": 0.0}, "sigma"),
        ({"learning_rate": float("nan")}, "learning_rate"),
        ({"reward": "NDCG"}, "online metric"),
        ({"evaluation.measures": ["nDGC@10"]}, "nDCG"),
    ],
)
def test_settings_that_cannot_be_are_refused(config, tmp_path, settings, says):
    changed = config
    with pytest.raises(ConfigError, match=says):
        for key, value in settings.items():
            changed = with_setting(changed, key, value)
        run(changed, tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"protocol": "pdgd", "sigma": 0.5}, "sigma means nothing to this protocol"),
        ({"protocol": "foltr-pdgd", "privacy": {"p": 0.5}}, "privacy.p means nothing"),
        ({"protocol": "dbgd", "devices": {"dropout": 0.5}}, "devices means nothing to this protocol"),
        ({"candidates": 3}, "setting of coltr, foltr-coltr, mgd"),
        ({"queries_per_client": 3}, "share = 'fixed'"),
        ({"queries_per_client": 0, "share": "fixed"}, "queries_per_client must be at least 1"),
        ({"devices": {"delay": 3}}, "devices.delay means nothing without devices.late"),
        ({"privacy": {"delta": 1.0}}, "privacy.delta must be between 0 and 1"),
        ({"privacy": {"mechanism": "laplace"}}, "needs privacy.epsilon_interaction"),
        ({"privacy": {"mechanism": "laplace", "epsilon_interaction": 1.0, "p": 0.5}}, "one of them"),
        ({"holdout": 1.0}, "holdout"),
        ({"attack": {"share": 0.5}}, "attack.kind"),
        ({"attack": {"share": 1.5, "kind": "lie"}}, "attack.share"),
    ],
)
def test_a_setting_that_means_nothing_is_refused(settings, says):
    with pytest.raises(ConfigError, match=says):
        from_dict(settings).resolved()


def test_what_is_not_said_is_the_papers():
    rates = {n: from_dict({"protocol": n}).resolved().learning_rate for n in ("foltr-es", "foltr-pdgd", "dbgd")}
    assert rates == {"foltr-es": 1e-3, "foltr-pdgd": 0.1, "dbgd": 0.01}
    assert FoltrESConfig().resolved().privacy.p == 0.9
    noised = FoltrPDGDConfig(privacy=FoltrPDGDPrivacy(epsilon=2.0)).resolved().privacy
    assert noised.secure_sum and noised.clip == 5.0 and noised.clip_norm == "l1"
    published = FoltrPDGDConfig(privacy=FoltrPDGDPrivacy(epsilon=2.0), as_published=True).resolved()
    assert not published.privacy.secure_sum and published.privacy.clip_norm == "l2"
    assert published.resolved() == published


# -- sweeps --------------------------------------------------------------------------------------------------------


def test_a_sweep_runs_every_combination_once(config, tmp_path):
    todo = variations(replace(config, rounds=2, seeds=1), parse_vary(["privacy.p=0.5,1.0", "antithetic=true,false"]))
    assert [v.name for v in todo] == [
        "privacy.p=0.5,antithetic=true", "privacy.p=0.5,antithetic=false",
        "privacy.p=1.0,antithetic=true", "privacy.p=1.0,antithetic=false",
    ]  # fmt: skip
    first = run_sweep(todo[:1], tmp_path)
    before = (first[0] / "done.json").stat().st_mtime_ns
    runs = run_sweep(todo[:2], tmp_path)
    assert [r.name for r in runs] == [v.name for v in todo[:2]]
    assert (first[0] / "done.json").stat().st_mtime_ns == before
    other = variations(replace(config, rounds=2, seeds=1, sigma=0.5), parse_vary(["privacy.p=0.5", "antithetic=true"]))
    with pytest.raises(RunError, match="another configuration"):
        run_sweep(other, tmp_path)


def test_cases_change_settings_together():
    cases = [{"name": "a"}, {"name": "b", "protocol": "pdgd", "evaluation": {"every": 3}}]
    todo = variations(FoltrESConfig(), {"clicks": ["perfect", "navigational"]}, cases)
    assert [v.name for v in todo] == [f"case={c},clicks={u}" for c in "ab" for u in ("perfect", "navigational")]
    assert (todo[2].config.protocol, todo[2].config.evaluation.every) == ("pdgd", 3)
    assert todo[2].where == {"case": "b", "clicks": "perfect"}
    with pytest.raises(ConfigError, match="name of its own"):
        variations(FoltrESConfig(), {}, [{"name": "a"}, {"name": "a"}])


def test_what_varies_may_be_lists_and_paths():
    assert parse_vary(['evaluation.users=["perfect"],["perfect","informational"]', "data=./a.txt,b"]) == {
        "evaluation.users": [["perfect"], ["perfect", "informational"]],
        "data": ["./a.txt", "b"],
    }
    names = [v.name for v in variations(FoltrESConfig(), {"data": ["./a/b.txt", "c d"]})]
    assert names == ["data=.-a-b.txt", "data=c-d"]


def test_a_varied_budget_or_number_of_rounds_counts():
    rounds = [v.config.rounds for v in variations(FoltrESConfig(budget=80_000), {"rounds": [2, 4]})]
    assert rounds == [2, 4]
    budgets = [v.config.rounds for v in variations(FoltrESConfig(budget=80_000), {"interactions": [2, 8]})]
    assert budgets == [20, 5]


@pytest.mark.parametrize("text", ["privacy.p", "=1", "clients="])
def test_what_varies_must_be_said_clearly(text):
    with pytest.raises(ConfigError, match="--vary"):
        parse_vary([text])
