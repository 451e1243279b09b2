"""An assistant asks a federation through MCP and LangChain: citations, rights, budget."""

import asyncio

import pytest
from search_worlds import search_world

from fedrank.core.errors import ConfigError, RunError
from fedrank_zoo.assistants.tools import Budget, make_retriever, make_server

pytest.importorskip("tantivy")


def test_a_budget_is_used_up_once():
    budget = Budget(2)
    budget.take()
    budget.take()
    with pytest.raises(RunError, match="2 questions"):
        budget.take()
    with pytest.raises(ConfigError, match="got 0"):
        Budget(0)


def test_the_tools_of_the_server_search_open_and_stop(tmp_path):
    pytest.importorskip("mcp.server.mcpserver")
    from mcp.client import Client

    async def talk(server):
        async with Client(server) as client:
            assert {tool.name for tool in (await client.list_tools()).tools} == {"search", "open_document"}
            found = (await client.call_tool("search", {"query": "flutter of a wing"})).structured_content
            hit = next(hit for hit in found["hits"] if hit["citation"] == "south: Wings and flutter")
            opened = (await client.call_tool("open_document", {"number": hit["number"]})).structured_content
            assert opened["text"] == "flutter of an elastic wing with a heavy engine"
            assert opened["citation"] == hit["citation"]
            assert (await client.call_tool("open_document", {"number": 99})).is_error
            await client.call_tool("search", {"query": "roses"})
            assert (await client.call_tool("search", {"query": "roses"})).is_error  # three questions were allowed

    with search_world(tmp_path) as (asked, homes, _):
        asyncio.run(talk(make_server(asked, 3)))
        askers = homes["south"].askers()
        assert askers.rows() == [("anna", 2, 1)]
        askers.close()


def test_the_retriever_gives_pieces_or_whole_texts_with_citations(tmp_path):
    pytest.importorskip("langchain_core")
    with search_world(tmp_path) as (asked, _, _):
        found = make_retriever(asked, k=2).invoke("flutter of a wing")
        assert len(found) == 2 and found[0].metadata["citation"] == "south: Wings and flutter"
        whole = make_retriever(asked, k=1, questions=2, whole=True)
        assert whole.invoke("flutter")[0].page_content == "flutter of an elastic wing with a heavy engine"
        with pytest.raises(RunError, match="used up"):
            whole.invoke("flutter")
