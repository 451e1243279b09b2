"""HTML that is safe by construction: text is escaped unless it was built here.

``h("p", "a < b")`` makes an element; children that are :class:`Html` stand as they are, all other text is escaped.
There is no other way in this package to put text on a page.
"""

from __future__ import annotations

import html
from importlib import resources

_VOID = {"meta", "input", "br", "hr"}


class Html(str):
    """Markup, as opposed to text."""

    __slots__ = ()


def h(name: str, /, *children: object, **attributes: object) -> Html:
    """An element.

    Args:
        name: Such as ``"p"``.
        children: Markup, text (escaped), or None (left out).
        attributes: Values are escaped; an underscore in a name is a hyphen, a trailing one is dropped (``class_``,
            ``for_``); True is an attribute without a value, None and False leave it out.

    >>> h("a", "x < y", href='"', class_="quiet", hidden=True)
    '<a href="&quot;" class="quiet" hidden>x &lt; y</a>'
    """
    shown = {k.rstrip("_").replace("_", "-"): v for k, v in attributes.items() if v is not None and v is not False}
    head = "".join(f" {k}" if v is True else f' {k}="{html.escape(str(v))}"' for k, v in shown.items())
    if name in _VOID:
        return Html(f"<{name}{head}>")
    return Html(f"<{name}{head}>{join(*children)}</{name}>")


def join(*children: object) -> Html:
    """Markup and text one after the other; text is escaped, None is left out."""
    return Html("".join(c if isinstance(c, Html) else html.escape(str(c)) for c in children if c is not None))


def section(anchor: str, title: str, *children: object) -> Html:
    """A section with a heading that can be linked to."""
    return h("section", h("h2", title, id=anchor), *children, aria_labelledby=anchor)


def tile(label: str, value: str, *notes: str) -> Html:
    """One headline number: what it is, the number, what belongs to it."""
    return h("div", h("dt", label), h("dd", h("b", value), *(h("small", n) for n in notes if n)), class_="tile")


def document(title: str, *body: object) -> str:
    """A whole page with its style inside: it opens from a disk without a network.

    The content security policy lets the browser itself refuse any request.
    """
    style = resources.files("fedrank.report").joinpath("page.css").read_text(encoding="utf-8")
    head = h(
        "head",
        h("meta", charset="utf-8"),
        h("meta", name="viewport", content="width=device-width, initial-scale=1"),
        h("meta", http_equiv="Content-Security-Policy", content="default-src 'none'; style-src 'unsafe-inline'"),
        h("meta", name="color-scheme", content="light dark"),
        h("title", title),
        h("style", Html(style)),
    )
    return f"<!doctype html>\n{h('html', head, h('body', h('main', *body)), lang='en')}\n"
