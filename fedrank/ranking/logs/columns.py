"""Meaning of a click log's columns; loads without NumPy, for command lines."""

from __future__ import annotations

from dataclasses import dataclass

from fedrank.core.fields import setting

#: Deepest position at most: positions are kept in one byte.
DEEPEST = 255


@dataclass(frozen=True)
class LogFormat:
    """Meaning of a click log's columns, and rules of reading it."""

    session: str = setting("session", "Column with the session, one search and what it showed; it may be missing.")
    query: str = setting("query", "Column with the query.")
    document: str = setting("document", "Column with the document.")
    position: str = setting("position", "Column with the position, from 1.")
    click: str = setting("click", "Column with the click: true, yes, 1, or a number of clicks.")
    user: str = setting("user", "Column with the user; it may be missing.")
    page: str = setting("page", "Column with the page of results, from 1; it may be missing.")
    propensity: str = setting(
        "propensity", "Column with the probability that the user looked at the result, where it is known."
    )
    page_size: int = setting(0, "Results of a page; needed with pages whose positions begin at 1 again.")
    features: tuple[str, ...] | None = setting(None, "Columns that are features; by default all others of numbers.")
    deepest: int = setting(50, "Deepest position that is read.", low=1, high=DEEPEST)
    most_searches: int = setting(1000, "Searches of a user beyond which it counts as a bot.", low=1)
    all_clicked: bool = setting(True, "Leave sessions out as a bot's where all of at least five results were clicked.")
    click_actions: tuple[str, ...] = setting(("click", "click_through", "item_click"), "UBI's actions that are clicks.")
