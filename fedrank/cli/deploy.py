"""``fedrank hub serve``, ``relay``, ``replay``: learning from real users."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from fedrank.cli.listen import Address, At, Port, Reach, Reached, log_to_stderr
from fedrank.cli.terminal import AsJson, Names, Switch, print_json
from fedrank.core.errors import ConfigError, RunError
from fedrank.core.trees import Json
from fedrank.deploy.hub.folder import HubFolder
from fedrank.deploy.hub.settings import (
    DAYS,
    DEVICES,
    SEARCHES,
    TRIAL,
    HubSettings,
    fit_private,
    read_settings,
)

_HUB = Path("hub")
#: Values that turn a switch on, as :mod:`cyclopts` reads them.
_ON = ("yes", "y", "1", "true", "t")


def settings_of(folder: str | None, given: Mapping[str, str]) -> dict[str, Json]:
    """The settings of the hub in a folder; of a new one, those that follow from flags.

    Args:
        folder: Of the hub; None: the default one.
        given: Values of flags by their names; a switch's is "True" or what was given for it.
    """
    from fedrank.engine.settings import table_of

    path = HubFolder(folder or _HUB).settings
    if path.exists():
        return table_of(read_settings(path))
    if any(given.get(name, "no").lower() in _ON for name in ("--trial", "--collect")):
        return TRIAL
    kinds = {"devices": int, "searches": float, "days": float, "epsilon": float, "participations": int, "checks": float}
    with contextlib.suppress(ValueError):  # what is no number is refused by its flag
        return fit_private(**{name: kind(given[f"--{name}"]) for name, kind in kinds.items() if f"--{name}" in given})
    return {}


def is_public(status: str, at: Address, proxies: Sequence[str]) -> bool:
    """True if anyone may see the hub's status.

    Args:
        status: The setting.
        at: Where the hub listens.
        proxies: That it is told of; with them, to listen on this machine is to be reached from everywhere.
    """
    return status == "public" or (status == "auto" and at.is_loopback and not proxies)


def serve(
    folder: Path = _HUB,
    /,
    *,
    settings: Annotated[HubSettings, Parameter(name="*")] = HubSettings(),
    devices: int = DEVICES,
    searches: float = SEARCHES,
    days: float = DAYS,
    at: At = Address(),
    port: Port = 8750,
    proxies: Names = (),
) -> None:
    """Be a hub: hand out the ranker, collect reports of a few bytes, improve it round by round. Ctrl-C stops it.

    The first start makes the hub and needs --n-features. Later ones go on where it stopped; the flags of the first are
    kept in hub.toml. A new hub promises ε = 1 for all that a device ever sends; its rounds, the searches behind a
    message and the step size fit the number of devices. Such rounds take days: --trial is for a look on one machine.

    Args:
        folder: Of the hub; made if it is not there.
        settings: The hub.
        devices: Devices that a new hub is made for.
        searches: Searches of a device's user a day, from which a new hub has the length of its rounds.
        days: Days that the training of a new hub may take.
        at: Where it listens.
        proxies: Addresses of reverse proxies whose X-Forwarded-For is believed. With them, --status auto means admin.
    """
    from fedrank.deploy.hub.service import hub_app, linking, pace, promise, warnings_of

    home = HubFolder(folder)
    log_to_stderr()
    public = is_public(settings.status, at, proxies)
    fit_private(devices, searches, days)  # refuses what is out of range
    if settings.tokens and devices < settings.least_sales and not home.settings.exists():
        raise ConfigError(
            f"devices = {devices:,} buy fewer tokens than least_sales = {settings.least_sales:,}: every epoch would be "
            "void, and no device report. Give a lower --least-sales, knowing that so few are no crowd; or --trial."
        )

    def ready(url: str) -> None:
        print(f"hub      {url}", f"status   {url}/status", sep="\n")
        print(f"devices  enrol with the token in {home.path / 'enrolment.token'}")
        kept = read_settings(home.settings)
        print(f"linking  {linking(kept)}", f"privacy  {promise(kept)}", f"rounds   {pace(kept)}", sep="\n", flush=True)
        at.warn_without_tls("tokens")
        for warning in warnings_of(home.path, kept):
            print(f"fedrank: warning: {warning}", file=sys.stderr)

    with home.lock():
        home.prepare(settings)
        at.serve(hub_app(home, public=public, host=at.host)[1], port, ready, home, "hub", proxies=proxies)


def relay(
    hub: str,
    /,
    *,
    at: At = Address(),
    port: Port = 8751,
    batch: int = 50,
    batch_seconds: float = 60.0,
    company: float = 1.0,
    per_minute: float = 120.0,
    proxies: Names = (),
    origins: Names = (),
    reach: Reached = Reach(),
    trial: Switch = False,
) -> None:
    """Be an oblivious relay to a hub: pass on what devices send, in batches and shuffled, without their addresses.

    It reads nothing of what it passes on. It should be run by another operator than the hub's: together the two would
    know who sent what. It keeps nothing on the disk and logs no address. Ctrl-C stops it.

    Args:
        hub: Address of a hub with a gateway (fedrank hub serve --tokens 1 --batch 50).
        at: Where it listens.
        batch: Fewest reports that are passed on together; at least what the hub's terms say.
        batch_seconds: Longest wait of a report; those that are too few then are sent back, and come again.
        company: Longest wait of other requests; they are passed on then.
        per_minute: Requests of one network address a minute.
        proxies: Addresses of reverse proxies whose X-Forwarded-For is believed.
        origins: Origins whose web pages may send through it, such as https://shop.example; exact, and none by default.
        reach: How the hub is reached.
        trial: All devices are on this machine: each request from its addresses counts as one of another network.
            Never with a proxy on this machine, behind which one device would fill a batch alone.
    """
    from fedrank.deploy.oblivious.relay import GatewayClient, RelayApp, RelaySettings

    log_to_stderr()
    settings = RelaySettings(batch, batch_seconds, company, per_minute, origins, trial)
    gateway = GatewayClient(hub, ca=None if reach.ca is None else str(reach.ca), allow_http=reach.allow_http)
    app = RelayApp(gateway, gateway.configuration(), settings)

    def ready(url: str) -> None:
        print(f"relay  {url}", f"to     {hub}", sep="\n")
        print(f"batch  {batch} reports, or back after {batch_seconds:g} s", flush=True)
        at.warn_without_tls("addresses of devices and when they report")

    at.serve(app, port, ready, proxies=proxies)


def replay(
    folder: Path = _HUB,
    /,
    *,
    without: list[int] | None = None,
    until: int | None = None,
    out: Path | None = None,
    as_json: AsJson = False,
) -> None:
    """Make a hub's model again from its log, and compare it with the one that is served; the hub may be running.

    Exit status 1 if the log does not make the very model.

    Args:
        folder: Of the hub.
        without: Numbers of devices whose reports are left out; repeat it for several.
        until: Replay the rounds before this one only.
        out: Write the model to this safetensors file.
    """
    from fedrank.deploy.hub.audit import replay_log, write_model

    found = replay_log(folder, without=without or (), until=until)
    if out is not None:
        write_model(folder, found.weights, out)
    if as_json:
        print_json(
            {
                "rounds": found.rounds,
                "reports": found.reports,
                "left_out": found.left_out,
                "models_alike": None if without else found.models_alike,
                "difference": found.difference,
                "proven": None if without else found.proven,
                "weights": [float(w) for w in found.weights],
            }
        )
    elif without:
        print(f"{found.rounds} rounds, {found.reports} reports; {found.left_out} left out")
    else:
        served = {None: "no checkpoint of this round to compare with", 0.0: "the served model is the same, bit by bit"}
        made = f"{found.models_alike} of {found.models} models are the log's"
        print(f"{found.rounds} rounds, {found.reports} reports; {made}")
        print(served.get(found.difference, f"the served model differs by up to {found.difference}"))
    if not without and found.proven is False:
        raise RunError(f"{folder}: the log does not make the model. Another machine or program may have made it.")
