"""Owners, a broker and an asker of a federated search, served in threads of the test's process."""

import contextlib
import json

from fedrank.deploy.search.broker import BrokerApp
from fedrank.deploy.search.federation import Federation, FederationFile, OwnerCard
from fedrank.deploy.search.folder import OwnerFolder
from fedrank.deploy.search.service import owner_app
from fedrank.texts.served.owner import OwnerSettings
from fedrank_zoo.threaded_server import ThreadedServer

TEXTS = {
    "north": [
        ("n1", "Lift of wings", "the lift of a slender wing in supersonic flow"),
        ("n2", "Heat transfer", "heat transfer through a laminar boundary layer"),
    ],
    "south": [
        ("s1", "Wings and flutter", "flutter of an elastic wing with a heavy engine"),
        ("s2", "", "a boundary layer on a cone without any title"),
    ],
    "east": [("e1", "Gardens", "roses and lilies grow in gardens")],
}


def write_documents(path, rows):
    """A file of documents, one JSON object a line."""
    lines = (json.dumps({"_id": name, "title": title, "text": text}) for name, title, text in rows)
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


@contextlib.contextmanager
def owner(folder, rows=(), *, federation=None, settings=None, port=0):
    """An owner that is served; gives its folder and its server."""
    home = OwnerFolder(folder)
    home.prepare(settings)
    documents = write_documents(folder / "given.jsonl", rows) if rows else None
    with home.lock(), ThreadedServer(owner_app(home, federation, documents), port=port) as server:
        home.write_urls({"owner": server.url})
        try:
            yield home, server
        finally:
            home.remove_urls("owner")


@contextlib.contextmanager
def search_world(folder, texts=TEXTS, settings=None, languages=("english",), **options):
    """All of it; gives the asker's side, the owners' folders, and the federation."""
    with contextlib.ExitStack() as stack:
        homes = {name: OwnerFolder(folder / name) for name in texts}
        for home in homes.values():
            home.prepare(settings or OwnerSettings())
        cards = tuple(OwnerCard(name, home.public_key(), "http://127.0.0.1:9") for name, home in homes.items())
        path = folder / "federation.toml"
        write_federation(path, FederationFile("test", cards, "http://127.0.0.1:9", languages=languages))
        served = []
        for name, rows in texts.items():
            _, server = stack.enter_context(owner(folder / name, rows, federation=path, settings=settings))
            served.append(OwnerCard(name, homes[name].public_key(), server.url))
        broker = stack.enter_context(ThreadedServer(BrokerApp(FederationFile("test", tuple(served)), **options)))
        file = FederationFile("test", tuple(served), broker.url, languages=languages)
        tokens = {}
        for name, home in homes.items():
            askers = home.askers()
            tokens[name] = askers.allow("anna")
            askers.close()
        yield Federation(file, ("anna", tokens)), homes, file


def write_federation(path, file):
    """The federation as a file."""
    rows = [f'[[owners]]\nname = "{c.name}"\nkey = "{c.key}"\nurl = "{c.url}"' for c in file.owners]
    path.write_text(
        "\n".join(
            [
                f'name = "{file.name}"',
                f'broker = "{file.broker}"',
                f"analyser = {{ languages = {[*file.languages]} }}",
                *rows,
            ]
        ),
        encoding="utf-8",
    )
    return path
