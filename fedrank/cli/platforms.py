"""``fedrank serve platform``, ``coordinate platforms``, ``simulate-visits``: platforms that share users, for real."""

from __future__ import annotations

import json
import math
import sys
import time
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import App, Parameter

from fedrank.cli.deploy import _log_to_stderr, refuse_half_tls, serve, warn_without_tls
from fedrank.cli.terminal import Quiet
from fedrank.core.errors import ConfigError
from fedrank.core.trees import Json

#: ``os``: from the operating system. ``seed``: from the run's seed as a simulator does; for tests, no protection.
Chance = Literal["os", "seed"]
_Flag = Annotated[bool, Parameter(negative="")]

serve_app = App(name="serve")
serve_app.default(serve)
for _name in ("search", "broker", "portal"):
    serve_app.command(f"fedrank.cli.owners:serve_{_name}", name=_name)
coordinate_app = App(name="coordinate", help="Coordinate companies that learn together.")


def terms_of(config: Path) -> Any:
    """The terms that all parties agree on, from a configuration file.

    Raises:
        ConfigError: It cannot be read, or has no platforms that tell each other anything.
    """
    from fedrank.deploy.platforms.terms import Terms
    from fedrank.engine.settings import read_config

    return Terms.of(read_config(config))


@serve_app.command
def platform(
    folder: Path,
    /,
    *,
    index: int,
    config: Path,
    host: str = "127.0.0.1",
    port: int = 0,
    application_port: int = 0,
    token_file: Path | None = None,
    certificate: Path | None = None,
    key: Path | None = None,
    patience: float = 1.0,
    wait: _Flag = False,
    chance: Chance = "os",
) -> None:
    """Be one of several platforms that share users and learn together which slates to show. Ctrl-C stops it.

    Its network and its users' moments stay in the folder; a platform that was killed goes on where it was.

    Args:
        folder: Of the platform; made if it is not there.
        index: Which platform it is, from 0.
        config: TOML file of the run, the same for all platforms and their coordinator.
        host: Address to listen at for the coordinator. The default is this machine only.
        port: Port for the coordinator; 0: any that is free.
        application_port: Port for the platform's own application, of this machine only; 0: any that is free.
        token_file: File with the coordinator's token; without it coordinator.token in the folder, made at first.
        certificate: PEM file of the server's certificate chain, for TLS to the coordinator.
        key: PEM file of its private key.
        patience: Seconds that a user waits for the coordinator; then the slate is of the platform's own making.
        wait: Wait for the coordinator as long as it takes.
        chance: Where chance comes from. With seed it repeats a simulation and gives no protection.
    """
    from fedrank.deploy.platforms.folder import PlatformFolder
    from fedrank.deploy.platforms.service import ListenAt, run_platform

    refuse_half_tls(certificate, key)
    _log_to_stderr()
    home = PlatformFolder(folder)
    at = ListenAt(host, port, application_port, certificate, key, token_file, _seconds(patience, wait))

    def ready(coordinator: str, application: str) -> None:
        print(f"platform     {coordinator}", f"application  {application}", sep="\n")
        print(f"tokens       {home.path}/coordinator.token, {home.path}/application.token", flush=True)
        warn_without_tls("values and the token", host, certificate)

    run_platform(home, terms_of(config), index, at, ready, seeded=chance == "seed")


@serve_app.command
def relay(
    hub: str,
    /,
    *,
    host: str = "127.0.0.1",
    port: int = 8751,
    batch: int = 50,
    seconds: float = 60.0,
    company: float = 1.0,
    per_minute: float = 120.0,
    certificate: Path | None = None,
    key: Path | None = None,
    proxies: Annotated[list[str] | None, Parameter(negative="")] = None,
    origins: Annotated[list[str] | None, Parameter(negative="")] = None,
    ca: Path | None = None,
    allow_http: _Flag = False,
    trial: _Flag = False,
) -> None:
    """Be an oblivious relay to a hub: pass on what devices send, in batches and shuffled, without their addresses.

    It reads nothing of what it passes on. It should be run by another operator than the hub's: together the two would
    know who sent what. It keeps nothing on the disk and logs no address. Ctrl-C stops it.

    Args:
        hub: Address of a hub with a gateway (fedrank serve --tokens 1 --batch 50).
        host: Address to listen at. The default is this machine only.
        port: Port to listen at; 0: any that is free.
        batch: Fewest reports that are passed on together; at least what the hub's terms say.
        seconds: Longest wait of a report; those that are too few then are sent back, and come again.
        company: Longest wait of other requests; they are passed on then.
        per_minute: Requests of one network address a minute.
        certificate: PEM file of the server's certificate chain, for TLS.
        key: PEM file of its private key.
        proxies: Addresses of reverse proxies whose X-Forwarded-For is believed.
        origins: Origins whose web pages may send through it, such as https://shop.example; exact, and none by default.
        ca: File with the certificates to trust in place of the system's, for the hub.
        allow_http: Reach a hub on another machine without TLS.
        trial: All devices are on this machine: each request from its addresses counts as one of another network.
            Never with a proxy on this machine, behind which one device would fill a batch alone.
    """
    from fedrank.deploy.http.server import serve as answer
    from fedrank.deploy.oblivious.relay import GatewayClient, RelayApp, RelaySettings

    refuse_half_tls(certificate, key)
    _log_to_stderr()
    settings = RelaySettings(batch, seconds, company, per_minute, tuple(origins or ()), trial)
    gateway = GatewayClient(hub, ca=None if ca is None else str(ca), allow_http=allow_http)
    app = RelayApp(gateway, gateway.configuration(), settings)

    def ready(url: str) -> None:
        print(f"relay  {url}", f"to     {hub}", sep="\n")
        print(f"batch  {batch} reports, or back after {seconds:g} s", flush=True)
        warn_without_tls("addresses of devices and when they report", host, certificate)

    answer(app, on_ready=ready, host=host, port=port, certfile=certificate, keyfile=key, proxies=tuple(proxies or ()))


@coordinate_app.command(name="platforms")
def coordinate(
    folder: Path,
    /,
    *,
    config: Path,
    platform: Annotated[list[str], Parameter(negative="")],
    token_file: Annotated[list[Path] | None, Parameter(negative="")] = None,
    rounds: int = 0,
    patience: float = 30.0,
    wait: _Flag = False,
    ca: Path | None = None,
    allow_http: _Flag = False,
    chance: Chance = "os",
    quiet: Quiet = False,
) -> None:
    """Coordinate platforms that share users, round by round. Ctrl-C stops it; the same command goes on.

    Args:
        folder: For the coordinator's state and what came out: ledger.jsonl, privacy.json, rounds.jsonl.
        config: TOML file of the run, the same for all platforms.
        platform: Address of each platform, or its folder on this machine; repeat it, in the order of their indices.
        token_file: File with the token of each platform; repeat it in the same order. Folders have theirs.
        rounds: Rounds in all; 0: those of the configuration. Platforms that plan need none.
        patience: Seconds that a platform may take to answer; then it is not heard in that round. Of those that plan:
            after the first with feedback has sent its sums; with a secure sum, which needs all, until this ends with an
            error.
        wait: Wait for every platform as long as it takes.
        ca: File with the certificates to trust in place of the system's.
        allow_http: Let values and tokens cross a network without TLS.
        chance: As the platforms'.
        quiet: No progress.
    """
    from fedrank.deploy.platforms.folder import PlatformFolder
    from fedrank.deploy.platforms.service import Asking, coordinate, coordinate_plans, ledger_of

    _log_to_stderr()
    terms = terms_of(config)
    asking = Asking(platform, token_file or (), _seconds(patience, wait), ca, allow_http)
    if terms.plans:
        names = {"sums": "has sent its sums", "plan": "has the model"}
        names |= {"counts": "has sent its counts of norms", "clip": "has the clip"}

        def said(step: Any) -> None:
            if not quiet:
                print(f"platform {step.platform} {names[step.what]}", file=sys.stderr, flush=True)

        planned = coordinate_plans(PlatformFolder(folder), terms, asking, said, seeded=chance == "seed")
        ledger = ledger_of(planned)
        print(
            f"{len(planned.informed_platforms)} of {terms.platforms} platforms plan; platforms sent "
            f"{ledger.bytes_from('parties'):,} bytes, the coordinator {ledger.bytes_from('server'):,}; see "
            f"{folder}/ledger.jsonl"
        )
        return
    speak = _Speaker(quiet, rounds or terms.config.rounds)
    done = coordinate(
        PlatformFolder(folder), terms, asking, rounds or terms.config.rounds, speak.round, seeded=chance == "seed"
    )
    ledger = ledger_of(done)
    speak.end()
    print(
        f"{done.done} rounds; platforms sent {ledger.bytes_from('parties'):,} bytes, the coordinator "
        f"{ledger.bytes_from('server'):,}; see {folder}/ledger.jsonl"
    )


def simulate_visits(
    *,
    config: Path,
    platform: Annotated[list[str], Parameter(negative="")],
    rounds: int = 0,
    out: Path | None = None,
    patience: float = 60.0,
    wait: _Flag = False,
    chance: Chance = "os",
    quiet: Quiet = False,
) -> None:
    """Simulated users visit platforms on this machine, through what their applications would call.

    Args:
        config: TOML file of the run.
        platform: Folder of each platform; repeat it, in the order of their indices.
        rounds: Rounds in all; 0: those of the configuration.
        out: Add a line of JSON to this file for every user who has left: rounds, and engagement at each platform.
        patience: Seconds that a platform may be away before a round passes without it.
        wait: Wait for every platform as long as it takes.
        chance: With seed, the users of a simulation.
        quiet: No progress.
    """
    import numpy as np

    from fedrank.deploy.platforms.client import PlatformClient, visits

    _log_to_stderr()
    terms = terms_of(config)
    clients = [PlatformClient.of_folder(one, patience=_seconds(patience, wait)) for one in platform]
    total, stayed, users = np.zeros(terms.platforms), 0, 0
    for seen in visits(terms, clients, rounds or terms.config.rounds, seeded=chance == "seed"):
        total, stayed = total + seen.engagement, stayed + 1
        if not seen.over:
            continue
        users += 1
        row: dict[str, Json] = {"round": seen.number, "rounds": stayed, "engagement": total.round(3).tolist()}
        if out is not None:
            with out.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")
        if not quiet:
            print(
                f"user {users}  round {seen.number + 1}  engagement {'  '.join(f'{one:7.1f}' for one in total)}",
                flush=True,
            )
        total, stayed = np.zeros(terms.platforms), 0
    for client in clients:
        client.close()


def _seconds(patience: float, wait: bool) -> float:
    if not patience > 0:
        raise ConfigError(f"patience must be positive, got {patience}; to wait as long as it takes, give --wait.")
    return math.inf if wait else patience


class _Speaker:
    """Says how rounds go: a line that is replaced on a terminal, one every ten seconds in a log."""

    _EVERY = 10.0

    def __init__(self, quiet: bool, rounds: int):
        self._quiet, self._rounds, self._terminal = quiet, rounds, sys.stderr.isatty()
        self._begun = self._said = time.monotonic()
        self._count = self._whole = self._learnt = 0

    def round(self, seen: Any) -> None:
        """Report that a round is over."""
        self._count += 1
        self._whole += bool(seen.heard.all())
        self._learnt += bool(seen.learnt)
        now = time.monotonic()
        if self._quiet or now - self._said < (0.2 if self._terminal else self._EVERY):
            return
        self._said = now
        self._say(seen.number + 1, now)

    def _say(self, done: int, now: float) -> None:
        speed = self._count / max(now - self._begun, 1e-9)
        missed = "" if self._whole == self._count else f", {self._count - self._whole} without all platforms"
        text = f"round {done} of {self._rounds}  {speed:.0f} a second  learnt in {self._learnt}{missed}"
        print(
            f"\r\x1b[K{text}" if self._terminal else text,
            end="" if self._terminal else "\n",
            file=sys.stderr,
            flush=True,
        )

    def end(self) -> None:
        """Report that all rounds are over."""
        if not self._quiet and self._count:
            self._say(self._rounds, time.monotonic())
            if self._terminal:
                print(file=sys.stderr)
