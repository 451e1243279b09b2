"""HTML that is safe by construction: text is escaped unless it was built here.

``h("p", "a < b")`` makes an element; children that are :class:`Html` stand as they are, all other text is escaped.
There is no other way in this package to put text on a page.
"""

from __future__ import annotations

import base64
import hashlib
import html
import os
from collections.abc import Iterable
from importlib import resources
from pathlib import Path

from fedrank.core.errors import RunError

_VOID = {"meta", "input", "br", "hr"}


class Html(str):
    """Markup, as opposed to text."""

    __slots__ = ()


def h(name: str, /, *children: object, **attributes: object) -> Html:
    """An element.

    Args:
        name: Such as ``"p"``.
        children: Markup, a table, text (escaped), or None (left out).
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
    """Markup, tables and text one after the other; text is escaped, None is left out."""
    return Html("".join(_markup(child) for child in children if child is not None))


def _markup(child: object) -> str:
    made = getattr(child, "as_html", None)  # of a table
    return made() if made is not None else child if isinstance(child, Html) else html.escape(str(child))


def bullets(lines: Iterable[object], **attributes: object) -> Html:
    """A list of lines, with attributes as of :func:`h`."""
    return h("ul", *(h("li", line) for line in lines), **attributes)


def warn(title: str, *content: object, label: str = "") -> Html:
    """A box with what a reader looks at first; ``label`` names it for those who do not see it."""
    about = {"class_": "warning", "role": "note", "aria_label": label or title}
    return h("div", h("strong", title), *content, **about)


def section(anchor: str, title: str, *children: object) -> Html:
    """A folded section with a heading; a link to its anchor unfolds it."""
    return h("details", h("summary", h("h2", title)), h("div", *children, class_="folded"), id=anchor)


def document(title: str, *body: object) -> str:
    """A whole page with its style and its script inside: it opens from a disk without a network.

    The content security policy lets the browser itself refuse any request, and any script but the page's own. Without
    scripts everything can be read too; tables do not sort then, and charts show all series.
    """
    files = resources.files("fedrank.report")
    style, script = (files.joinpath(name).read_text(encoding="utf-8") for name in ("page.css", "page.js"))
    own = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{own}'"
    head = h(
        "head",
        h("meta", charset="utf-8"),
        h("meta", name="viewport", content="width=device-width, initial-scale=1"),
        h("meta", http_equiv="Content-Security-Policy", content=policy),
        h("meta", name="color-scheme", content="light dark"),
        h("title", title),
        h("style", Html(style)),
    )
    shown = h("body", h("main", *body), h("script", Html(script)))
    return f"<!doctype html>\n{h('html', head, shown, lang='en')}\n"


def write_document(page: str, file: str | os.PathLike[str]) -> Path:
    """Write a :func:`document` and return its file.

    Raises:
        RunError: It cannot be written.
    """
    path = Path(file)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(page, encoding="utf-8")
    except OSError as error:
        raise RunError(
            f"{path}: the page cannot be written ({error.strerror}). Name another file with --out."
        ) from error
    return path
