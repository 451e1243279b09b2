"""Silos with tables of their own: as over one table of all; what could differ from silo to silo is refused."""

import csv
import json

import numpy as np
import polars as pl
import pytest
from flower_nodes import Nodes, honest
from safetensors.numpy import load_file

from fedrank.core.errors import ConfigError, DataError, RunError, UnknownNameError, WireError
from fedrank.engine.deployment import NodeSettings, hash_of
from fedrank.engine.native import NativeSimulator
from fedrank.silos.build import build_silos
from fedrank.silos.config import Silos
from fedrank.silos.data.reader import generate_silos
from fedrank.silos.deployment import read_table, stand_in
from fedrank_flower import settings as flat
from fedrank_flower.answers import answer_for, node_of
from fedrank_flower.messages import Question
from fedrank_flower.server_app import serve

SILOS, FEATURES, ROUNDS = 4, 8, 2
HELLO = Question(0, 0, b"")


@pytest.fixture
def files(tmp_path):
    """A file of each silo, its columns in an order of its own, and one of all."""
    paths, everything = [], []
    for number, silo in enumerate(generate_silos(SILOS, rows=40, features=FEATURES).silos):
        frame = pl.DataFrame({f"x{i}": silo.features[:, i].astype(float) for i in range(FEATURES)})
        frame = frame.with_columns(sick=pl.Series(np.where(silo.labels == 1, "yes", "no")))
        everything.append(frame.with_columns(silo=pl.lit(str(number))))
        paths.append(tmp_path / f"{number}.csv")
        frame.select(sorted(frame.columns, reverse=number % 2 == 1)).write_csv(paths[-1])
    pl.concat(everything).write_csv(tmp_path / "all.csv")
    return paths, tmp_path / "all.csv"


def table(folder, **settings):
    values = {
        "protocol": "bandit-fedavg",
        "data": "own",
        "n-features": FEATURES,
        "silos-target": "1",
        "silos-train": 12.0,
        "silos-label": "sick",
        "silos-positive": "yes",
        "network-widths": "4",
        "network-epochs": 1,
        "bandit-rule": "ucb",
        "num-server-rounds": ROUNDS,
        "min-available-nodes": SILOS,
        "checkpoint-dir": str(folder / "kept"),
    }
    return {**values, **{name.replace("_", "-"): value for name, value in settings.items()}}


def node(values, number, path, **told):
    config, _ = flat.read_run(values)
    return config, NodeSettings(number, SILOS, data=str(path), chance="seed", **told)


@pytest.mark.slow
@pytest.mark.parametrize("crossing", ["average", "local"])
def test_silos_with_their_own_files_learn_what_one_file_of_all_gives(crossing, files, tmp_path):
    """FedBN's parts stay at the silos, in their folders: a process of its own for each question finds them again."""
    paths, everything = files
    values = table(tmp_path, network_crossing=crossing)
    nodes = {
        40 - i: honest(values, i, SILOS, data=str(path), state_dir=str(tmp_path / f"node{i}"))
        for i, path in enumerate(paths)
    }
    if crossing == "local":  # a run that goes on finds the silos as they were
        serve({**values, "num-server-rounds": 1}, Nodes(nodes))
    state = serve(values, Nodes(nodes))
    config, _ = flat.read_run({**values, "data": str(everything)})
    experiment = build_silos(config)
    simulator = NativeSimulator(experiment.protocol, experiment.parties, 16, experiment.conditions)
    keys = simulator.keys([config.seed])
    states, own = simulator.begin(keys, experiment.parties)
    states, own, seen = simulator.advance(keys, states, experiment.parties.shared, own, 0, ROUNDS)
    np.testing.assert_allclose(state.weights, np.asarray(states.weights)[0], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(state.best_weights, np.asarray(states.best_weights)[0], rtol=1e-5, atol=1e-6)
    rows = [json.loads(line) for line in (tmp_path / "kept" / "metrics.jsonl").read_text().splitlines()]
    watched = [row["watched"] for row in rows if "watched" in row]
    said = [[np.nan if x is None else x for x in one["judged"]] for one in watched]
    np.testing.assert_allclose(said, np.asarray(seen["watched"]["judged"])[:, 0], rtol=1e-5, atol=1e-6)
    assert np.isfinite(said).any() and len(watched) == ROUNDS
    assert rows[1]["exchanges"][0]["exchange"] == "hello" and rows[1]["exchanges"][0]["parties"] == SILOS
    # The folder of a silo has the local model of a simulator, with what never crossed.
    kept = answer_state(tmp_path / "node1")
    np.testing.assert_allclose(kept, np.asarray(own.model)[0, 1], rtol=1e-5, atol=1e-6)
    network = experiment.protocol.net
    tensors = load_file(tmp_path / "kept" / "weights" / "seed0-last.safetensors")
    assert {name: t.shape for name, t in tensors.items()} == {
        name: t.shape for name, t in network.tensors(np.zeros(network.size, np.float32)).items()
    }
    names = {entry.name for entry in (tmp_path / "kept" / "weights").iterdir()}
    assert names == {"seed0.safetensors", "seed0-last.safetensors"}


def answer_state(folder):
    """The local model in the newest state of a node's folder: the longest array of floats."""
    newest = max(folder.rglob("state-*.npz"))
    with np.load(newest, allow_pickle=False) as file:
        return max((file[name].ravel() for name in file.files if file[name].dtype == np.float32), key=len)


def test_columns_are_taken_by_name_and_told_as_a_hash(files, tmp_path):
    paths, _ = files
    settings = Silos(label="sick", positive="yes")
    read = [read_table(path, settings) for path in paths]
    for (silo, names), made in zip(read, generate_silos(SILOS, rows=40, features=FEATURES).silos, strict=True):
        assert names == tuple(f"x{i}" for i in range(FEATURES))
        np.testing.assert_allclose(silo.features, made.features, rtol=1e-6)
        np.testing.assert_array_equal(silo.labels, made.labels)
    config, told = node(table(tmp_path), 3, paths[3])
    answer = answer_for(config, told, HELLO)
    assert (answer.numbers(SILOS).tolist(), answer.replies) == ([3], hash_of(read[0][1]))
    pl.read_csv(paths[2]).rename({"x7": "x9"}).write_csv(tmp_path / "other.csv")
    config, told = node(table(tmp_path), 2, tmp_path / "other.csv")
    assert answer_for(config, told, HELLO).replies != answer.replies


def written(path, columns, rows):
    with open(path, "w", newline="") as file:
        csv.writer(file).writerows([columns, *rows])
    return path


def test_missing_values_rows_without_a_label_and_columns_that_are_no_features(tmp_path):
    rows = [("7", 1, 0.5, "a", 1), ("7", 0, "", "b", 0), ("7", "", 2.0, "c", 0), ("7", 1, "NaN", "d", 1)]
    path = written(tmp_path / "own.csv", ["silo", "label", "x", "id", "flag"], rows)
    silo, names = read_table(path, Silos(drop=("id",)))
    assert names == ("flag", "x") and silo.labels.tolist() == [1, 0, 1]
    np.testing.assert_array_equal(silo.features, np.array([[1, 0.5], [0, np.nan], [1, np.nan]], np.float32))
    with pytest.raises(DataError, match="column 'id' holds text, such as 'a'"):
        read_table(path, Silos())
    with pytest.raises(DataError, match="no column 'y' with the label"):
        read_table(path, Silos(label="y"))
    other = written(tmp_path / "grades.csv", ["label", "x"], [(1, 2), (2, 3)])
    with pytest.raises(DataError, match="must be 0 or 1, got"):
        read_table(other, Silos())
    assert read_table(other, Silos(positive="2"))[0].labels.tolist() == [0, 1]


def test_a_silos_file_is_read_as_spreadsheets_write_it_and_what_looks_wrong_is_said(tmp_path, caplog):
    """UTF-16, semicolons, decimal commas, and a code for what is missing."""
    rows = [f"{k};{'-9' if k < 3 else k % 7 + 1};{k % 5},5;{'true' if k % 2 else 'FALSE'}" for k in range(40)]
    path = tmp_path / "own.csv"
    path.write_text("\r\n".join(["id;stay;dose;label", *rows]), encoding="utf-16")
    silo, names = read_table(path, Silos())
    assert names == ("dose", "id", "stay") and silo.labels.tolist() == [k % 2 for k in range(40)]
    np.testing.assert_array_equal(silo.features[:, 0], [k % 5 + 0.5 for k in range(40)])
    assert "decimal commas" in caplog.text and "identifier" in caplog.text and "-9 in 3 rows" in caplog.text
    named, _ = read_table(path, Silos(drop=("id",), missing=("-9",)))
    assert np.isnan(named.features[:3, 1]).all() and np.isfinite(named.features[3:]).all()


def test_what_does_not_fit_is_told_before_anything_is_learnt(files, tmp_path):
    paths, _ = files
    values = table(tmp_path)
    config, told = node(values, 1, paths[1])
    one_class = pl.read_csv(paths[1]).with_columns(sick=pl.lit("no"))
    one_class.write_csv(tmp_path / "one.csv")
    for wrong, said in (
        ({"data": "generated", "silos-label": "label", "silos-positive": ""}, "no place for this node's own table"),
        ({"silos-count": 5}, "the run has 5 silos"),
        ({"silos-inverted": "0"}, "names? silos of a known set"),
    ):
        changed, _ = flat.read_run({**values, **wrong})
        with pytest.raises(ConfigError, match=said):
            node_of(changed, told)
    with pytest.raises(ConfigError, match="this node has no table"):
        node_of(config, NodeSettings(1, SILOS))
    with pytest.raises(DataError, match="Silo of the target has validation rows of one class"):
        node_of(*node(values, 1, tmp_path / "one.csv"))
    assert node_of(*node(values, 2, tmp_path / "one.csv")).numbers == range(2, 3), "another silo may be of one class"
    with pytest.raises(UnknownNameError, match="silo"):
        stand_in(flat.read_run({**values, "silos-target": "hungarian"})[0], FEATURES)
    with pytest.raises(ConfigError, match="a run is for one silo"):
        serve({**values, "silos-target": "all"}, Nodes({}))
    protocol = stand_in(config, FEATURES + 1).protocol.exchanges[0]
    asked = protocol.request.encode(protocol.ask(stand_in(config, FEATURES + 1).protocol.init(np.zeros(2, np.uint32))))
    with pytest.raises(WireError, match="bytes, got"):
        answer_for(config, told, Question(0, 0, asked))


def test_a_node_does_not_go_on_with_a_table_that_has_changed_since_the_run_began(files, tmp_path):
    paths, _ = files
    config, told = node(table(tmp_path), 1, paths[1], state_dir=str(tmp_path / "node"))
    protocol = node_of(config, told).protocol
    first = protocol.exchanges[0]
    request = first.request.encode(first.ask(protocol.init(np.zeros(2, np.uint32))))

    def ask(round_, request=request):
        node_of.cache_clear()  # Flower starts a process for each question
        return answer_for(config, told, Question(round_, 0, request))

    ask(0, b"")
    ask(0)
    ask(1)
    before = paths[1].read_text()
    paths[1].write_text(before.replace("yes", "no", 1))
    with pytest.raises(RunError, match="the data has changed since this run began"):
        ask(1)
    paths[1].write_text(before)
    ask(1)
    paths[1].write_text(before.replace("yes", "no", 1))
    ask(0, b"")  # a run that begins takes the table as it is
    ask(0)
    ask(1)


def test_any_nodes_own_files_are_known_by_their_content(tmp_path):
    from fedrank_flower.answers import _content_of

    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "one.txt").write_text("1")
    first = _content_of(tmp_path / "a")
    assert first == _content_of(tmp_path / "a") != _content_of(tmp_path / "a" / "one.txt")
    (tmp_path / "a" / "one.txt").rename(tmp_path / "a" / "two.txt")
    assert first != _content_of(tmp_path / "a")
