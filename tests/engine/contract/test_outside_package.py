"""A protocol of somebody else's package: written by ``fedrank new``, handed over as an object, or installed by name."""

import importlib.util
import json
import os
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import fedrank
from fedrank.cli.main import call
from fedrank.core import registry
from fedrank.core.errors import ConfigError
from fedrank.core.ledger import Ledger
from fedrank.deploy.search.folder import OwnerFolder
from fedrank.engine.run import resume_experiment
from fedrank.engine.settings import read_config
from fedrank.privacy import audit
from fedrank.ranking.data.reader import generate_queries
from fedrank.ranking.rankers.base import Ranker
from fedrank.report.page import write_page
from fedrank.texts.served.engines import Engine
from fedrank.texts.served.owner import OwnerSettings


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    """The folder of a new package, and its module."""
    folder = tmp_path_factory.mktemp("outside") / "my-idea"
    assert call(["new", "my-idea", "--out", str(folder)]) == 0
    spec = importlib.util.spec_from_file_location("my_idea", folder / "my_idea.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return folder, module


@dataclass(frozen=True)
class Reciprocal(Ranker):
    """A ranker that fedrank does not know: linear in the features x / (1 + x)."""

    n_features: int

    size = property(lambda self: self.n_features)

    def scores(self, weights, features):
        return features / (1 + features) @ weights


def values(folder, split="test", measure="nDCG(dcg='exp-log2')@10"):
    frame = pl.read_parquet(folder / "metrics.parquet")
    chosen = frame.filter((pl.col("split") == split) & (pl.col("measure") == measure))
    return chosen.group_by("round").agg(pl.col("value").mean()).sort("round")["value"].to_list()


def test_an_object_with_its_own_ranker_and_data_runs_without_registration(package, tmp_path):
    data = generate_queries(3)
    protocol = package[1].MyIdea(ranker=Reciprocal(data.train.n_features))
    folder = fedrank.run(
        protocol, data, folder=tmp_path / "run", clients=6, rounds=4, seeds=1, evaluation={"every": 4}
    ).path
    first, last = values(folder)
    assert last > first
    ledger = Ledger.read(folder / "ledger.jsonl")
    size = 1 + 4 * data.train.n_features  # a byte of header, a float32 a weight
    assert {(e.message, e.bytes_each, e.messages) for e in ledger} == {("Model", size, 6), ("Trained", size, 6)}
    privacy = json.loads((folder / "privacy.json").read_text())
    assert privacy["not_covered"] and privacy["details"]["rounds"] == 4
    assert "my-idea" in write_page(folder).read_text()
    assert resume_experiment(folder, protocol=protocol, data=data) == folder  # it is finished: nothing is done again


def test_debug_mode_gives_the_same_model(package, tmp_path):
    data = generate_queries(3)
    ends = []
    for debug in (False, True):
        folder = tmp_path / f"debug-{debug}"
        compute = {"debug": debug}
        protocol = package[1].MyIdea(ranker=Reciprocal(data.train.n_features))
        fedrank.run(
            protocol, data, folder=folder, clients=3, rounds=2, seeds=1, evaluation={"every": 2}, compute=compute
        )
        ends.append(values(folder)[-1])
    assert ends[0] == pytest.approx(ends[1], rel=1e-4)


def test_a_name_that_no_command_line_takes_is_refused(tmp_path, capsys):
    for name in ["My Idea", "my_idea", "1st", ""]:
        assert call(["new", name, "--out", str(tmp_path / "new")]) == 1
        assert "my-idea" in capsys.readouterr().err and not (tmp_path / "new").exists()


def test_a_folder_that_is_taken_is_left_alone(package, capsys):
    assert call(["new", "my-idea", "--out", str(package[0])]) == 1
    assert "--out" in capsys.readouterr().err


@pytest.fixture
def installed(monkeypatch, tmp_path):
    """Make the entry points of a package's folder known, as its installation would."""

    def forget():
        registry._points.cache_clear()
        registry.get.cache_clear()

    def install(folder):
        project = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        about = tmp_path / "site" / f"{project['name'].replace('-', '_')}-0.1.0.dist-info"
        about.mkdir(parents=True)
        (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: 0.1.0\n")
        groups = project["entry-points"].items()
        lines = [f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in of.items()) for group, of in groups]
        (about / "entry_points.txt").write_text("\n".join(lines))
        monkeypatch.syspath_prepend(str(tmp_path / "site"))
        monkeypatch.syspath_prepend(str(folder))
        forget()
        return [(group, name) for group, of in groups for name in of]

    yield install
    monkeypatch.undo()
    forget()


@pytest.mark.slow
def test_the_test_of_a_new_package_passes(package, installed, tmp_path):
    installed(package[0])
    spec = importlib.util.spec_from_file_location("of_my_idea", package[0] / "tests" / "test_my_idea.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.test_it_learns(tmp_path)


def test_a_class_is_a_protocol_by_name_with_its_settings(package, installed, tmp_path):
    installed(package[0])
    short = {"clients": 6, "rounds": 4, "seeds": 1, "evaluation": {"every": 4}, "learning_rate": 0.25}
    folder = fedrank.run("my-idea", folder=tmp_path / "run", **short).path
    first, last = values(folder)
    assert last > first
    assert read_config(folder / "config.toml").method.learning_rate == 0.25


#: A package with a part of each kind, one a file.
PARTS = Path(__file__).parents[3] / "examples" / "parts"


def test_a_part_is_one_file_and_one_entry_point(installed):
    named = installed(PARTS)
    assert {registry.get(group, name).__module__ for group, name in named} == {
        f"my_parts.{file.stem}" for file in (PARTS / "my_parts").glob("[!_]*.py")
    }


@pytest.mark.slow
def test_parts_of_another_package_run_by_name(installed, tmp_path, monkeypatch):
    installed(PARTS)
    monkeypatch.chdir(tmp_path)
    short = "--clients 5 --rounds 2 --seeds 1 --evaluation.every 2 --quiet --clicks first-result"
    learns = "--privacy local-gauss --privacy.sigma 0.5 --objective anchored --interactions 1"
    for command in (
        f"foltr-pdgd {learns} {short} --out pdgd",
        f"foltr-pdgd --server momentum --interactions 1 {short} --out steps",
        f"foltr-es --presentation top-three {short} --out es",
    ):
        assert call(["run", *command.split()]) == 0
    method = read_config(tmp_path / "pdgd" / "config.toml").method
    assert (method.privacy.name, method.privacy.sigma) == ("local-gauss", 0.5)
    assert read_config(tmp_path / "steps" / "config.toml").method.server.beta == 0.9
    privacy = json.loads((tmp_path / "pdgd" / "privacy.json").read_text())
    assert privacy["mechanism"] == "Gaussian noise at each device" and privacy["trust"] == "nobody"
    # Two releases of vectors at most 2 apart, with σ = 0.5: a Gaussian mechanism with Δ/σ = 4 √2.
    assert privacy["promises"][0]["epsilon"] == pytest.approx(_gaussian_epsilon(4 * 2**0.5, 1e-6), rel=1e-3)


def _gaussian_epsilon(apart, delta):
    """ε at δ of a Gaussian mechanism whose outputs' means are ``apart`` deviations apart (Balle and Wang 2018)."""
    from scipy.optimize import brentq
    from scipy.stats import norm

    def excess(e):
        return norm.cdf(apart / 2 - e / apart) - np.exp(e) * norm.cdf(-apart / 2 - e / apart) - delta

    return brentq(excess, 0, 200)


def test_the_audit_of_another_packages_mechanism_is_found_by_its_name(installed, monkeypatch):
    installed(PARTS)
    monkeypatch.setattr(audit, "AUDITS", type(audit.AUDITS)("audit", "fedrank.audits"))  # nothing found before
    assert "local-gauss" in audit.AUDITS.names() and "piecewise" in audit.AUDITS.names()
    found = audit.audit_mechanism(audit.AUDITS.get("local-gauss")(epsilon=2.0, delta=1e-5))
    assert found.mechanism == "local-gauss" and 1.4 < found.shown <= 2.0


def test_a_server_step_of_another_package_moves_as_its_equation_says(installed):
    installed(PARTS)
    step = registry.get("fedrank.server_steps", "momentum")(learning_rate=0.5, beta=0.5)
    weights = np.zeros(2, np.float32)
    state = step.init(weights)
    for heard, expected in ((True, [0.5, 1]), (False, [0.5, 1]), (True, [1.25, 2.5])):
        weights, state = step.step(state, weights, np.array([1, 2], np.float32), np.array(heard))
        assert weights.tolist() == expected


def test_a_rule_of_another_package_cuts_long_vectors(installed):
    installed(PARTS)
    rule = registry.get("fedrank.aggregation", "clipped-mean")
    vectors = np.array([[1, 0], [0, 3], [0, -300], [9, 9]], np.float32)
    # Norms 1, 3, 300 of those who arrived: none is longer than 3, and two of length 3 take each other away.
    found = rule(vectors, np.ones(4, np.float32), np.array([True, True, True, False]), 1)
    np.testing.assert_allclose(found, [1 / 3, 0], atol=1e-6)
    assert not np.any(rule(vectors, np.ones(4, np.float32), np.zeros(4, bool), 1))


@pytest.mark.slow
def test_a_method_a_rule_and_a_learner_of_another_package_run_by_name(installed, tmp_path, monkeypatch):
    installed(PARTS)
    monkeypatch.chdir(tmp_path)
    rows = ["qid\tlabel\tlength\tage"]
    rows += [f"{query}\t{(query + n) % 3}\t{n / 7}\t{query * n % 5}" for query in range(9) for n in range(6)]
    (tmp_path / "mine.tsv").write_text("\n".join(rows))
    ranks = "--data mine.tsv --holdout 0.4 --clients 5 --rounds 2 --interactions 1 --evaluation.every 2"
    world = "--world.candidates 4 --world.slate 2 --world.time-budget 6 --rounds 12 --evaluation.every 6"
    for command in (
        f"momentum-pdgd {ranks}",
        f"foltr-pdgd --aggregate clipped-mean {ranks}",
        f"planned-slates --slates.learner mean-of-item --slates.explorers 3 {world}",
    ):
        name, _, flags = command.partition(" ")
        assert call(["run", name, *flags.split(), "--seeds", "1", "--quiet", "--out", name]) == 0
    assert read_config(tmp_path / "momentum-pdgd" / "config.toml").method.server.beta == 0.9


def test_a_file_of_another_packages_format_is_data(installed, tmp_path):
    installed(PARTS)
    (tmp_path / "mine.TSV").write_text("qid\tlabel\tlength\n1\t0\t0.5\n1\t2\t2.5\n2\t1\t1.0\n")
    found = fedrank.data.load(tmp_path / "mine.TSV", "ranking", normalise="none").train
    assert found.n_queries == 2 and 0.5 in found.features
    (tmp_path / "mine.tsv").write_text("silo\tlabel\tage\na\t0\t31\nb\t1\t62\n")
    assert fedrank.data.load(str(tmp_path / "mine.tsv"), "silos").names == ("a", "b")


def test_a_search_engine_of_another_package_is_found_by_its_address(installed, tmp_path):
    installed(PARTS)
    pages = tmp_path / "pages.jsonl"
    texts = [("1", "Wings", "a wing in a slipstream"), ("2", "", "pumps"), ("3", "Pumps", "a pump with a wing")]
    pages.write_text("\n".join(json.dumps({"id": a, "title": b, "text": c}) for a, b, c in texts))
    home = OwnerFolder(tmp_path / "north")
    home.prepare(OwnerSettings(engine=f"jsonl://{pages}", columns="id title text"))
    engine = home.engine()
    assert isinstance(engine, Engine) and len(engine) == 3 and engine.get("2").body == "pumps"
    assert engine.frequencies(["wing", "pump"]) == [(2, 1), (2, 1)]
    assert [found.id for found in engine.candidates({"wing": 1.0, "slipstream": 2.0}, 5)] == ["1", "3"]
    assert [found.id for found in engine.candidates({"pump": 1.0}, 1)] == ["2"]
    assert sum(len(one.body) for one in engine.words()) == 2 + 1 + 2  # stop words do not count
    home.prepare(OwnerSettings(engine="jsonlines:///x"))
    with pytest.raises(ConfigError, match="jsonl://"):
        home.engine()


@pytest.mark.slow
def test_an_installed_package_is_a_protocol_like_any_other(package, tmp_path):
    site = tmp_path / "site"
    install = [
        "-m",
        "pip",
        "install",
        "-q",
        "--no-deps",
        "--no-build-isolation",
        "--target",
        str(site),
        str(package[0]),
    ]
    subprocess.run([sys.executable, *install], check=True)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(site), *filter(None, sys.path)])}

    def fedrank(*arguments):
        command = [sys.executable, "-m", "fedrank", *map(str, arguments)]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=True, cwd=tmp_path).stdout

    assert "my-idea" in fedrank("run", "--list", "--json")
    assert "--learning-rate" in fedrank("run", "my-idea", "--help")
    short = ("--clients", 6, "--rounds", 4, "--seeds", 1, "--evaluation.every", 4, "--learning-rate", 0.25)
    shown = json.loads(fedrank("run", "my-idea", *short, "--out", tmp_path / "run", "--json", "--quiet"))
    assert shown["finished"] and shown["config"]["learning_rate"] == 0.25
    assert shown["bytes"]["parties"] == 6 * 4 * (1 + 4 * shown["environment"].get("n_features", 46))
    fedrank("resume", tmp_path / "run", "--quiet")
    assert (tmp_path / "run" / "report.html").exists()
