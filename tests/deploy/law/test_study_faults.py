"""Faults of a study over Flower, in one process with Flower's own messages: the undisturbed result, or one message."""

import json

import numpy as np
import pytest
from studies import NO_RULES, SILOS, codebook, csv, node, rows

from fedrank.core.errors import RunError
from fedrank.engine.checkpoint import lock_folder
from fedrank.silos.studies.codebook import Question, codebook_toml
from fedrank.silos.studies.coordinator import StudyFolder, run_study
from fedrank.silos.studies.keys import KEY, make_key
from fedrank.silos.studies.messages import Round
from fedrank.silos.studies.node import MOST_ROUNDS, open_node
from fedrank.silos.studies.protocol import Ask
from fedrank_flower.messages import RECORD
from fedrank_flower.studies import answer_study, serve_study

RISK = Question(name="risk", formula="ill ~ age + sex")
PARTS = {silo: rows(n, k) for k, (silo, n) in enumerate(zip(SILOS, (60, 70, 80), strict=True))}
flwr = pytest.importorskip("flwr.app", reason="needs flwr: pip install -e ./flower")


class Grid:
    """Flower's grid with its nodes in this process; a node is a function: message -> reply, or None if it is silent."""

    def __init__(self, nodes):
        self.nodes, self.replies, self.pushed = nodes, {}, []

    def get_node_ids(self):
        return list(self.nodes)

    def push_messages(self, messages):
        numbers = []
        for message in messages:
            numbers.append(f"message {len(self.pushed)}")
            message.metadata.__dict__["_message_id"] = numbers[-1]  # as Flower does
            self.pushed.append(message.metadata.dst_node_id)
            if (reply := self.nodes[message.metadata.dst_node_id](message)) is not None:
                self.replies[numbers[-1]] = reply
        return numbers

    def pull_messages(self, message_ids):
        return [self.replies.pop(number) for number in message_ids if number in self.replies]


class Study:
    """Files of three silos, with keys where wanted, and the result of an undisturbed study."""

    def __init__(self, folder, *, keys=False, rules=NO_RULES):
        made = {silo: make_key(folder / f"node-{silo}" / KEY) for silo in SILOS} if keys else {}
        self.folder = folder
        self.book = codebook(RISK, rules=rules, keys={silo: key.public for silo, key in made.items()})
        for silo, part in PARTS.items():
            csv(part, folder / f"{silo}.csv")
        (folder / "codebook.toml").write_text(codebook_toml(self.book))
        self.grid = Grid({number: self.node(silo) for number, silo in enumerate(SILOS, 1)})

    def node(self, silo, *, named="", before=lambda number: None):
        """A silo's node; named: as another silo; before: is told the round's number, and may keep the node silent."""

        def answer(message):
            asked = Round.from_json(json.loads(message.content.config_records[RECORD]["round"]))
            if before(asked.number) is SILENT:
                return None
            table = {
                "silo": named or silo, "data": f"{self.folder}/{silo}.csv", "state-dir": f"{self.folder}/node-{silo}",
                "codebook-sha256": self.book.sha,
            }  # fmt: skip
            return answer_study(message, flwr.Context(1, 1, table, flwr.RecordDict(), {}))

        return answer

    def serve(self, seconds=20.0, **values):
        told = {"codebook": f"{self.folder}/codebook.toml", "study-dir": f"{self.folder}/study"}
        serve_study({**told, "round-timeout": seconds, **values}, self.grid)
        return StudyFolder(self.folder / "study").coordinator.progress["risk"]

    def undisturbed(self, silos="abc"):
        book = codebook(RISK)
        nodes = [node(book, silo, PARTS[silo]) for silo in silos]
        return run_study(book, lambda asked: [one.answer(asked) for one in nodes]).progress["risk"].result.estimate


SILENT = object()


@pytest.fixture
def identity(monkeypatch):
    from flwr.supercore.task_identity import TaskIdentity  # set in the processes that Flower starts

    for name in ("_run_id", "_node_id", "_task_id"):
        monkeypatch.setattr(TaskIdentity, name, 1)


pytestmark = pytest.mark.usefixtures("identity")


def same(progress, expected, left=()):
    assert set(progress.left) == set(left)
    np.testing.assert_array_equal(progress.result.estimate, expected)


def once(number):
    """Silent the first time that it hears of a round."""
    heard = []

    def before(asked):
        heard.append(asked)
        return SILENT if heard.count(number) == 1 and asked == number else None

    return before


def test_a_node_that_lost_its_message_is_asked_again_under_the_same_number(tmp_path):
    """So is a node with a registered key that was killed in the middle of a round, and started again."""
    study = Study(tmp_path, keys=True)
    study.grid.nodes[2] = study.node("b", before=once(2))
    same(study.serve(1.0), study.undisturbed())
    pushed = study.grid.pushed
    assert pushed.count(2) == pushed.count(1) + 1 and pushed.count(3) == pushed.count(1)  # the others were not


def test_a_node_that_hangs_stops_the_run_which_goes_on_when_it_is_back(tmp_path):
    study = Study(tmp_path)
    study.grid.nodes[3] = study.node("c", before=lambda number: SILENT if number == 2 else None)
    with pytest.raises(RunError, match="no answer of c to round 2"):
        study.serve(0.5)
    study.grid.nodes[3] = study.node("c")
    same(study.serve(), study.undisturbed())


def test_with_go_on_without_the_study_goes_on_without_a_node_that_hangs(tmp_path, caplog):
    study = Study(tmp_path)
    study.grid.nodes[3] = study.node("c", before=lambda number: SILENT if number >= 2 else None)
    same(study.serve(0.5, **{"go-on-without": True}), study.undisturbed("ab"), {"c"})
    assert [record for record in caplog.records if "without c" in record.getMessage()]


def test_a_node_that_comes_late_is_asked_in_the_round_that_is_open(tmp_path):
    study = Study(tmp_path)
    late, looks = study.grid.nodes.pop(3), []

    def ids():
        looks.append(1)
        if len(looks) == 3:
            study.grid.nodes[3] = late
        return list(study.grid.nodes)

    study.grid.get_node_ids = ids
    same(study.serve(), study.undisturbed())


def test_a_silo_out_of_budget_is_named_with_the_rule(tmp_path, caplog):
    study = Study(tmp_path)
    own = open_node(tmp_path / "c.csv", study.book, "c", tmp_path / "node-c", study.book.sha)
    for number in range(MOST_ROUNDS - 1):  # it answers one more round, and no second
        ask = Ask("sums", {"theta": np.full((1, 3), number / 1000 + 0.001)})
        assert not own.answer(Round(study.book, 1, {"risk": ask})).replies["risk"].refused
    progress = study.serve()
    same(progress, study.undisturbed("ab"), {"c"})
    assert progress.left["c"].startswith("plan")
    assert [record for record in caplog.records if "without c: plan" in record.getMessage()]


def test_a_table_that_changes_between_rounds_takes_its_silo_out(tmp_path):
    study = Study(tmp_path)

    def change(number):
        if number == 3:
            csv({**PARTS["c"], "age": PARTS["c"]["age"] + 1}, tmp_path / "c.csv")

    study.grid.nodes[3] = study.node("c", before=change)
    progress = study.serve()
    same(progress, study.undisturbed("ab"), {"c"})
    assert progress.left["c"].startswith("same table")


def test_where_all_but_one_silo_refuse_there_is_no_result_and_the_reason_is_given(tmp_path, caplog):
    study = Study(tmp_path, rules=type(NO_RULES)(smallest_cell=1, rows_per_parameter=25.0, events_per_parameter=0.0))
    progress = study.serve()  # 3 coefficients: of 60, 70 and 80 rows one silo has enough
    assert progress.result is None and "rows for each coefficient" in progress.failed
    assert [record for record in caplog.records if "no result" in record.getMessage()]


@pytest.mark.parametrize("call", [1, 2, 3, 4])
def test_a_coordinator_that_is_killed_goes_on_where_it_was(tmp_path, call, monkeypatch):
    """Killed while it takes an answer of the second round, before or after the answer is kept."""
    study = Study(tmp_path)
    receive, calls = StudyFolder.receive, []

    def killed(self, answer):
        calls.append(answer)
        if len(calls) == 3 + call // 2 and call % 2:
            raise KeyboardInterrupt
        receive(self, answer)
        if len(calls) == 3 + call // 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(StudyFolder, "receive", killed)
    with pytest.raises(KeyboardInterrupt):
        study.serve()
    monkeypatch.undo()
    from flwr.supercore.task_identity import TaskIdentity

    for name in ("_run_id", "_node_id", "_task_id"):
        monkeypatch.setattr(TaskIdentity, name, 1)
    same(study.serve(), study.undisturbed())


def test_a_node_that_speaks_for_another_silo_is_named_and_keeps_nobody_out(tmp_path):
    study = Study(tmp_path, keys=True)
    study.grid.nodes = {1: study.node("b", named="a"), **{n: study.node(s) for n, s in ((2, "b"), (3, "c"))}}
    with pytest.raises(RunError, match=r"no answer of a .*ConfigError"):
        study.serve(0.5)
    study.grid.nodes[4] = study.node("a")
    same(study.serve(), study.undisturbed())


def test_two_runs_of_one_study_at_once_are_refused(tmp_path):
    study = Study(tmp_path)
    (tmp_path / "study").mkdir()
    with lock_folder(tmp_path / "study", "holds it"), pytest.raises(RunError, match="another process"):
        study.serve()
    same(study.serve(), study.undisturbed())
