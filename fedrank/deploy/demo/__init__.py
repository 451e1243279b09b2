"""A search page that learns from its visitors, to look at: ``fedrank demo web``.

The page searches the documentation of Python's standard library, as the running interpreter has it. Ranking, learning
and privacy happen in the browser, by the JavaScript SDK; beside the page's own visitor, simulated visitors with their
own devices search in a worker of the page, and all report to a real hub on this machine.
"""

from __future__ import annotations

import importlib
import inspect
import json
import math
import tempfile
import warnings
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

from fedrank.deploy.http.origins import Hosts
from fedrank.deploy.http.routes import page_route
from fedrank.deploy.hub.app import HubApp
from fedrank.deploy.hub.folder import HubFolder
from fedrank.deploy.hub.service import hub_app
from fedrank.deploy.hub.settings import TRIAL, HubSettings

_NAMES = """
argparse array ast asyncio base64 bisect builtins bz2 calendar cmath codecs collections colorsys configparser
contextlib copy csv ctypes datetime decimal difflib dis email enum fileinput fnmatch fractions functools
getpass gettext glob graphlib gzip hashlib heapq hmac html http http.client http.cookies imaplib importlib
inspect io ipaddress itertools json keyword linecache locale logging lzma mailbox math mimetypes
multiprocessing operator os os.path pathlib pickle pkgutil platform plistlib poplib pprint queue random re
sched secrets select shelve shlex shutil signal smtplib socket sqlite3 ssl stat statistics string subprocess
sys tarfile tempfile textwrap threading time timeit token tokenize traceback types typing unicodedata unittest
urllib.parse urllib.request uuid warnings wave weakref webbrowser xml.etree.ElementTree zipfile zlib zoneinfo
"""
#: Modules whose functions and classes are searched; those that this interpreter lacks are left out.
MODULES = tuple(_NAMES.split())
#: Docstrings below this length say nothing that could be searched.
_SHORTEST = 20
#: Characters of a docstring that are shown and searched.
_LONGEST = 700


class Entry(NamedTuple):
    """A function or class.

    Attributes:
        name: Such as ``"csv.reader"``.
        kind: ``"function"`` or ``"class"``.
        summary: First paragraph of its docstring that is no signature.
        body: The rest of the docstring, at most 700 characters.
    """

    name: str
    kind: str
    summary: str
    body: str


def entries() -> list[Entry]:
    """The documents, by name."""
    found: dict[str, Entry] = {}
    for module in MODULES:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                there = importlib.import_module(module)
        except ImportError:
            continue
        for name in getattr(there, "__all__", None) or [one for one in dir(there) if not one.startswith("_")]:
            thing = getattr(there, name, None)
            if not (inspect.isroutine(thing) or inspect.isclass(thing)):
                continue
            home = str(getattr(thing, "__module__", "") or module).lstrip("_")
            if home.partition(".")[0] != module.partition(".")[0] and home not in ("builtins", "posixpath", "posix"):
                continue  # imported from another module, which has it under its own name
            text = inspect.getdoc(thing) or ""
            if len(text) < _SHORTEST:
                continue
            full = name if module == "builtins" else f"{module}.{name}"
            found[full] = _entry(full, "class" if inspect.isclass(thing) else "function", text)
    return sorted(found.values())


def _entry(name: str, kind: str, text: str) -> Entry:
    paragraphs = [" ".join(part.split()) for part in text.split("\n\n") if part.strip()]
    # Functions written in C begin with their signature.
    plain = [part for part in paragraphs if not part.startswith(f"{name.rpartition('.')[2]}(")] or paragraphs
    rest = "\n".join(part for part in paragraphs if part is not plain[0])
    return Entry(name, kind, plain[0][:_LONGEST], rest[:_LONGEST])


#: The JavaScript SDK as it is built.
_SDK = "fedrank-device.js"
#: Files of the page, and their types.
_FILES = {
    "": ("index.html", b"text/html; charset=utf-8"),
    "page.css": ("page.css", b"text/css; charset=utf-8"),
    **{
        name: (name, b"text/javascript; charset=utf-8")
        for name in ("page.js", "search.js", "people.js", "visitors.js", _SDK)
    },
}
#: The page loads nothing from elsewhere and speaks to its own hub only. Widths and places of bars are set by script.
_CSP = (
    b"default-src 'none'; script-src 'self'; worker-src 'self'; style-src 'self'; connect-src 'self'; base-uri 'none'; "
    b"form-action 'none'; frame-ancestors 'none'"
)
#: Features that ``page/search.js`` computes.
FEATURES = 10


def demo_settings() -> HubSettings:
    """Settings of the demo's hub: one search a report, ε = 0.5 each, twelve in a life; rounds of eight seconds."""
    values: dict[str, Any] = dict(
        n_features=FEATURES,
        epsilon=0.5,
        interactions=1,
        participations=12,
        sigma=0.3,
        learning_rate=0.05,
        cohort=200,
        round_seconds=8.0,
        deadline=60.0,
        least=20,
    )
    return HubSettings(**{**TRIAL, **values})


def demo_app(home: HubFolder) -> HubApp:
    """The application of the hub in a folder, with the demo's page at its root."""
    settings = demo_settings()
    home.prepare(settings)
    _, app = hub_app(home)
    lies = 100 / (1 + math.exp(settings.epsilon or 0.0))
    about = {
        "enrolment": home.token("enrolment"),  # whoever loads the page can take part
        "epsilon": settings.epsilon,
        "participations": settings.participations,
        "outside": settings.outside,
        "lies": round(lies),
    }
    documents = [entry._asdict() for entry in entries()]
    pages = {
        f"/{path}": page_route("demo", (files("fedrank.deploy.demo") / "page" / name).read_bytes(), kind, _CSP)
        for path, (name, kind) in _FILES.items()
    }
    for name, value in (("demo", about), ("documents", documents)):
        said = json.dumps(value, ensure_ascii=False).encode()
        pages[f"/{name}.json"] = page_route("demo", said, b"application/json", _CSP)
    app.add_routes(pages)
    app.hosts = Hosts()  # a page of another site is not to take part in it
    return app


def run_demo(port: int, on_ready: Callable[[str], object]) -> None:
    """Serve the demo until SIGTERM or Ctrl-C; the hub and what it learnt are gone with it.

    Args:
        port: TCP port; 0: any that is free.
        on_ready: Called with the address once the page can be opened.

    Raises:
        MissingExtraError: The extra ``serve`` is not installed.
        ConfigError: The port is taken.
    """
    from fedrank.deploy.http.server import serve

    with tempfile.TemporaryDirectory(prefix="fedrank-demo-") as folder:
        serve(demo_app(HubFolder(Path(folder) / "hub")), port=port, on_ready=on_ready)
