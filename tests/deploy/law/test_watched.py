"""An index that follows a folder: what is added, changed, renamed, removed, copied there is so in the index."""

import asyncio
import json
import os
import shutil
import time
from pathlib import Path

import pytest
from search_worlds import search_world

from fedrank.core.errors import MissingDataError
from fedrank.deploy.search import service
from fedrank.deploy.search import watched as watched_
from fedrank.deploy.search.folder import OwnerFolder
from fedrank.deploy.search.service import owner_app
from fedrank.deploy.search.watched import WatchedFolder
from fedrank.texts.served.engines.tantivy import TantivyEngine
from fedrank_zoo.threaded_server import ThreadedServer

pytest.importorskip("tantivy")


@pytest.fixture
def world(tmp_path):
    texts = tmp_path / "texts"
    texts.mkdir()
    for name in "abc":
        (texts / f"{name}.txt").write_text(f"a wing {name}{name}")
    engine = TantivyEngine(tmp_path / "index")
    watched = WatchedFolder(texts, tmp_path / "documents.db", engine.add, engine.remove)
    assert watched.follow() == (3, 0) and watched.follow() == (0, 0)
    yield texts, engine, watched
    watched.close()
    engine.close()


def test_what_changes_in_the_folder_changes_in_the_index(world):
    texts, engine, watched = world
    (texts / "b.txt").unlink()
    (texts / "c.txt").rename(texts / "d.txt")
    (texts / "a.txt").write_text("a rose aa")
    assert watched.follow() == (2, 2)
    assert len(engine) == 2 and engine.get("b.txt") is engine.get("c.txt") is None
    assert [one.id for one in engine.candidates({"wing": 1.0}, 9)] == ["d.txt"]
    assert engine.candidates({"bb": 1.0}, 9) == [] and {word for one in engine.words() for word in one.body} == {
        *("wing", "rose", "aa", "cc")
    }


def test_rows_of_a_file_that_are_gone_are_removed(world):
    texts, engine, watched = world
    (texts / "rows.jsonl").write_text('{"id": "1", "text": "one"}\n{"id": "2", "text": "two"}\n{')
    assert watched.follow() == (2, 0) and len(watched.problems()) == 1
    (texts / "rows.jsonl").write_text('{"id": "2", "text": "two"}\n{"id": "3", "text": "three"}\n')
    assert watched.follow() == (2, 1) and watched.problems() == []
    assert engine.get("1") is None and engine.get("3") is not None


def test_a_copy_is_named_and_takes_the_place_of_what_it_copies(world):
    texts, engine, watched = world
    shutil.copy(texts / "a.txt", texts / "z.txt")
    assert watched.follow() == (0, 0) and watched.problems() == ["z.txt: is a copy of a.txt"]
    (texts / "a.txt").unlink()
    assert watched.follow() == (1, 1) and watched.problems() == []
    assert engine.get("a.txt") is None and engine.get("z.txt") is not None


def rows_of(path, **texts):
    path.write_text("".join(json.dumps({"id": id, "text": text}) + "\n" for id, text in texts.items()))


def held(engine, *ids):
    return "".join(id for id in ids if engine.get(id) is not None)


def test_files_that_copy_each_other_are_read_once(world):
    """Each holds a copy of the other's; of the one that is changed the copies come into the index."""
    texts, engine, watched = world
    rows_of(texts / "m.jsonl", p="one", q="two")
    rows_of(texts / "n.jsonl", r="three", s="four")
    assert watched.follow() == (4, 0)
    rows_of(texts / "m.jsonl", p="one", q="two", t="three")
    assert watched.follow() == (2, 0)
    rows_of(texts / "n.jsonl", r="three", s="four", u="one")
    assert watched.follow() == (2, 0) and held(engine, *"pqrstu") in ("pqrs", "pqst")
    for place in range(3):
        rows_of(texts / "m.jsonl", p="one", q="two", t="three", v=f"new {place}")
        rows_of(texts / "n.jsonl", r="three", s="four", u="one", w=f"other {place}")
        watched.follow()
        assert len(engine) == 3 + 6 and len(watched.problems()) == 2 and watched.follow() == (0, 0)
    (texts / "m.jsonl").unlink()
    watched.follow()
    assert held(engine, *"pqrstuvw") == "rsuw" and watched.problems() == []


def test_a_row_that_is_gone_is_so_after_a_stop(world, monkeypatch):
    texts, engine, watched = world
    rows_of(texts / "m.jsonl", p="one", q="two")
    rows_of(texts / "n.jsonl", r="three")
    watched.follow()
    monkeypatch.setattr("fedrank.deploy.search.watched._AT_ONCE", 1)
    rows_of(texts / "m.jsonl", q="two")
    rows_of(texts / "n.jsonl", r="three", s="four")
    real, calls = watched.add, []

    def stop(documents):
        calls.append(documents)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return real(documents)

    watched.add = stop
    with pytest.raises(KeyboardInterrupt):
        watched.follow()
    watched.close()
    again = WatchedFolder(texts, texts.parent / "documents.db", engine.add, engine.remove)
    again.follow()
    again.close()
    assert held(engine, *"pqrs") == "qrs" and len(engine) == 3 + 3


def test_a_row_that_moves_between_files_stays(world):
    texts, engine, watched = world
    rows_of(texts / "m.jsonl", p="one", q="two")
    rows_of(texts / "n.jsonl", r="three", s="four")
    watched.follow()
    rows_of(texts / "m.jsonl", p="one", r="three")
    rows_of(texts / "n.jsonl", q="two", s="four")
    watched.follow()
    assert held(engine, *"pqrs") == "pqrs" and len(engine) == 3 + 4 and watched.follow() == (0, 0)


def test_one_id_in_two_files_names_two_documents(world):
    texts, engine, watched = world
    rows_of(texts / "m.jsonl", p="one", q="two")
    rows_of(texts / "n.jsonl", p="another", q="two")
    (texts / "n.jsonl").write_text((texts / "n.jsonl").read_text() + '{"id": "p", "text": "third"}\n' * 2)
    assert watched.follow() == (3, 0) and len(watched.problems()) == 3
    assert engine.get("p").body == "one" and engine.get("n.jsonl#p").body == "another"
    (texts / "m.jsonl").unlink()
    watched.follow()
    assert engine.get("p") is None and engine.get("n.jsonl#q").body == "two"


def test_one_file_that_cannot_be_read_stops_no_other(world, monkeypatch):
    texts, engine, watched = world
    (texts / "x.html").write_text("<p>a page")
    (texts / "y.txt").write_text("a wing yy")
    with open(os.fsencode(texts) + b"/\xff.txt", "w") as file:
        file.write("x")
    monkeypatch.setattr("fedrank.core.lazy.is_installed", lambda package: package != "bs4")
    stat, files_below = Path.stat, watched_.files_below

    def list_files(folder):
        found = files_below(folder)
        monkeypatch.setattr(Path, "stat", lambda self, **_: gone() if self.name == "a.txt" else stat(self, **_))
        return found

    def gone():
        raise FileNotFoundError(2, "gone")

    monkeypatch.setattr(watched_, "files_below", list_files)
    assert watched.follow() == (1, 0) and held(engine, "a.txt", "y.txt") == "a.txty.txt"
    assert sorted(line.split(":")[0] for line in watched.problems()) == ["\\udcff.txt", "a.txt", "x.html"]


def test_hidden_files_and_links_out_of_the_folder_are_not_read(world):
    texts, _, watched = world
    for folder in (".git", "deep/.snapshot"):
        (texts / folder).mkdir(parents=True)
        (texts / folder / "x.txt").write_text("hidden")
    (texts.parent / "secret.txt").write_text("secret")
    (texts / "out.txt").symlink_to(texts.parent / "secret.txt")
    (texts / "in.txt").symlink_to(texts / ".git" / "x.txt")
    assert watched.follow() == (0, 0) and [line.split(":")[0] for line in watched.problems()] == ["out.txt"]


def test_a_folder_that_is_gone_removes_nothing(world):
    texts, engine, watched = world
    texts.rename(texts.with_name("elsewhere"))
    with pytest.raises(MissingDataError):
        watched.follow()
    assert len(engine) == 3


def test_an_index_that_fails_is_told_again(world):
    texts, engine, watched = world
    (texts / "e.txt").write_text("a wing ee")

    def fail(documents):
        raise OSError("full")

    watched.add, real = fail, watched.add
    with pytest.raises(Exception, match="full"):
        watched.follow()
    watched.add = real
    assert watched.follow() == (1, 0) and len(engine) == 4


def fail(error):
    raise error


@pytest.mark.slow
def test_an_owner_that_is_served_follows_its_folder(tmp_path, monkeypatch):
    monkeypatch.setattr(service, "FOLLOW_SECONDS", 0.1)
    texts = tmp_path / "texts"
    texts.mkdir()
    (texts / "a.txt").write_text("a wing")
    home = OwnerFolder(tmp_path / "north")
    home.prepare()
    app = owner_app(home, None, texts)
    assert app._watched is not None
    follow, failures = app._watched.follow, [ValueError("odd"), OSError(5, "disk")]
    monkeypatch.setattr(app._watched, "follow", lambda: follow() if not failures else fail(failures.pop()))
    with ThreadedServer(app):
        (texts / "b.txt").write_text("another wing")
        (texts / "a.txt").unlink()
        end, ids = time.monotonic() + 20, ["a.txt"]
        while time.monotonic() < end and ids != ["b.txt"]:  # between the two commits of a change there is neither
            time.sleep(0.1)
            ids = [hit.id for hit in asyncio.run(app._work(lambda: app._owner.search(["wing"], 5)))]
        assert not asyncio.run(app._work(lambda: app._owner.engine.get("a.txt")))
    assert ids == ["b.txt"]


def test_what_is_known_about_a_document_comes_with_it(tmp_path):
    with search_world(tmp_path) as (asked, _, _):
        fetched = asked.fetch(asked.search("roses").hits[0])
        assert fetched.about == {"path": "given.jsonl", "type": "jsonl"}
