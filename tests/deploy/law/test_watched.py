"""An index that follows a folder: what is added, changed, renamed, removed, copied there is so in the index."""

import asyncio
import shutil
import time

import pytest
from search_worlds import search_world

from fedrank.core.errors import MissingDataError
from fedrank.deploy.http.server import ThreadedServer
from fedrank.deploy.search import service
from fedrank.deploy.search.folder import OwnerFolder
from fedrank.deploy.search.service import owner_app
from fedrank.deploy.search.watched import WatchedFolder
from fedrank.texts.served.engines.tantivy import TantivyEngine

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


@pytest.mark.slow
def test_an_owner_that_is_served_follows_its_folder(tmp_path, monkeypatch):
    monkeypatch.setattr(service, "FOLLOW_SECONDS", 0.1)
    texts = tmp_path / "texts"
    texts.mkdir()
    (texts / "a.txt").write_text("a wing")
    home = OwnerFolder(tmp_path / "north")
    home.prepare()
    app = owner_app(home, None, texts)
    with ThreadedServer(app):
        (texts / "b.txt").write_text("another wing")
        (texts / "a.txt").unlink()
        end = time.monotonic() + 20
        while time.monotonic() < end and asyncio.run(app._work(lambda: app._owner.engine.get("a.txt"))):
            time.sleep(0.1)
        ids = [hit.id for hit in asyncio.run(app._work(lambda: app._owner.search(["wing"], 5)))]
    assert ids == ["b.txt"]


def test_what_is_known_about_a_document_comes_with_it(tmp_path):
    with search_world(tmp_path) as (asked, _, _):
        fetched = asked.fetch(asked.search("roses").hits[0])
        assert fetched.about == {"path": "given.jsonl", "type": "jsonl"}
