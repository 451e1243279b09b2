"""Owners whose documents stay in an engine that they had before: a search over both, and what is refused."""

import postgres_server
import pytest
from fake_opensearch import Index, served
from search_worlds import TEXTS, owner, search_world

from fedrank.core.errors import ConfigError, RunError
from fedrank.deploy.search.broker import BrokerApp
from fedrank.deploy.search.federation import Federation, FederationFile, OwnerCard
from fedrank.deploy.search.folder import OwnerFolder
from fedrank.texts.served.owner import OwnerSettings
from fedrank_zoo.threaded_server import ThreadedServer

pytest.importorskip("tantivy")


def test_an_owner_of_an_index_is_searched_beside_one_of_its_own(tmp_path):
    rows = [("p1", "Flutter of panels", "the flutter of a panel in supersonic flow"), ("p2", "Roses", "a rose")]
    with served(Index(rows)) as url, search_world(tmp_path, {"south": TEXTS["south"]}) as (asked, _, file):
        there = OwnerSettings(engine=url)
        with owner(tmp_path / "company", settings=there) as (home, server):
            askers = home.askers()
            token = askers.allow("anna")
            askers.close()
            card = OwnerCard("company", home.public_key(), server.url)
            both = (*file.owners, card)
            with ThreadedServer(BrokerApp(FederationFile("test", both))) as broker:
                tokens = {"company": token, "south": asked._tokens["south"]}
                federation = Federation(FederationFile("test", both, broker.url), ("anna", tokens))
                answer = federation.search("flutter")
                assert {(hit.owner, hit.title) for hit in answer.hits} == {
                    ("company", "Flutter of panels"),
                    ("south", "Wings and flutter"),
                }
                hit = next(hit for hit in answer.hits if hit.owner == "company")
                assert federation.fetch(hit)[:2] == (rows[0][1], rows[0][2])


def test_an_engine_that_cannot_be_used_is_told_before_anything_is_served(tmp_path):
    home = OwnerFolder(tmp_path / "north")
    home.prepare(OwnerSettings(engine="mysql://host/db"))
    with pytest.raises(ConfigError, match="postgresql://"):
        home.engine()
    home.prepare(OwnerSettings(engine="http://127.0.0.1:9/articles"))
    with pytest.raises(RunError, match="cannot be asked"):
        home.engine()
    with served(Index([], "ApiKey abc")) as url:
        home.prepare(OwnerSettings(engine=url))
        with pytest.raises(RunError, match="401"):
            home.engine()
        (home.path / "engine.authorization").write_text("ApiKey abc\n")
        assert len(home.engine()) == 0


@pytest.mark.slow
@pytest.mark.skipif(bool(postgres_server.why_not()), reason=postgres_server.why_not() or "there is one")
def test_a_row_that_comes_and_goes_in_postgresql_is_found_and_gone(tmp_path):
    import psycopg

    with postgres_server.Server() as server:
        url = server.database("company")
        with psycopg.connect(url, autocommit=True) as company:
            company.execute("CREATE TABLE documents (id int PRIMARY KEY, title text, body text)")
            company.execute("INSERT INTO documents VALUES (1, 'Wings', 'the lift of a slender wing')")
            settings = OwnerSettings(engine=url)
            with search_world(tmp_path, {"north": ()}, settings) as (asked, _, _):
                assert [hit.title for hit in asked.search("slender wings").hits] == ["Wings"]
                company.execute("INSERT INTO documents VALUES (2, 'Bees', 'the wing of a bee')")
                assert {hit.title for hit in asked.search("wing").hits} == {"Wings", "Bees"}
                company.execute("DELETE FROM documents WHERE id = 1")
                (hit,) = asked.search("wing").hits
                assert asked.fetch(hit)[:2] == ("Bees", "the wing of a bee")
