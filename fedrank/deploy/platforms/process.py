"""The processes of a platform and of the coordinator, each with a folder."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fedrank.core.errors import ConfigError, RunError
from fedrank.core.ledger import Ledger
from fedrank.deploy.folder import read_token
from fedrank.deploy.http.client import PersistentClient
from fedrank.deploy.http.servers import Servers
from fedrank.deploy.platforms.folder import CLIENTS, PlatformFolder
from fedrank.deploy.platforms.peer import Peer
from fedrank.deploy.platforms.planning.coordinator import PlanningCoordinator, Told
from fedrank.deploy.platforms.planning.platform import PlanningPlatform
from fedrank.deploy.platforms.platform import Platform
from fedrank.deploy.platforms.rounds import PATIENCE, Coordinator, RoundSeen
from fedrank.deploy.platforms.service import USER_PATIENCE, Changes, CoordinatorApp, OwnApp
from fedrank.deploy.platforms.terms import Terms
from fedrank.engine.checkpoint import write_atomically


@dataclass(frozen=True)
class ListenAt:
    """Addresses and TLS of a platform's two servers.

    Attributes:
        host: Address for the coordinator; this machine only by default. The application's is always this machine's.
        port: TCP port for the coordinator; 0: any that is free.
        application_port: TCP port for the platform's own application; 0: any that is free.
        certificate: PEM file of the certificate chain, for TLS to the coordinator.
        key: PEM file of its private key.
        token_file: File with the coordinator's token; None: ``coordinator.token`` in the folder, made if needed.
        patience: Seconds that a user waits for the coordinator; may be infinite.
    """

    host: str = "127.0.0.1"
    port: int = 0
    application_port: int = 0
    certificate: Path | None = None
    key: Path | None = None
    token_file: Path | None = None
    patience: float = USER_PATIENCE


@contextlib.contextmanager
def platform_servers(
    home: PlatformFolder, terms: Terms, index: int, at: ListenAt, *, seeded: bool = False
) -> Iterator[Servers]:
    """A platform's servers, ready to run; its folder is locked meanwhile.

    Args:
        home: Folder of the platform.
        terms: Terms of the federation.
        index: Number of the platform, from 0.
        at: Where it listens.
        seeded: Draw from the run's seed, as a simulator does; nothing is protected then.

    Raises:
        RunError: Something in the folder cannot be used.
        ConfigError: A port is taken, a token is too short, or a certificate cannot be used.
    """
    with home.locked():
        coordinator = home.token_or_new("coordinator", at.token_file)
        application = home.token_or_new("application")
        if coordinator == application:
            raise ConfigError(f"{home.path}: coordinator and application must not have the same token.")
        store = home.open_store(f"platform {index}", terms, seeded)
        try:
            made = PlanningPlatform if terms.plans else Platform
            platform = made(terms, index, store, seeded=seeded)
            platform.warm()
            changes = Changes()
            outside = {"host": at.host, "port": at.port, "certfile": at.certificate, "keyfile": at.key}
            apps = (
                (CoordinatorApp(platform, changes, coordinator), outside),
                (OwnApp(platform, changes, application, at.patience), {"port": at.application_port}),
            )
            yield Servers(apps)
        finally:
            store.close()


def run_platform(
    home: PlatformFolder,
    terms: Terms,
    index: int,
    at: ListenAt,
    on_ready: Callable[[str, str], object],
    *,
    seeded: bool = False,
) -> None:
    """Serve a platform until SIGTERM or Ctrl-C; arguments and errors as :func:`platform_servers`.

    ``on_ready`` is called with the URLs for the coordinator and for the application once both accept connections.
    """
    with platform_servers(home, terms, index, at, seeded=seeded) as servers:

        def ready(urls: list[str]) -> None:
            home.write_urls(dict(zip(CLIENTS, urls, strict=True)), at.certificate)
            on_ready(urls[0], urls[1])

        try:
            servers.run(ready)
        finally:
            home.remove_urls(*CLIENTS)


@dataclass(frozen=True)
class Asking:
    """Platforms that a coordinator asks, and how.

    Attributes:
        platforms: Of each platform, in order, its URL, or its folder on this machine.
        token_files: Files with their tokens, one each or one for all; empty: those in the folders.
        patience: Seconds that a platform may take to answer; may be infinite.
        ca: File with the certificates to trust in place of the system's.
        allow_http: Let tokens and messages cross a network without TLS.
    """

    platforms: Sequence[str]
    token_files: Sequence[Path] = ()
    patience: float = PATIENCE
    ca: Path | None = None
    allow_http: bool = False

    def clients(self) -> list[PersistentClient]:
        """An HTTP client of each platform.

        Raises:
            ConfigError: A token is missing, or an address cannot be used.
            RunError: A platform is not being served from its folder, or a token cannot be read.
        """
        files = list(self.token_files) * (len(self.platforms) if len(self.token_files) == 1 else 1)
        if files and len(files) != len(self.platforms):
            raise ConfigError(f"there are {len(self.platforms)} platforms and {len(files)} token files; give one each.")
        made = []
        for place, where in enumerate(self.platforms):
            home = None if "://" in where else PlatformFolder(where)
            if home is None and not files:
                raise ConfigError(f"give --token-file for {where}: the token that its platform gave you.")
            url = where if home is None else home.url("coordinator")
            token = read_token(files[place]) if files else home.token("coordinator")  # type: ignore[union-attr]
            pinned = home.certificate("coordinator") if home is not None and self.ca is None else None
            made.append(PersistentClient(url, token, ca=self.ca, allow_http=self.allow_http, pinned=pinned))
        return made


def coordinate(
    home: PlatformFolder,
    terms: Terms,
    asking: Asking,
    rounds: int,
    on_round: Callable[[RoundSeen], object],
    *,
    seeded: bool = False,
) -> Coordinator:
    """Coordinate platforms until the given number of rounds is done, and write the results into the folder.

    Args:
        home: Folder of the coordinator; a run that is there is continued.
        terms: Terms of the federation.
        asking: The platforms to ask, and how.
        rounds: Total number of rounds.
        on_round: Called with the result of every round.
        seeded: Draw from the run's seed, as a simulator does.

    Returns:
        The coordinator in its final state.

    Raises:
        RunError: A platform is another than it should be, or something in the folder cannot be used.
        ConfigError: An address or a token cannot be used.
    """
    import threading

    with home.locked():
        store, stop = home.open_store("coordinator", terms, seeded), threading.Event()
        try:
            peers = [Peer(terms, index, link, seeded=seeded, stop=stop) for index, link in enumerate(asking.clients())]
            coordinator = Coordinator(terms, peers, store, patience=asking.patience, seeded=seeded, stop=stop)
            with coordinator:
                _rounds(home, coordinator, rounds, on_round)
        finally:
            store.close()
    return coordinator


def coordinate_plans(
    home: PlatformFolder,
    terms: Terms,
    asking: Asking,
    on_step: Callable[[Told], object] = lambda step: None,
    *,
    seeded: bool = False,
) -> PlanningCoordinator:
    """Coordinate platforms that plan until all have been told the model; arguments and errors as :func:`coordinate`.

    ``on_step`` is called with every step. Writes ``ledger.jsonl``, ``privacy.json`` and ``federated.safetensors``.
    """
    import threading

    with home.locked():
        store, stop = home.open_store("coordinator", terms, seeded), threading.Event()
        try:
            peers = [Peer(terms, index, link, seeded=seeded, stop=stop) for index, link in enumerate(asking.clients())]
            coordinator = PlanningCoordinator(terms, peers, store, patience=asking.patience, seeded=seeded, stop=stop)
            with coordinator:
                try:
                    coordinator.run(on_step)
                finally:
                    write_files(home, coordinator)
        finally:
            store.close()
    return coordinator


def _rounds(
    home: PlatformFolder, coordinator: Coordinator, rounds: int, on_round: Callable[[RoundSeen], object]
) -> None:
    every, begun = coordinator.terms.config.evaluation.every, time.monotonic()
    seen: list[RoundSeen] = []
    try:
        for one in coordinator.run(rounds):
            seen.append(one)
            on_round(one)
            if (one.number + 1) % every == 0:
                _note(home, coordinator, seen, begun)
                seen, begun = [], time.monotonic()
    finally:
        if seen:
            _note(home, coordinator, seen, begun)
        write_files(home, coordinator)


def _note(home: PlatformFolder, coordinator: Coordinator, seen: list[RoundSeen], begun: float) -> None:
    """Add a line about some rounds to ``rounds.jsonl``."""
    state = coordinator.terms.protocol.watch(coordinator.state)
    row = {
        "round": seen[-1].number,
        "rounds": len(seen),
        "heard": np.sum([one.heard for one in seen], axis=0).tolist(),
        "learnt": sum(bool(one.learnt) for one in seen),
        "seconds": round(time.monotonic() - begun, 3),
        "watched": {name: float(value) for name, value in state.items()},
    }
    try:
        with (home.path / "rounds.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
    except OSError as error:
        raise RunError(f"{home.path / 'rounds.jsonl'}: cannot be written ({error.strerror}). Make room.") from error


def ledger_of(coordinator: Coordinator | PlanningCoordinator) -> Ledger:
    """The ledger of a run: one line an exchange for every ``evaluation.every`` rounds, as a simulator writes it."""
    ledger = Ledger()
    for first, counts in coordinator.crossed:
        for exchange, (requests, replies) in zip(coordinator.terms.exchanges, counts.tolist(), strict=True):
            if requests:
                ledger.record(first, exchange.name, exchange.request, sender="server", messages=requests)
            if replies:
                ledger.record(first, exchange.name, exchange.reply, sender="parties", messages=replies)
    if isinstance(coordinator, PlanningCoordinator):
        for first, step, layout, sender, messages in coordinator.crossed_in_secret:
            ledger.record(first, step, layout, sender=sender, messages=messages)
    return ledger


def write_files(home: PlatformFolder, coordinator: Coordinator | PlanningCoordinator) -> None:
    """Write ``ledger.jsonl``, ``privacy.json`` and ``federated.safetensors``.

    The last has Ω and its target network, or the model of engagement.
    """
    from safetensors.numpy import save

    terms = coordinator.terms
    promise = terms.protocol.account(max(1, int(coordinator.done)), terms.config.privacy.delta)
    names = ("model",) if terms.plans else ("weights", "target")
    weights = {name: np.asarray(getattr(coordinator.state, name)) for name in names}
    write_atomically(home.path / "ledger.jsonl", ledger_of(coordinator).text().encode())
    write_atomically(home.path / "privacy.json", json.dumps(promise.as_json(), indent=2).encode())
    write_atomically(home.path / "federated.safetensors", save(weights))
