"""Trained models at the command line: rank, evaluate, export."""

import json

import numpy as np
import pytest

from fedrank.cli.main import call
from fedrank.ranking.model import RankingModel
from fedrank.ranking.rankers.linear import Linear
from fedrank.silos.model import SiloModel
from fedrank.silos.network import TabularNetwork
from fedrank.texts.config import Texts
from fedrank.texts.data.features import NAMES
from fedrank.texts.graded import GradedLearner
from fedrank.texts.model import TextModel


@pytest.fixture(scope="module")
def letor(tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "tiny.txt"
    rows = [f"{d % 3} qid:{q} 1:{d / 8} 2:{(q + d) % 3 / 2}" for q in range(3) for d in range(4)]
    path.write_text("\n".join(rows) + "\n")
    return path


@pytest.fixture
def ranker(tmp_path):
    model = RankingModel(Linear(2), np.array([-1, 0.1], np.float32), "none")
    return model.save(tmp_path / "ranker.safetensors")


@pytest.fixture
def network(tmp_path):
    shape = TabularNetwork(2, (), "none")
    weights = np.array([0, 1, 0, 2, 0, 0], np.float32)  # log-odds x1 + 2 x2
    model = SiloModel(shape, weights, np.zeros(2), np.ones(2), names=("a", "b"))
    return model.save(tmp_path / "network.safetensors")


def test_rank_prints_a_run_or_writes_it(ranker, letor, tmp_path, capsys):
    assert call(["rank", str(ranker), str(letor), "--name", "mine"]) == 0
    printed = capsys.readouterr().out
    lines = [line.split() for line in printed.splitlines()]
    assert len(lines) == 12 and {len(line) for line in lines} == {6}
    # Feature 1 counts negatively and outweighs the other, so documents come in the order of the file.
    assert [line[2] for line in lines[:4]] == ["0-1", "0-2", "0-3", "0-4"]
    assert [int(line[3]) for line in lines] == [1, 2, 3, 4] * 3
    assert {line[5] for line in lines} == {"mine"}
    out = tmp_path / "run.txt"
    assert call(["rank", str(ranker), str(letor), "--name", "mine", "--out", str(out)]) == 0
    assert out.read_text() == printed and capsys.readouterr().out == ""


def test_evaluate_prints_measures_by_their_names(ranker, letor, capsys):
    assert call(["evaluate", str(ranker), str(letor), "--measures", "nDCG(dcg='exp-log2')@2", "RR@10", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["train"]
    # Labels in the order of the ranking are 0 1 2 0: the best two would be 2 1.
    expected = (1 / np.log2(3)) / (3 + 1 / np.log2(3))
    assert found["nDCG(dcg='exp-log2')@2"] == pytest.approx(expected, rel=1e-6) and found["RR@10"] == 0.5
    assert call(["evaluate", str(ranker), str(letor), "--measures", "nDCG(dcg='exp-log2')@2"]) == 0
    assert f"{expected:.4g}" in capsys.readouterr().out


def test_evaluate_takes_a_table_of_rows(network, tmp_path, capsys):
    path = tmp_path / "rows.csv"
    path.write_text("a,b,ill,ward\n1,1,yes,x\n-1,0,no,x\n0,-1,yes,y\n2,0,no,y\n")
    flags = ["--label", "ill", "--positive", "yes", "--silo", "ward", "--json"]
    assert call(["evaluate", str(network), str(path), *flags]) == 0
    found = json.loads(capsys.readouterr().out)
    assert {name: values["AUC"] for name, values in found.items()} == {"all": 0.5, "x": 1.0, "y": 0.0}
    assert {name: values["rows"] for name, values in found.items()} == {"all": 4, "x": 2, "y": 2}


def test_export_writes_what_the_name_says(ranker, tmp_path, capsys):
    onnx = pytest.importorskip("onnx")
    assert call(["export", str(ranker), str(tmp_path / "model.onnx")]) == 0
    assert [value.name for value in onnx.load(tmp_path / "model.onnx").graph.output] == ["scores"]
    assert call(["export", str(ranker), str(tmp_path / "copy.safetensors")]) == 0
    assert (tmp_path / "copy.safetensors").read_bytes() == ranker.read_bytes()
    assert call(["export", str(ranker), str(tmp_path / "model.bin")]) == 1
    assert ".onnx" in capsys.readouterr().err


def test_export_says_whose_model_where_each_silo_scales_by_its_own_rows(tmp_path, capsys):
    onnx = pytest.importorskip("onnx")
    learner = GradedLearner(len(NAMES), 3)
    scales = {name: (np.full(len(NAMES), shift), np.ones(len(NAMES))) for name, shift in (("mine", 1.0), ("his", 2.0))}
    file = TextModel(learner, np.zeros(learner.size, np.float32), Texts(), scales).save(tmp_path / "texts.safetensors")
    out = tmp_path / "texts.onnx"
    assert call(["export", str(file), str(out)]) == 1
    assert "his, mine" in capsys.readouterr().err and not out.exists()
    assert call(["export", str(file), str(out), "--party", "hers"]) == 1
    assert "hers" in capsys.readouterr().err
    assert call(["export", str(file), str(out), "--party", "his"]) == 0
    constants = [onnx.numpy_helper.to_array(one) for one in onnx.load(out).graph.initializer]
    assert any(np.array_equal(one, scales["his"][0]) for one in constants)


def test_a_model_of_texts_ranks_and_is_measured_on_a_collection(tmp_path, capsys):
    learner = GradedLearner(len(NAMES), 2, "regression")
    weights = np.zeros(learner.size, np.float32)
    weights[NAMES.index("body BM25")] = 1
    scales = {name: (np.zeros(len(NAMES)), np.ones(len(NAMES))) for name in ("mine", "his")}
    file = str(TextModel(learner, weights, Texts(), scales).save(tmp_path / "texts.safetensors"))
    (tmp_path / "documents.jsonl").write_text(
        '{"id": "d1", "text": "A dog."}\n{"id": "d2", "text": "Cats and cats."}\n{"id": "d3", "text": "A cat"}\n'
    )
    (tmp_path / "queries.jsonl").write_text('{"id": "q1", "text": "cats"}\n')
    (tmp_path / "qrels").write_text("q1 0 d3 1\n")
    assert call(["rank", file, str(tmp_path), "--party", "mine", "--depth", "2"]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert [line[:4] for line in lines] == [["q1", "Q0", "d2", "1"], ["q1", "Q0", "d3", "2"]]
    assert call(["evaluate", file, str(tmp_path), "--party", "his", "--measures", "RR@5", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["all"] == {"RR@5": 0.5, "RR@5 (judged)": 0.5}
    assert call(["evaluate", file, str(tmp_path)]) == 1
    assert "his, mine" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("command", "word"),
    [
        (["export", "RANKER", "OUT.onnx", "--party", "mine"], "mine"),
        (["rank", "NETWORK", "LETOR"], "SiloModel"),
        (["rank", "RANKER", "LETOR", "--part", "test"], "test"),
        (["rank", "RANKER", "LETOR", "--seed", "1"], "seed"),
        (["rank", "nowhere", "LETOR"], "nowhere"),
        (["evaluate", "RANKER", "LETOR", "--silo", "ward"], "silo"),
        (["evaluate", "RANKER", "LETOR", "--measures", "nonsense"], "nonsense"),
        (["evaluate", "NETWORK", "nowhere.csv"], "nowhere.csv"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_line(command, word, ranker, network, letor, capsys):
    places = {"RANKER": str(ranker), "NETWORK": str(network), "LETOR": str(letor)}
    assert call([places.get(token, token) for token in command]) == 1
    printed = capsys.readouterr()
    assert word in printed.err and printed.err.count("\n") == 1 and not printed.out
