"""What follows a run: files that other libraries read have the run's numbers, each once, also after a crash."""

import polars as pl
import pytest
from short_settings import run_of

from fedrank.core.errors import MissingExtraError, UnknownNameError
from fedrank.engine import tracking
from fedrank.engine.progress import Listener
from fedrank.engine.run import resume_experiment, run_experiment
from fedrank.engine.tracking import track, tracked_before
from fedrank.ranking.config import Compute, Evaluation

CONFIG = run_of(
    "foltr-es",
    clients=4,
    rounds=6,
    seeds=2,
    evaluation=Evaluation(every=2, baselines=()),
    compute=Compute(checkpoint_seconds=0, kernels="off"),
)


class Crash(Listener):
    """Breaks the run off after some rounds, as a killed process is."""

    def __init__(self, after):
        self.after = after

    def progress(self, progress):
        if progress.round >= self.after:
            raise RuntimeError("killed")


def plain(split, measure):
    """A measure's name in letters that every library takes."""
    return f"{split}/{measure}".replace("@", " at ").translate(str.maketrans("", "", "()='"))


def crashed_and_resumed(folder, names):
    with pytest.raises(RuntimeError, match="killed"):
        run_experiment(CONFIG, folder, listener=track(names, Crash(4)))  # four rounds are told, the checkpoint has two
    assert tracked_before(folder) == names
    return resume_experiment(folder, listener=track(tracked_before(folder)))


def streamed(folder):
    """The rows of a run that are told while it goes on: all but the totals, which are made at its end."""
    order = ["split", "measure", "seed", "round"]
    return pl.read_parquet(folder / "metrics.parquet").filter(pl.col("split") != "total").sort(order)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return crashed_and_resumed(tmp_path_factory.mktemp("tracked") / "run", ["csv", "tensorboard"])


def test_csv_has_the_rows_of_the_metrics_once(folder):
    found = pl.read_csv(folder / "metrics.csv", schema_overrides={"epsilon": pl.Float64})
    expected = streamed(folder)
    assert found.sort("split", "measure", "seed", "round").equals(expected) and len(expected) > 20


def test_tensorboard_files_have_every_value_once(folder):
    from tensorboardX.proto.event_pb2 import Event

    def tag(split, measure):
        return plain(split, measure).replace(" ", "_")

    found = {}
    for file in sorted((folder / "tracking" / "tensorboard").rglob("events.out*")):
        data = file.read_bytes()
        name, place = file.parent.name, 0
        while place < len(data):  # length, its check, the event, its check
            size = int.from_bytes(data[place : place + 8], "little")
            event = Event.FromString(data[place + 12 : place + 12 + size])
            place += 16 + size
            if event.session_log.status == event.session_log.START:  # steps from this one on do not count any more
                found = {key: value for key, value in found.items() if key[0] != name or key[2] < event.step}
            for one in event.summary.value:
                assert (name, one.tag, event.step) not in found
                found[name, one.tag, event.step] = one.simple_value
    rows = streamed(folder)
    for seed, split, measure, round_, value in rows.select("seed", "split", "measure", "round", "value").iter_rows():
        assert found.pop((f"seed{seed}", tag(split, measure), round_)) == pytest.approx(value, abs=1e-6)
    means = rows.group_by("split", "measure", "round").agg(pl.col("value").mean())
    for split, measure, round_, value in means.iter_rows():
        assert found.pop(("mean", tag(split, measure), round_)) == pytest.approx(value, abs=1e-6)
    assert not found


def test_mlflow_has_settings_and_means_once(tmp_path, monkeypatch):
    from mlflow import MlflowClient

    monkeypatch.setenv("MLFLOW_TRACKING_URI", address := f"sqlite:///{tmp_path / 'all.db'}")
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", "mine")
    folder = crashed_and_resumed(tmp_path / "run", ["mlflow"])
    client = MlflowClient(tracking_uri=address)
    (found,) = client.search_runs([client.get_experiment_by_name("mine").experiment_id])
    assert found.info.status == "FINISHED" and found.info.run_name == "run"
    assert (found.data.params["clients"], found.data.params["evaluation.every"]) == ("4", "2")
    means = streamed(folder).group_by("split", "measure", "round").agg(pl.col("value").mean())
    for (split, measure), rows in means.partition_by("split", "measure", as_dict=True).items():
        name = plain(split, measure)
        history = [(one.step, one.value) for one in client.get_metric_history(found.info.run_id, name)]
        assert len(history) == len(dict(history))
        assert dict(history) == pytest.approx(dict(rows.select("round", "value").iter_rows()))


def test_following_begins_at_the_start_also_where_it_was_asked_for_late(tmp_path):
    with pytest.raises(RuntimeError, match="killed"):
        run_experiment(CONFIG, tmp_path / "run", listener=Crash(4))
    assert tracked_before(tmp_path / "run") == []
    folder = resume_experiment(tmp_path / "run", listener=track(["csv"]))
    assert len(pl.read_csv(folder / "metrics.csv")) == len(streamed(folder))


def test_what_is_not_known_or_not_installed_is_told(monkeypatch):
    with pytest.raises(UnknownNameError, match="tensorboard"):
        track(["tensorbord"])
    monkeypatch.setattr("fedrank.core.lazy.find_spec", lambda package: None)
    with pytest.raises(MissingExtraError, match=r"fedrank\[tracking\]"):
        track(["tensorboard"])
    assert isinstance(track([]), Listener) and set(tracking.TRACKERS.names()) == {"csv", "tensorboard", "mlflow"}
