"""Serve the demo: a hub and its page from one address of this machine."""

from __future__ import annotations

import json
import math
import tempfile
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Any

from fedrank.deploy.demo.collection import entries
from fedrank.deploy.http.hosts import Hosts
from fedrank.deploy.http.routes import NO_SNIFF, NO_STORE, HttpRequest, HttpResponse, Route
from fedrank.deploy.hub.app import HubApp
from fedrank.deploy.hub.folder import HubFolder
from fedrank.deploy.hub.service import hub_app
from fedrank.deploy.hub.settings import HubSettings

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
    return HubSettings(
        n_features=FEATURES,
        mechanism="piecewise",
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
        f"/{path}": _fixed((files("fedrank.deploy.demo") / "page" / name).read_bytes(), kind)
        for path, (name, kind) in _FILES.items()
    }
    for name, value in (("demo", about), ("documents", documents)):
        pages[f"/{name}.json"] = _fixed(json.dumps(value, ensure_ascii=False).encode(), b"application/json")
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


def _fixed(data: bytes, kind: bytes) -> Route:
    headers: tuple[Any, ...] = (NO_STORE, NO_SNIFF, (b"content-security-policy", _CSP))
    response = HttpResponse(200, data, *headers, (b"referrer-policy", b"no-referrer"), content_type=kind)

    async def respond(_: HttpRequest) -> HttpResponse:
        return response

    return Route("demo", ("GET", "HEAD"), None, respond)
