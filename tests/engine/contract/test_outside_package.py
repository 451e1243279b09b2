"""A protocol of somebody else's package: written by ``fedrank new``, handed over as an object, or installed by name."""

import importlib.util
import json
import os
import subprocess
import sys
from dataclasses import dataclass

import polars as pl
import pytest

from fedrank.cli.main import call
from fedrank.core.ledger import Ledger
from fedrank.engine.run import resume, run
from fedrank.ranking.data.generate import generated
from fedrank.ranking.rankers.base import Ranker
from fedrank.report.page import write_page


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    """The folder of a new package, and its module."""
    folder = tmp_path_factory.mktemp("outside") / "my-idea"
    assert call(["new", "protocol", "my-idea", "--out", str(folder)]) == 0
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


def values(folder, split="test", measure="nDCG@10"):
    frame = pl.read_parquet(folder / "metrics.parquet")
    chosen = frame.filter((pl.col("split") == split) & (pl.col("measure") == measure))
    return chosen.group_by("round").agg(pl.col("value").mean()).sort("round")["value"].to_list()


def test_an_object_with_its_own_ranker_and_data_runs_without_registration(package, tmp_path):
    data = generated(3)
    protocol = package[1].MyIdea(ranker=Reciprocal(data.train.n_features))
    folder = run(protocol, tmp_path / "run", data=data, clients=6, rounds=4, seeds=1, evaluation={"every": 4})
    first, last = values(folder)
    assert last > first
    ledger = Ledger.read(folder / "ledger.jsonl")
    size = 1 + 4 * data.train.n_features  # a byte of header, a float32 a weight
    assert {(e.message, e.bytes_each, e.messages) for e in ledger} == {("Model", size, 6), ("Trained", size, 6)}
    privacy = json.loads((folder / "privacy.json").read_text())
    assert privacy["not_covered"] and privacy["details"]["rounds"] == 4
    assert "my-idea" in write_page(folder).read_text()
    assert resume(folder, protocol=protocol, data=data) == folder  # it is finished: nothing is done again


def test_debug_mode_gives_the_same_model(package, tmp_path):
    data = generated(3)
    ends = []
    for debug in (False, True):
        folder = tmp_path / f"debug-{debug}"
        compute = {"debug": debug}
        protocol = package[1].MyIdea(ranker=Reciprocal(data.train.n_features))
        run(protocol, folder, data=data, clients=3, rounds=2, seeds=1, evaluation={"every": 2}, compute=compute)
        ends.append(values(folder)[-1])
    assert ends[0] == pytest.approx(ends[1], rel=1e-4)


@pytest.mark.parametrize("name", ["My Idea", "my_idea", "1st", ""])
def test_a_name_that_no_command_line_takes_is_refused(name, tmp_path, capsys):
    assert call(["new", "protocol", name, "--out", str(tmp_path / "new")]) == 1
    assert "my-idea" in capsys.readouterr().err and not (tmp_path / "new").exists()


def test_a_folder_that_is_taken_is_left_alone(package, capsys):
    assert call(["new", "protocol", "my-idea", "--out", str(package[0])]) == 1
    assert "--out" in capsys.readouterr().err


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

    assert "my-idea" in fedrank("protocols", "--json")
    assert "--learning-rate" in fedrank("run", "my-idea", "--help")
    short = ("--clients", 6, "--rounds", 4, "--seeds", 1, "--evaluation.every", 4, "--learning-rate", 0.25)
    shown = json.loads(fedrank("run", "my-idea", *short, "--out", tmp_path / "run", "--json", "--quiet"))
    assert shown["finished"] and shown["config"]["learning_rate"] == 0.25
    assert shown["bytes"]["parties"] == 6 * 4 * (1 + 4 * shown["environment"].get("n_features", 46))
    fedrank("resume", tmp_path / "run", "--quiet")
    assert (tmp_path / "run" / "report.html").exists()
