"""``fedrank serve``, ``simulate-fleet``, ``replay``: learning from real users."""

from __future__ import annotations

import ipaddress
import logging
import math
import os
import sys
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from fedrank.cli.terminal import AsJson, Quiet
from fedrank.core.errors import ConfigError, RunError
from fedrank.core.trees import Json
from fedrank.core.words import printable
from fedrank.deploy.hub.settings import HubSettings

_HUB = Path("hub")
#: Most devices that an error names.
_NAMED = 5


def settings_of(folder: str = str(_HUB)) -> dict[str, Json]:
    """The settings of the hub in a folder; none if there is no hub yet."""
    from fedrank.deploy.hub.folder import HubFolder
    from fedrank.deploy.hub.settings import read_settings
    from fedrank.engine.settings import table_of

    path = HubFolder(folder).settings
    return table_of(read_settings(path)) if path.exists() else {}


def is_loopback(host: str) -> bool:
    """True if an address is this machine's own."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def refuse_half_tls(certificate: Path | None, key: Path | None) -> None:
    """Refuse a certificate without its key, or a key without its certificate.

    Raises:
        ConfigError: One of the two is missing.
    """
    if (certificate is None) != (key is None):
        raise ConfigError("TLS needs both --certificate and --key.")


def warn_without_tls(what: str, host: str, certificate: Path | None) -> None:
    """Warn on stderr if ``what`` crosses a network in the clear."""
    if not is_loopback(host) and certificate is None:
        print(
            f"fedrank: warning: {what} cross in the clear; give --certificate and --key, or put a proxy with TLS in "
            "front",
            file=sys.stderr,
        )


def is_public(status: str, host: str, proxies: list[str] | None) -> bool:
    """True if anyone may see the hub's status.

    Args:
        status: The setting.
        host: Address that the hub listens at.
        proxies: That it is told of; with them, to listen on this machine is to be reached from everywhere.
    """
    return status == "public" or (status == "auto" and is_loopback(host) and not proxies)


def serve(
    folder: Path = _HUB,
    /,
    *,
    settings: Annotated[HubSettings, Parameter(name="*")] = HubSettings(),  # noqa: B008 - frozen
    host: str = "127.0.0.1",
    port: int = 8750,
    certificate: Path | None = None,
    key: Path | None = None,
    proxies: list[str] | None = None,
) -> None:
    """Be a hub: hand out the ranker, collect reports of a few bytes, improve it round by round. Ctrl-C stops it.

    The first start makes the hub and needs --n-features. Later ones go on where it stopped; the flags of the first are
    kept in hub.toml.

    Args:
        folder: Of the hub; made if it is not there.
        settings: The hub.
        host: Address to listen at. The default is this machine only.
        port: Port to listen at; 0: any that is free.
        certificate: PEM file of the server's certificate chain, for TLS.
        key: PEM file of its private key.
        proxies: Addresses of reverse proxies whose X-Forwarded-For is believed. With them, --status auto means admin.
    """
    from fedrank.deploy.hub.folder import HubFolder
    from fedrank.deploy.hub.service import Listen, run_hub

    refuse_half_tls(certificate, key)
    home = HubFolder(folder)
    _log_to_stderr()
    public = is_public(settings.status, host, proxies)

    def ready(url: str) -> None:
        print(f"hub      {url}", f"status   {url}/status", sep="\n")
        print(f"devices  enrol with the token in {home.path / 'enrolment.token'}")
        print(f"linking  {_linking(home)}")
        print(f"privacy  {_promise(home)}", flush=True)
        warn_without_tls("tokens", host, certificate)
        for warning in filter(None, (_explain_silence(home), _fastest_decide(home))):
            print(f"fedrank: warning: {warning}", file=sys.stderr)

    with home.lock():
        home.prepare(settings)
        run_hub(home, Listen(host, port, certificate, key, tuple(proxies or ()), public), ready)


def _fastest_decide(home: Any) -> str:
    """A warning if the first reports fill a round; empty if they do not.

    Wherever the hub listens: a proxy may be in front, on this machine too, and the hub need not be told of it.
    """
    from fedrank.deploy.hub.settings import read_settings

    kept = read_settings(home.settings)
    if kept.round_seconds or kept.relay:
        return ""
    return (
        "round_seconds is 0, which is for trials: the first reports fill a round, so that whoever is fastest decides; "
        "set it to what a slow device needs"
    )


def _explain_silence(home: Any) -> str:
    """The reason why devices whose app says nothing about ε send nothing to this hub; empty if they report."""
    from fedrank.deploy.hub.settings import PIECEWISE_EPSILON, read_settings
    from fedrank.privacy.caps import MOST_EPSILON, MOST_SEARCH_EPSILON

    terms = read_settings(home.settings).terms()
    search, message = terms.epsilon_interaction, terms.epsilon_message
    if search <= MOST_SEARCH_EPSILON and message <= MOST_EPSILON:
        return ""
    return (
        f"devices with default settings will not report: a message has ε = {message:.3g} and a search {search:.3g}, "
        f"they allow {MOST_EPSILON:g} and {MOST_SEARCH_EPSILON:g}. For people, make a hub in another folder with the "
        f"default mechanism (ε = {PIECEWISE_EPSILON:g}), or with --p or --epsilon that give less; for a trial, have "
        "the app allow more (most_epsilon, most_search_epsilon)"
    )


def _linking(home: Any) -> str:
    """A sentence on who can put the reports of a device together."""
    from fedrank.deploy.hub.settings import read_settings

    settings = read_settings(home.settings)
    if not settings.tokens:
        return "this hub keeps a history of each device (no --tokens, no relay)"
    if not settings.batch:
        return "reports show blind tokens; their network addresses are not hidden (no --batch, no relay)"
    return (
        f"reports show blind tokens and come through a relay, {settings.batch} together; start one elsewhere: "
        f"fedrank serve relay URL --batch {settings.batch}"
    )


def _promise(home: Any) -> str:
    """A sentence on what the terms promise, and on who reports under them."""
    from fedrank.deploy.hub.settings import read_settings
    from fedrank.privacy.caps import LIFETIME_EPSILON

    terms = read_settings(home.settings).terms()
    search, message, life = terms.epsilon_interaction, terms.epsilon_message, terms.epsilon_life
    promised = f"ε = {search:.3g} of a search, {message:.3g} of a message, "
    promised += "no limit to all of a device's messages" if math.isinf(life) else f"{life:.3g} of all of a device's"
    if _explain_silence(home) or life <= LIFETIME_EPSILON:
        return promised
    return f"{promised}; devices end at {LIFETIME_EPSILON:g} by default"


def simulate_fleet(
    hub: str = str(_HUB),
    /,
    *,
    devices: int = 50,
    data: str = "generated",
    fold: int = 1,
    clicks: str = "navigational",
    enrolment: str | None = None,
    seconds: float = 0.0,
    pause: float = 0.3,
    share: bool = False,
    seed: int = 0,
    most_epsilon: float = float("inf"),
    relay: str | None = None,
    out: Path | None = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Start devices on this machine, one process each, with simulated people in front of them.

    The devices are real ones: the SDK, its outbox, HTTP. They run until the hub's training is over, or Ctrl-C.

    Args:
        hub: Folder of a hub that is being served on this machine, or its address.
        devices: How many.
        data: Queries that people ask: a name in the catalogue, a LETOR file or folder, or 'generated'.
        fold: Fold of the data set.
        clicks: Click model: perfect, navigational or informational.
        enrolment: The hub's enrolment token, or better a file that holds it: others on this machine can read a
            command's words. With a folder it is found there.
        seconds: Stop after so long; 0: when training is over.
        pause: Longest pause of a device between two looks at the hub, in seconds.
        share: Each device has its own queries.
        seed: Of what people ask and click.
        most_epsilon: Largest ε of a message that the devices agree to; by default any, as no person is behind them.
        relay: Address of an oblivious relay that the devices go through, where the hub's terms ask for one.
        out: Keep the devices' files in this folder.
        quiet: No progress.
        as_json: Print what the hub showed last, as JSON for machines.
    """
    from fedrank.cli.terminal import print_json
    from fedrank.data import load
    from fedrank.deploy.fleet import FleetSettings, crashes, fleet, look, watch
    from fedrank.ranking.build import user_for
    from fedrank.ranking.clicks.cascade import MAX_GRADES
    from fedrank.ranking.data.reader import QueryReader

    url, token = _where(hub, enrolment)
    settings = FleetSettings(url, token, devices, seconds, pause, share, seed, most_epsilon, relay)
    splits = load(data, QueryReader(fold=fold, max_label=MAX_GRADES - 1))
    user = user_for(clicks, splits)
    shown, features = look(url), splits.train.features.shape[1]
    if shown is not None and shown["n_features"] != features:
        raise ConfigError(
            f"the hub ranks documents of {shown['n_features']} features, those of {data!r} have {features}. Give other "
            f"data, or make a hub with --n-features {features}."
        )
    speak = _Speaker(quiet)
    with fleet(settings, splits.train, user, out) as processes:
        seen = watch(settings, processes, speak.show)
        crashed = crashes(processes)
    if crashed:
        more = ", …" if len(crashed) > _NAMED else ""
        raise RunError(
            f"{len(crashed)} of {devices} devices ended with an error: {', '.join(crashed[:_NAMED])}{more}; what they "
            "printed is above. A signal without a word may be a lack of memory: use fewer devices."
        )
    if seen is None:
        raise RunError(
            f"{url}: no hub was seen there. Is it being served (fedrank serve {_HUB}), and does it show its status "
            "publicly (--status public)?"
        )
    if as_json:
        print_json(seen)
    else:
        print(f"round {seen['round']}, {sum(point['reports'] for point in seen['history'])} reports; see {url}/status")


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
        as_json: Print JSON for machines.
    """
    from fedrank.cli.terminal import print_json
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


def _where(hub: str, enrolment: str | None) -> tuple[str, str]:
    """The hub's address and the token that a device enrols with."""
    from fedrank.deploy.hub.folder import HubFolder

    if "://" in hub:
        if enrolment is None:
            raise ConfigError("give --enrolment, a file with the hub's enrolment token; its folder would have it.")
        return hub, _token(enrolment)
    home = HubFolder(hub)
    url = home.url("hub")
    return url, _token(enrolment) if enrolment else home.token("enrolment")


def _token(given: str) -> str:
    """A token, or what is in the file of that name."""
    if not os.path.isfile(given):
        return given
    try:
        return Path(given).read_text(encoding="ascii").strip()
    except (OSError, ValueError) as error:
        raise ConfigError(f"{given}: no token can be read there ({error}).") from error


class _Speaker:
    """Says how a fleet is doing: a line that is replaced on a terminal, a line a round in a log."""

    def __init__(self, quiet: bool):
        self._quiet, self._last, self._terminal = quiet, None, sys.stderr.isatty()

    def show(self, seen: dict[str, Any] | None, running: int) -> None:
        """Show the hub's status and the number of running devices."""
        if self._quiet:
            return
        if seen is None:
            text = f"{running} devices running; the hub cannot be seen"
        else:
            reward = seen["history"][-1]["reward"] if seen["history"] else None
            shown = "" if reward is None else f"  {seen['reward']} {reward:.3f}"
            text = (
                f"{running} devices running  round {seen['round']}: {seen['reports']}/{seen['cohort']} reports{shown}"
            )
        text = printable(text)  # the hub's words
        if self._terminal:
            print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)
        elif text != self._last:
            print(text, file=sys.stderr, flush=True)
        self._last = text


def _log_to_stderr() -> None:
    """Warnings and errors of the hub, one line each, with the time."""
    from fedrank.deploy.folder import LogLine

    handler = logging.StreamHandler()
    handler.setFormatter(LogLine("%(asctime)s %(levelname)s %(message)s"))
    log = logging.getLogger("fedrank")
    log.addHandler(handler)
    log.setLevel(logging.INFO)
