"""Several processes in one silo's folder, and what a killed one leaves: no line is lost, no rule is passed by."""

import json
import multiprocessing
import os
import signal
import threading

import numpy as np
import pytest
from studies import codebook, node, rows

from fedrank.core.errors import RunError
from fedrank.engine.checkpoint import lock_folder
from fedrank.silos.studies import node as of_node
from fedrank.silos.studies.codebook import Question, Rules
from fedrank.silos.studies.coordinator import Coordinator, open_study
from fedrank.silos.studies.messages import Round
from fedrank.silos.studies.node import MOST_ROUNDS
from fedrank.silos.studies.protocol import Ask

RISK = Question(name="risk", formula="ill ~ age + sex")


def lines(folder):
    return [json.loads(line) for line in (folder / "book.jsonl").read_text().splitlines()]


def test_of_two_studies_whose_rows_differ_by_a_few_the_later_is_not_answered(tmp_path):
    part = rows(100, 5)
    part["crp"][:3] = np.nan
    books = [codebook(Question(name="q", formula=f), rules=Rules()) for f in ("ill ~ age + sex", "ill ~ age + crp")]
    first, second = (node(book, "a", part, tmp_path) for book in books)  # both have read the empty book
    answers = [
        one.answer(Coordinator(book).open, record=False) for one, book in zip((first, second), books, strict=True)
    ]
    assert not any(one.replies["q"].refused for one in answers)
    first.record(Coordinator(books[0]).open, answers[0])
    with pytest.raises(RunError):
        second.record(Coordinator(books[1]).open, answers[1])
    assert len(lines(tmp_path)) == 1 and len(list(tmp_path.glob("rows-*.npz"))) == 1
    again = second.answer(Coordinator(books[1]).open)
    assert again.replies["q"].refused.startswith("differencing") and len(lines(tmp_path)) == 2


def test_many_at_once_answer_no_more_rounds_than_one_may(tmp_path):
    book, part = codebook(RISK), rows(40, 5)
    told, failed = [], []

    def answer(which):
        own = node(book, "a", part, tmp_path)
        for number in range(20):
            ask = Ask("sums", {"theta": np.full((1, 3), (20 * which + number) / 1000)})
            try:
                told.append(not own.answer(Round(book, 1, {"risk": ask})).replies["risk"].refused)
            except RunError as error:  # the last one was taken meanwhile
                failed.append(error)

    threads = [threading.Thread(target=answer, args=(which,)) for which in range(4)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert sum(told) == MOST_ROUNDS and len(told) + len(failed) == 80
    written = lines(tmp_path)
    assert len(written) == len(told) and len({one["asked"] for one in written if not one["refused"]}) == MOST_ROUNDS


def hold(folder, held):
    with lock_folder(folder, "holds it"):
        held.set()
        signal.pause()


def test_a_folder_that_is_held_too_long_is_one_error_and_a_killed_holder_holds_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(of_node, "PATIENCE", 0.2)
    book = codebook(RISK)
    own, asked = node(book, "a", rows(40, 5), tmp_path), Coordinator(book).open
    context = multiprocessing.get_context("fork")
    held = context.Event()
    process = context.Process(target=hold, args=(tmp_path, held))
    process.start()
    try:
        assert held.wait(30)
        with pytest.raises(RunError, match=str(tmp_path)):
            own.answer(asked)
        assert not (tmp_path / "book.jsonl").exists()
        with pytest.raises(RunError, match=str(tmp_path)), open_study(tmp_path):
            pass
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.join(30)
    assert not own.answer(asked).replies["risk"].refused and len(lines(tmp_path)) == 1


def test_a_killed_process_s_half_of_a_line_is_written_over(tmp_path):
    book = codebook(RISK)
    asked = Coordinator(book).open
    own = node(book, "a", rows(40, 5), tmp_path)
    own.answer(asked)
    whole = (tmp_path / "book.jsonl").read_bytes()
    (tmp_path / "book.jsonl").write_bytes(whole + whole[:-20])
    for number in (2, 3):  # one that was open before, and one that is opened now
        own.answer(Round(book, number, asked.asks))
        own = node(book, "a", rows(40, 5), tmp_path)
    assert (tmp_path / "book.jsonl").read_bytes().startswith(whole)
    assert [one["round"] for one in lines(tmp_path)] == [1, 2, 3] and len(own.book) == 3


def test_a_process_that_is_killed_before_its_line_left_the_rows_of_its_answer(tmp_path, monkeypatch):
    """Rows are remembered before the book's line, so that what may have left is in the way of a difference."""
    part = rows(100, 5)
    part["crp"][:3] = np.nan
    books = [codebook(Question(name="q", formula=f), rules=Rules()) for f in ("ill ~ age + sex", "ill ~ age + crp")]
    first = node(books[0], "a", part, tmp_path)

    def stop(_):
        raise KeyboardInterrupt

    monkeypatch.setattr(first, "_write", stop)
    with pytest.raises(KeyboardInterrupt):
        first.answer(Coordinator(books[0]).open)
    later = node(books[1], "a", part, tmp_path).answer(Coordinator(books[1]).open)
    assert later.replies["q"].refused.startswith("differencing")
