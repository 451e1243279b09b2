"""AOL4FOLTR in its published form: which searches are read, whose, in which order, and what is learned from them."""

import hashlib
import itertools
import json

import numpy as np
import pytest

from fedrank.cli.main import call
from fedrank.core.errors import ChecksumError, ConfigError, DataError, FormatError, MissingDataError
from fedrank.ranking.data.queries import QuerySet
from fedrank_zoo.aol4foltr import log as aol4foltr
from fedrank_zoo.aol4foltr.log import FEATURES, GLOBAL, UserLog, check_files, read_users, write_example
from fedrank_zoo.aol4foltr.replay import mrr, replay_log, rounds_of


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("aol")
    write_example(folder, users=3, searches=12)
    return folder


def raw(folder):
    """qid -> (labels, features), read with nothing but split."""
    out = {}
    for line in (folder / "letor.txt").read_text().splitlines():
        label, qid, *values = line.split(" ")
        rows = out.setdefault(qid.removeprefix("qid:"), ([], []))
        rows[0].append(int(label))
        rows[1].append([float(value.split(":")[1]) for value in values])
    return {qid: (np.array(labels), np.array(features)) for qid, (labels, features) in out.items()}


def test_the_searches_of_the_users_with_most_of_them(folder):
    rows = [line.split(",")[:3] for line in (folder / "metadata.csv").read_text().splitlines()[1:]]
    counts = {user: sum(row[1] == user for row in rows) for user in {row[1] for row in rows}}
    best = sorted(counts, key=lambda user: (-counts[user], user))[:2]
    expected = sorted((row for row in rows if row[1] in best), key=lambda row: row[2])
    log = read_users(folder, 2)
    assert list(log.names) == best
    assert log.queries.qids.tolist() == [row[0] for row in expected]
    assert [log.names[user] for user in log.user] == [row[1] for row in expected]
    assert (np.diff(log.time) >= 0).all()
    assert log.time[0] == (np.datetime64(expected[0][2]) - np.datetime64("1970-01-01")) // np.timedelta64(1, "us")
    lines = raw(folder)
    assert all((log.queries.labels.reshape(-1, 20)[k] == lines[row[0]][0]).all() for k, row in enumerate(expected))
    # Each feature of a search runs from 0 to 1, but for those whose range is that of all chosen searches.
    features = np.stack([lines[row[0]][1] for row in expected])
    low, high = features.min(axis=1, keepdims=True), features.max(axis=1, keepdims=True)
    every = [feature for feature in range(FEATURES) if feature not in GLOBAL]
    got = log.queries.features.reshape(-1, 20, FEATURES)
    ours = features[..., every]
    np.testing.assert_allclose(got[..., every], (ours - low[..., every]) / (high - low)[..., every], atol=1e-6)
    whole = features[..., GLOBAL]
    span = whole.max(axis=(0, 1)) - whole.min(axis=(0, 1))
    np.testing.assert_allclose(got[..., GLOBAL], (whole - whole.min(axis=(0, 1))) / span, atol=1e-6)
    assert read_users(folder, 2, without=(best[0],)).names == (best[1],)


def test_batches_in_their_order():
    user = np.array([0, 1, 0, 0, 1, 0, 1, 0, 1])  # user 0 asked at 0, 2, 3, 5, 7; user 1 at 1, 4, 6, 8
    rounds = [(members.tolist(), queries.tolist()) for members, queries in rounds_of(user, 2, 2, "synchronous")]
    assert rounds == [([0, 1], [[0, 2], [1, 4]]), ([0, 1], [[3, 5], [6, 8]])]
    arrived = [(members.tolist(), queries.tolist()) for members, queries in rounds_of(user, 2, 2, "asynchronous")]
    assert arrived == [([0], [[0, 2]]), ([1], [[1, 4]]), ([0], [[3, 5]]), ([1], [[6, 8]])]
    assert rounds_of(user, 2, 5, "synchronous")[0][0].tolist() == [0]


def test_mean_reciprocal_rank():
    features = np.array([[3.0], [2], [1], [1], [2], [3]])
    labels = np.array([0, 0, 1, 0, 1, 0])
    queries = QuerySet(features, labels, np.array([0, 3, 6]), np.array(["a", "b"]), "two")
    log = UserLog(queries, np.zeros(2, int), np.arange(2), ("u",))
    assert mrr(log, np.array([1.0]), 0) == pytest.approx((1 / 3 + 1 / 2) / 2)
    assert mrr(log, np.array([-1.0]), 0) == pytest.approx((1 + 1 / 2) / 2)
    assert mrr(log, np.array([0.0]), 1) == pytest.approx(1 / 2)


@pytest.mark.slow
def test_real_users_teach(folder):
    log = read_users(folder, 3)
    runs = {
        (arrival, own): replay_log(log, arrival, own=own, points=2)
        for arrival, own in itertools.product(("synchronous", "asynchronous"), (0.0, 1.0))
    }
    assert all(run.events[0] == 0 and run.events[-1] == 24 for run in runs.values())
    assert max(run.mrr[-1] for run in runs.values()) > runs["synchronous", 0.0].mrr[0]
    assert not np.array_equal(runs["synchronous", 0.0].weights, runs["synchronous", 1.0].weights)
    one = read_users(folder, 1)
    alone = [replay_log(one, "synchronous", own=own).weights for own in (0.0, 1.0)]
    np.testing.assert_array_equal(*alone)  # the server's model is that of the only client
    half = replay_log(one, "asynchronous", own=1.0, events=4).weights
    first = replay_log(one, "synchronous", own=1.0, events=4).weights
    np.testing.assert_allclose(half, first / 2, rtol=1e-6)  # a first answer is one merge old: w = 1/2


def test_what_is_wrong(folder, tmp_path, monkeypatch):
    with pytest.raises(MissingDataError, match="no such file"):
        read_users(tmp_path)
    with pytest.raises(DataError, match="has 3 users; 4 were asked for"):
        read_users(folder, 4)
    (tmp_path / "metadata.csv").write_text("qid,time\n1,2\n")
    with pytest.raises(FormatError, match="no column user_id, timestamp"):
        read_users(tmp_path)
    (tmp_path / "metadata.csv").write_text("qid,user_id,timestamp\n1,7,yesterday\n")
    with pytest.raises(FormatError, match="'yesterday'"):
        read_users(tmp_path, 1)
    (tmp_path / "metadata.csv").write_text("qid,user_id,timestamp\n1,7,2006-03-01 00:00:00\n")
    with pytest.raises(MissingDataError, match="neither letor"):
        read_users(tmp_path, 1)
    (tmp_path / "letor.txt").write_text("1 qid:2 1:1\n")
    with pytest.raises(DataError, match="none of the 1 searches"):
        read_users(tmp_path, 1)
    (tmp_path / "letor.txt").write_text("0 qid:1 1:1\nwhat is this\n")
    with pytest.raises(FormatError, match="label and qid"):
        read_users(tmp_path, 1)
    assert sorted(path.name for path in tmp_path.iterdir() if path.suffix == ".txt") == ["letor.txt"]  # nothing half
    with pytest.raises(MissingDataError, match="published files only"):
        check_files(tmp_path)
    sums = {"letor.txt": hashlib.md5((tmp_path / "letor.txt").read_bytes()).hexdigest(), "metadata.csv": "0"}
    monkeypatch.setattr(aol4foltr, "MD5", sums)
    with pytest.raises(ChecksumError, match=r"metadata\.csv is not the published file"):
        check_files(tmp_path)
    log = read_users(folder, 1)
    with pytest.raises(ConfigError, match="arrival must be"):
        replay_log(log, "late")
    with pytest.raises(DataError, match="no user has 100 searches"):
        replay_log(log, batch=100)


@pytest.mark.slow
def test_the_command(tmp_path, capsys):
    out = str(tmp_path / "log")
    assert call(["reproduce", "aol4foltr", out, "--example", "--seeds", "1", "--events", "8", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["made_up"] and said["users"] == 6 and said["events"][-1] == 8 and len(said["mrr"]) == 1
    assert call(["reproduce", "aol4foltr", out, "--example"]) == 1 and "not empty" in capsys.readouterr().err
