"""Runs on disk: what was stopped ends as if it had not been, and what is damaged is said."""

import json
import os
import signal
import subprocess
import sys
import tomllib
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from safetensors.numpy import load_file
from short_settings import run_of

import fedrank
from fedrank.core.errors import ConfigError, DataError, RunError, UnknownNameError
from fedrank.core.ledger import Ledger
from fedrank.engine import checkpoint, runner
from fedrank.engine.progress import Listener
from fedrank.engine.run import Interrupted, build, resume_experiment, run_experiment
from fedrank.engine.settings import as_dict, read_config, to_toml, with_setting
from fedrank.ranking.config import Compute, Evaluation
from fedrank.ranking.data.queries import QuerySet


@pytest.fixture(scope="module")
def letor(tmp_path_factory):
    """A data set of one file, small enough to train on in a blink."""
    path = tmp_path_factory.mktemp("data") / "tiny.txt"
    random = np.random.default_rng(0)
    lines = []
    for query in range(10):
        for _ in range(random.integers(2, 12)):
            x = random.integers(0, 9, 3) / 8
            label = int(np.clip(np.rint(2 * x[0] + random.normal() * 0.3), 0, 2))
            lines.append(f"{label} qid:{query} " + " ".join(f"{i + 1}:{v}" for i, v in enumerate(x)))
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture(scope="module")
def config(letor):
    return run_of("foltr-es", 
        data=str(letor), clients=6, rounds=6, seeds=2, privacy=dict(p=0.5),
        evaluation=Evaluation(every=2, measures=("nDCG(dcg='exp-log2')@10",)), compute=Compute(checkpoint_seconds=0),
    )  # fmt: skip


@pytest.fixture(scope="module")
def finished(config, tmp_path_factory):
    return run_experiment(config, tmp_path_factory.mktemp("runs") / "whole")


class StopAt(Listener):
    """Presses Ctrl-C, or dies, after some rounds."""

    def __init__(self, round_, how):
        self.round, self.how = round_, how

    def progress(self, progress):
        if progress.round == self.round:
            self.how()


def killed():
    raise SystemExit("killed")


def sorted_metrics(folder):
    return pl.read_parquet(folder / "metrics.parquet").sort("seed", "round", "split", "measure")


@pytest.mark.parametrize("how", ["ctrl-c", "killed"])
def test_a_stopped_run_ends_like_one_that_was_not(config, finished, tmp_path, how):
    folder = tmp_path / "run"
    if how == "ctrl-c":
        with pytest.raises(Interrupted, match=r"after round 4; go on with: fedrank resume"):
            run_experiment(config, folder, listener=StopAt(4, lambda: os.kill(os.getpid(), signal.SIGINT)))
    else:
        with pytest.raises(SystemExit):
            run_experiment(config, folder, listener=StopAt(4, killed))
    assert not (folder / "done.json").exists() and (folder / "checkpoint" / "state.npz").exists()
    resume_experiment(folder)
    assert sorted_metrics(folder).equals(sorted_metrics(finished))
    for seed in (0, 1):
        ours, whole = (load_file(f / "weights" / f"seed{seed}.safetensors")["weight"] for f in (folder, finished))
        np.testing.assert_array_equal(ours, whole)
        name = f"weights/seed{seed}.safetensors"
        assert (folder / name).read_bytes() == (finished / name).read_bytes()
    assert not (folder / "checkpoint").exists()


def test_rows_beyond_the_checkpoint_are_not_there_twice(config, finished, tmp_path, monkeypatch):
    """A process is killed after it wrote its rows and before it wrote the checkpoint that goes with them."""
    folder, saved = tmp_path / "run", []

    def save(path, tree, about):
        saved.append(about["round"])
        if len(saved) > 1:
            killed()
        checkpoint_save(path, tree, about)

    checkpoint_save = checkpoint.save
    monkeypatch.setattr(checkpoint, "save", save)
    with pytest.raises(SystemExit):
        run_experiment(config, folder)
    monkeypatch.undo()
    assert saved == [2, 4] and pl.read_parquet(folder / "metrics.parquet")["round"].max() == 4
    resume_experiment(folder)
    assert sorted_metrics(folder).equals(sorted_metrics(finished))


def test_a_run_that_goes_on_with_longer_calls_is_evaluated_in_the_same_rounds(config, finished, tmp_path, monkeypatch):
    """How many rounds a call takes may differ between the process that stopped and the one that goes on."""
    folder = tmp_path / "run"
    with monkeypatch.context() as short, pytest.raises(SystemExit):
        short.setattr(runner.Runner, "per_call", 1)
        run_experiment(config, folder, listener=StopAt(4, killed))  # its last checkpoint is of round 3
    resume_experiment(folder)
    assert sorted_metrics(folder).equals(sorted_metrics(finished))


def test_resuming_a_finished_run_leaves_it_alone(finished):
    before = (finished / "metrics.parquet").stat().st_mtime_ns
    assert resume_experiment(finished) == finished
    assert (finished / "metrics.parquet").stat().st_mtime_ns == before


def test_what_a_run_leaves(config, finished):
    names = {path.name for path in finished.iterdir()}
    assert names == {
        "config.toml", "resolved.json", "environment.json", "metrics.parquet", "baselines.json", "ledger.jsonl",
        "messages.json",
        "per_query.parquet", "privacy.json", "model.json", "weights", "done.json", ".lock",
    }  # fmt: skip
    assert read_config(finished / "config.toml").resolved() == config.resolved()
    assert json.loads((finished / "resolved.json").read_text()) == as_dict(config.resolved())
    given = tomllib.loads((finished / "config.toml").read_text())
    assert given["seeds"] == 2 and "fold" not in given and "evaluation" in given  # what differs from the defaults
    frame = pl.read_parquet(finished / "metrics.parquet")
    online = frame.filter(split="online", measure="MaxRR", seed=1).sort("round")
    assert online["round"].to_list() == [1, 2, 3, 4, 5, 6]
    assert online["interactions"].to_list() == [24 * r for r in range(1, 7)]  # 6 devices × 4
    assert online["bytes_up"].to_list() == [54 * r for r in range(1, 7)]  # 6 devices × 9 bytes
    np.testing.assert_allclose(online["epsilon"], [4 * np.log(0.5 * 10 / 0.5) * r for r in range(1, 7)])
    evaluated = frame.filter(split="train", measure="nDCG(dcg='exp-log2')@10", seed=0).sort("round")
    assert evaluated["round"].to_list() == [0, 2, 4, 6]
    ledger = Ledger.read(finished / "ledger.jsonl")
    assert ledger.bytes_from("parties") == 6 * 6 * 9
    assert ledger.bytes_from("server") == 6 * 6 * (1 + 4 + 4 * 3)  # header, round, three weights
    model = json.loads((finished / "model.json").read_text())
    assert (model["ranker"], model["n_features"], model["queries"]["train"]) == ("linear", 3, 10)


def test_the_configuration_file_repeats_the_run(finished, tmp_path):
    again = run_experiment(read_config(finished / "config.toml"), tmp_path / "again")
    assert sorted_metrics(again).equals(sorted_metrics(finished))


def test_a_folder_in_use_is_refused(config, finished, tmp_path):
    with pytest.raises(RunError, match="not empty"):
        run_experiment(config, finished)
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match="cannot be made"):
        run_experiment(config, tmp_path / "file")
    with pytest.raises(RunError, match="holds no run"):
        resume_experiment(tmp_path)


def test_a_bad_configuration_leaves_nothing_behind(config, tmp_path):
    with pytest.raises(UnknownNameError, match="navigational"):
        run_experiment(replace(config, clicks="navigationl"), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_labels_beyond_the_users_grades_are_refused(config, tmp_path):
    path = tmp_path / "deep.txt"
    path.write_text("31 qid:1 1:1\n0 qid:1 1:0\n")
    with pytest.raises(DataError, match=r"deep.txt:1: .*31"):
        run_experiment(replace(config, data=str(path)), tmp_path / "run")


def test_damaged_checkpoints_are_told(config, tmp_path):
    folder = tmp_path / "run"
    with pytest.raises(SystemExit):
        run_experiment(config, folder, listener=StopAt(4, killed))
    state = folder / "checkpoint" / "state.npz"
    whole = state.read_bytes()
    state.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(RunError, match="cut one"):
        resume_experiment(folder)
    state.write_bytes(whole)
    (folder / "config.toml").write_text(to_toml(with_setting(config, "sigma", 0.02).resolved()))
    with pytest.raises(RunError, match=r"sigma = 0\.02, but the run began with 0\.01"):
        resume_experiment(folder)
    (folder / "resolved.json").unlink()  # as a run of an earlier version
    with pytest.raises(RunError, match="another configuration"):
        resume_experiment(folder)


@pytest.mark.slow
@pytest.mark.parametrize("change", ["label", "feature"])
def test_a_run_does_not_go_on_with_other_data(config, letor, finished, tmp_path, change):
    """Nothing but one label, or one feature of one document, is another; with the old data back it ends as it would."""
    data, folder = tmp_path / "tiny.txt", tmp_path / "run"
    data.write_bytes(letor.read_bytes())
    with pytest.raises(SystemExit):
        run_experiment(replace(config, data=str(data)), folder, listener=StopAt(4, killed))
    first, rest = letor.read_text().split("\n", 1)
    label, qid, one, *more = first.split(" ")
    if change == "label":
        label = str(1 - min(int(label), 1))
    else:
        one = "1:0.5" if one != "1:0.5" else "1:0.25"
    data.write_text("\n".join([" ".join([label, qid, one, *more]), rest]))
    with pytest.raises(RunError, match="the data is not that"):
        resume_experiment(folder)
    data.write_bytes(letor.read_bytes())
    resume_experiment(folder)  # what was read before is kept in this process only as long as the file stays
    assert sorted_metrics(folder).equals(sorted_metrics(finished))


def test_a_digest_is_of_what_data_holds_not_of_what_it_is_called():
    one = checkpoint.digest_of({"a": np.arange(3), "b": ("x", 1.0)})
    assert one == checkpoint.digest_of({"a": np.arange(3), "b": ["x", 1.0]})
    others = [
        {"a": np.arange(4), "b": ("x", 1.0)},
        {"a": np.arange(3).astype(np.int32), "b": ("x", 1.0)},
        {"a": np.arange(3).reshape(3, 1), "b": ("x", 1.0)},
        {"a": np.arange(3), "b": ("x", 1)},
        {"a": np.arange(3), "b": ("x1.0",)},
        {"a": np.arange(3), "b": ("y", 1.0)},
    ]
    assert len({one, *map(checkpoint.digest_of, others)}) == 7
    queries = QuerySet(np.eye(2), np.array([0, 1]), np.array([0, 2]), np.array(["q"]))
    assert checkpoint.digest_of(replace(queries, name="moved")) == checkpoint.digest_of(queries)
    assert checkpoint.digest_of(replace(queries, labels=np.array([1, 1]))) != checkpoint.digest_of(queries)


def test_a_full_disk_keeps_the_last_checkpoint(tmp_path, monkeypatch):
    path = tmp_path / "state.npz"
    checkpoint.save(path, {"a": np.arange(3)}, {"round": 1})

    def full(self, target):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pathlib.Path.replace", full)
    with pytest.raises(RunError, match=r"No space left on device.*untouched"):
        checkpoint.save(path, {"a": np.arange(3)}, {"round": 2})
    assert checkpoint.load(path, {"a": np.zeros(3)})[1] == {"round": 1}
    assert list(tmp_path.iterdir()) == [path]


def test_arrays_of_other_shapes_are_refused(tmp_path):
    path = tmp_path / "state.npz"
    checkpoint.save(path, {"a": np.arange(3), "b": np.zeros((2, 2))}, {"round": 1})
    with pytest.raises(RunError, match="other shapes"):
        checkpoint.load(path, {"a": np.arange(3), "b": np.zeros((2, 3))})


def test_a_stopped_run_accounts_for_what_took_place(config, tmp_path):
    folder = tmp_path / "run"
    with pytest.raises(Interrupted):
        run_experiment(config, folder, listener=StopAt(4, lambda: os.kill(os.getpid(), signal.SIGINT)))
    assert Ledger.read(folder / "ledger.jsonl").bytes_from("parties") == 4 * 6 * 9  # rounds × devices × bytes
    assert json.loads((folder / "privacy.json").read_text())["details"]["rounds"] == 4
    resume_experiment(folder)
    assert Ledger.read(folder / "ledger.jsonl").bytes_from("parties") == 6 * 6 * 9


def test_one_process_at_a_time(config, finished, tmp_path):
    folder = tmp_path / "run"
    with pytest.raises(Interrupted):
        run_experiment(config, folder, listener=StopAt(4, lambda: os.kill(os.getpid(), signal.SIGINT)))
    hold = (
        f"import filelock, sys\nwith filelock.FileLock({str(folder / '.lock')!r}):\n"
        "    print('held', flush=True)\n    sys.stdin.read()"
    )
    other = subprocess.Popen([sys.executable, "-c", hold], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert other.stdout.readline() == "held\n"
        with pytest.raises(RunError, match="another process is at work"):
            resume_experiment(folder)
    finally:
        other.kill()  # a killed process holds nothing
        other.wait()
    (folder / "checkpoint" / "state.npz.123.partial").write_bytes(b"what a killed process left")
    resume_experiment(folder)
    assert sorted_metrics(folder).equals(sorted_metrics(finished))
    assert not (folder / "checkpoint").exists() and not list(folder.rglob("*.partial"))


def test_a_part_without_relevant_documents_has_no_judged_measure(config, tmp_path):
    folder = tmp_path / "set"
    folder.mkdir()
    (folder / "train.txt").write_text("1 qid:1 1:1\n0 qid:1 1:0\n")
    (folder / "test.txt").write_text("0 qid:2 1:1\n0 qid:2 1:0\n")
    done = run_experiment(replace(config, data=str(folder), rounds=2), tmp_path / "run")
    frame = pl.read_parquet(done / "metrics.parquet")
    assert frame["value"].is_finite().all()
    judged = frame.filter(pl.col("measure") == "nDCG(dcg='exp-log2')@10 (judged)")["split"].unique().to_list()
    assert judged == ["train"]
    (mse,) = json.loads((done / "baselines.json").read_text())["baselines"]
    assert all(v["value"] is not None for v in mse["values"])


def test_large_seeds(config, tmp_path):
    frame = pl.read_parquet(
        run_experiment(replace(config, seed=2**32 - 1001, rounds=2), tmp_path / "run") / "metrics.parquet"
    )
    assert sorted(frame["seed"].unique()) == [2**32 - 1001, 2**32 - 1000]


def test_binary_labels_are_the_ends_of_the_scale(config, tmp_path):
    """A perfect user always clicks what is relevant, if there are but two grades: a perfect ranking is worth 1."""
    path = tmp_path / "binary.txt"
    path.write_text("1 qid:1 1:1\n0 qid:1 1:0\n1 qid:2 1:1\n0 qid:2 1:0.5\n")
    done = run_experiment(replace(config, data=str(path), clicks="perfect", rounds=2), tmp_path / "run")
    values = json.loads((done / "baselines.json").read_text())["baselines"][0]["values"]
    assert [v["value"] for v in values if v["measure"] == "expected MaxRR (perfect)"] == [1.0]


def test_a_ranker_of_ones_own(config, tmp_path, monkeypatch):
    """Registered, not known to the kernels: it is trained in JAX, and nothing else is."""
    from dataclasses import dataclass

    import jax.numpy as jnp

    from fedrank.engine.run import build
    from fedrank.ranking.rankers.base import RANKERS, Ranker

    @dataclass(frozen=True)
    class Best(Ranker):
        n_features: int

        @property
        def size(self):
            return 1

        def scores(self, weights, features):
            return jnp.max(features, axis=-1) * weights[0]

        def tensors(self, weights):
            return {"weight": np.asarray(weights)}

        @classmethod
        def build(cls, n_features, hidden):
            return cls(n_features)

        def kernel_shape(self):
            return None

    monkeypatch.setattr(RANKERS, "_entries", dict(RANKERS._entries))
    RANKERS.register("best", summary="The largest feature.")(Best)
    experiment = build(replace(config, ranker="best"))
    assert isinstance(experiment.protocol.ranker, Best) and not experiment.kernels
    run_experiment(replace(config, ranker="best", rounds=2), tmp_path / "run")
    with pytest.raises(ConfigError, match="kernels do not know"):
        build(replace(config, ranker="best", compute=Compute(kernels="on")))


def test_one_of_everything(tmp_path):
    """One query, one document, one device, one interaction, one seed."""
    path = tmp_path / "one.txt"
    path.write_text("1 qid:1 1:0.5\n")
    settings = run_of("foltr-es", 
        data=str(path), clients=1, interactions=1, presentation="one-sided", privacy={"p": 0.9}, rounds=1, seeds=1,
        evaluation=Evaluation(measures=("nDCG(dcg='exp-log2')@10",)),
    )  # fmt: skip
    frame = pl.read_parquet(run_experiment(settings, tmp_path / "run") / "metrics.parquet")
    assert frame["value"].is_finite().all()
    assert set(frame.filter(pl.col("measure") == "nDCG(dcg='exp-log2')@10")["value"]) == {1.0}


def test_data_may_be_handed_over_in_any_form_and_the_run_says_so(tmp_path):
    rng = np.random.default_rng(3)
    arrays = (rng.random((12, 4)), rng.integers(0, 3, 12), np.repeat([1, 2, 3], 4))
    frame = pl.DataFrame({f"f{k}": arrays[0][:, k] for k in range(4)} | {"label": arrays[1], "qid": arrays[2]})
    path = tmp_path / "mine.txt"
    path.write_text(
        "".join(
            f"{y} qid:{q} " + " ".join(f"{k + 1}:{float(np.float32(x))!r}" for k, x in enumerate(row)) + "\n"
            for row, y, q in zip(*arrays, strict=True)
        )
    )
    settings = {"clients": 2, "rounds": 2, "seeds": 1, "holdout": 0.4, "evaluation": {"baselines": []}}
    sources = {"arrays": arrays, "frame": frame, "path": path, "name": str(path)}
    done = {
        name: fedrank.run("foltr-es", source, folder=tmp_path / name, **settings).path
        for name, source in sources.items()
    }
    weights = {name: load_file(folder / "weights" / "seed0.safetensors")["weight"] for name, folder in done.items()}
    assert len({vector.tobytes() for vector in weights.values()}) == 1  # the files differ in what they say of the data
    said = {name: tomllib.loads((folder / "config.toml").read_text())["data"] for name, folder in done.items()}
    assert said == {"arrays": "own", "frame": "own", "path": str(path), "name": str(path)}
    with pytest.raises(ConfigError, match="hand it over"):
        build(read_config(done["arrays"] / "config.toml"))
