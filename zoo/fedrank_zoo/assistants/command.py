"""The command ``fedrank search mcp``: a search of several owners as two tools of an MCP server."""

from __future__ import annotations

from fedrank.cli.listen import Asking, Reach, Reached, Who


def mcp(*, who: Asking = Who(), questions: int = 100, reach: Reached = Reach()) -> None:
    """Let an assistant search, as tools of an MCP server on standard input and output.

    Args:
        who: The federation, and who asks it.
        questions: Searches and opened documents until it stops.
        reach: How the broker is reached.
    """
    from fedrank_zoo.assistants.tools import make_server

    make_server(who.open_federation(reach), questions).run("stdio")
