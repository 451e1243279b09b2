"""A node of a run with a record's ε answers each question once: the same bytes again, and nothing else."""

import os
import signal
import subprocess
import sys

import numpy as np
import pytest

from fedrank.core.errors import ConfigError, RunError, WireError
from fedrank.engine.deployment import NodeSettings
from fedrank.silos.deployment import stand_in
from fedrank.silos.messages import Candidates, Model
from fedrank_flower import answers
from fedrank_flower import settings as flat
from fedrank_flower.answers import answer_for, node_of
from fedrank_flower.kept_answers import AnswersFile, Whose
from fedrank_flower.messages import Question

VALUES = {
    "protocol": "bandit-fedavg",
    "data": "own",
    "n-features": 2,
    "silos-count": 2,
    "silos-target": "0",
    "silos-label": "label",
    "network-widths": "2",
    "network-norm": "layer",
    "network-epochs": 1,
    "num-server-rounds": 2,
    "bandit-rule": "ucb",
    "bandit-every": 2,
    "privacy-epsilon": 3.0,
    "privacy-ranges": "age=20:90,dose=0:1",
}
PRETRAIN, TRAIN, JUDGE, JUDGE_ALL = range(4)
#: Answers a question like a node's process, writes the answer down, and is killed.
KILLED = """
import os, pathlib, signal, sys
sys.path.insert(0, sys.argv[1])
from test_flower_kept_answers import ask, question
folder = pathlib.Path(sys.argv[2])
(folder / "sent").write_bytes(ask(folder, question(0, 1)).replies)
os.kill(os.getpid(), signal.SIGKILL)
"""


def own_table(folder):
    rng = np.random.default_rng(0)
    rows = (f"{rng.integers(20, 80)},{rng.random():.3f},{k % 2}" for k in range(40))
    (folder / "own.csv").write_text("\n".join(["age,dose,label", *rows]))


def ask(folder, asked, *, kept="kept", most=-1.0, **values):
    """The answer of a node whose noise is the operating system's."""
    config, _ = flat.read_run({**VALUES, **values})
    state = str(folder / kept) if kept else ""
    told = NodeSettings(0, 2, data=str(folder / "own.csv"), state_dir=state, most_total_epsilon=most)
    return answer_for(config, told, asked)


def question(round_, exchange, shift=0.0):
    config, _ = flat.read_run(VALUES)
    protocol = stand_in(config, 2).protocol
    layout = protocol.exchanges[exchange].request
    weights = np.full(protocol.parameters, 0.1 + shift, np.float32)
    if exchange in (PRETRAIN, TRAIN):
        return Question(round_, exchange, layout.encode(Model(np.uint32(round_), weights)))
    models = np.tile(weights, (protocol.exchanges[exchange].sizes["models"], 1))
    return Question(round_, exchange, layout.encode(Candidates(models)))


@pytest.fixture
def folder(tmp_path):
    own_table(tmp_path)
    return tmp_path


def test_the_same_question_gets_the_same_bytes_and_another_in_its_place_nothing(folder):
    """Noise is the operating system's: bytes that are computed anew differ, as those of another folder show."""
    first = ask(folder, question(0, PRETRAIN))
    trained = ask(folder, question(0, TRAIN))
    node_of.cache_clear()  # as of a new process
    assert ask(folder, question(0, TRAIN)) == trained and ask(folder, question(0, PRETRAIN)) == first
    assert ask(folder, question(0, TRAIN), kept="other") != trained
    with pytest.raises(RunError, match="to another request"):
        ask(folder, question(0, TRAIN, shift=0.01))
    assert ask(folder, question(1, TRAIN)) != trained


def test_a_round_has_one_judgement_and_one_training_before_it(folder):
    ask(folder, question(0, PRETRAIN))
    judged = ask(folder, question(0, JUDGE))
    with pytest.raises(RunError, match="to another request"):  # AUCs of both would be more than the noise is made for
        ask(folder, question(0, JUDGE_ALL))
    assert ask(folder, question(0, JUDGE)) == judged
    with pytest.raises(RunError, match="not asked in round 1"):
        ask(folder, question(1, PRETRAIN))
    with pytest.raises(RunError, match="the run has 2 rounds"):
        ask(folder, question(2, TRAIN))


def test_another_seed_is_another_run_and_a_node_that_cannot_remember_takes_no_part(folder):
    with pytest.raises(RunError, match="give it a state-dir"):
        ask(folder, question(0, TRAIN), kept="")
    assert ask(folder, question(0, TRAIN)) != ask(folder, question(0, TRAIN), **{"seed": 1})


def test_runs_with_an_epsilon_add_up_to_what_the_node_agrees_to(folder, caplog):
    """ε = 3 each, at the run's δ: two runs are within 6, and a third is not, though the first goes on."""
    asked = question(0, TRAIN)
    ask(folder, asked, most=6.0)
    ask(folder, asked, most=6.0, seed=1)
    assert "1 earlier run(s) on the same data had" in caplog.text
    with pytest.raises(RunError, match=r"2 earlier run.*agrees to 6 in all"):
        ask(folder, asked, most=6.0, seed=2)
    assert ask(folder, question(1, TRAIN), most=6.0).replies


def test_an_answer_that_was_drawn_and_not_kept_is_not_drawn_again(folder, monkeypatch):
    def full(self, turn, kept):
        raise RunError("No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(AnswersFile, "put", full)
        with pytest.raises(RunError, match="No space left"):
            ask(folder, question(0, TRAIN))
    with pytest.raises(RunError, match="drawn and lost"):
        ask(folder, question(0, TRAIN))
    assert ask(folder, question(1, TRAIN)).replies


def test_a_failure_is_the_answer_of_its_turn(folder, monkeypatch):
    drawn = []

    def fails(*args):
        drawn.append(1)
        raise WireError("not finite")

    monkeypatch.setattr(answers, "answer_of", fails)
    for _ in range(3):
        with pytest.raises(WireError, match="not finite"):
            ask(folder, question(0, TRAIN))
    assert len(drawn) == 1


def test_a_run_without_an_epsilon_is_refused_where_runs_are_counted(folder):
    bare = {"privacy-epsilon": -1.0, "privacy-ranges": ""}
    with pytest.raises(ConfigError, match="most-total-epsilon"):
        ask(folder, question(0, TRAIN), most=6.0, **bare)
    with pytest.raises(ConfigError, match="agrees to 2 in all"):
        ask(folder, question(0, TRAIN), most=2.0)


def test_a_file_that_was_lost_or_a_table_that_changed_ends_the_run(folder, caplog):
    ask(folder, question(0, TRAIN))
    assert "is new" in caplog.text
    table = (folder / "own.csv").read_text()
    (folder / "own.csv").write_text(table.replace(",0.", ",0.1", 1))
    node_of.cache_clear()
    with pytest.raises(RunError, match="the data has changed since this run began"):
        ask(folder, question(1, TRAIN))
    (folder / "own.csv").write_text(table)
    node_of.cache_clear()
    for file in (folder / "kept").glob("answers.sqlite*"):
        file.unlink()
    with pytest.raises(RunError, match="it was deleted"):
        ask(folder, question(1, TRAIN))


def test_silos_that_share_a_folder_have_sums_and_locks_of_their_own(tmp_path):
    def file(run, party, source, patience=600.0):
        return AnswersFile(tmp_path / "a.sqlite", run, lambda: 3.0, 4.0, Whose(party, source), patience)

    with file("one", 0, "/a").alone(), file("two", 1, "/b").alone():
        pass
    for run, party, source in (("one", 0, "/a"), ("two", 1, "/b")):
        made = file(run, party, source)
        with made.alone():
            assert made.begin("0/train", "x") is None
    for party, source in ((0, "/c"), (2, "/a")):  # the same silo, and the same table under another number
        made = file("three", party, source)
        with made.alone(), pytest.raises(RunError, match="1 earlier run"):
            made.begin("0/train", "x")
    busy = file("one", 0, "/a", patience=0.01)
    with file("one", 0, "/a").alone(), pytest.raises(RunError, match="still answering for party 0"), busy.alone():
        pass


@pytest.mark.slow
def test_a_node_that_is_killed_sends_the_same_bytes_when_it_is_asked_again(folder):
    done = subprocess.run(
        [sys.executable, "-c", KILLED, os.path.dirname(__file__), str(folder)], capture_output=True, check=False
    )
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()
    assert ask(folder, question(0, TRAIN)).replies == (folder / "sent").read_bytes()


#: A record of a hospital with public ranges of age and dose, in another one's place.
RECORDS = ("50,0.5,1", ",,", "old,<0.3,unknown", "1e300,-5,1", '"1.204,5","0,5",1', "50,0.5,Yes", "03-Mar-2024,1 000,0")


@pytest.mark.minutes
def test_what_a_hospital_sends_in_a_run_with_an_epsilon_has_one_shape(tmp_path):
    config, _ = flat.read_run(VALUES)
    shapes = set()
    for number, record in enumerate(RECORDS):
        rng = np.random.default_rng(0)
        rows = [f"{rng.integers(20, 80)},{rng.random():.3f},{k % 2}" for k in range(40)]
        path = tmp_path / f"{number}.csv"
        path.write_text("\n".join(["age,dose,label", *rows[:7], record, *rows[8:]]))
        told = NodeSettings(0, 2, data=str(path), state_dir=str(tmp_path / f"node{number}"))
        hello = answer_for(config, told, Question(0, 0, b""))
        trained = answer_for(config, told, question(0, TRAIN))
        shapes.add((hello.first, hello.heard, hello.replies, trained.first, trained.heard, len(trained.replies)))
    assert len(shapes) == 1
