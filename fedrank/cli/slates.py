"""``fedrank slates serve``, ``coordinate``, ``simulate``: platforms that share users, for real."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import App, Parameter

from fedrank.cli.listen import Address, At, Port, Reach, Reached, log_to_stderr
from fedrank.cli.terminal import Quiet, Switch, add_plug_ins
from fedrank.core.errors import ConfigError
from fedrank.core.trees import Json
from fedrank.deploy.platforms.folder import PlatformFolder

app = App(name="slates", help="Be one of platforms that share users; coordinate them, visit them.")
add_plug_ins(app, "slates")

#: ``os``: from the operating system. ``seed``: from the run's seed as a simulator does; for tests, no protection.
Chance = Literal["os", "seed"]
#: A flag that is given once for each platform, in the order of their indices.
Each = Annotated[list[str], Parameter(negative="")]


def terms_of(config: Path, chance: Chance) -> Any:
    """The terms that all parties agree on, from a configuration file.

    Raises:
        ConfigError: It cannot be read, or has no platforms that tell each other anything.
    """
    from fedrank.deploy.platforms.folder import Terms
    from fedrank.engine.settings import read_config

    return Terms.of(read_config(config), seeded=chance == "seed")


@app.command
def serve(
    folder: Path,
    /,
    *,
    index: int,
    config: Path,
    at: At = Address(),
    port: Port = 0,
    application_port: int = 0,
    token_file: Path | None = None,
    silence: float = 1800.0,
    chance: Chance = "os",
) -> None:
    """Be one of several platforms that share users and learn together which slates to show. Ctrl-C stops it.

    Its sessions, sums and plan stay in the folder; a platform that was killed goes on where it was.

    Args:
        folder: Of the platform; made if it is not there.
        index: Which platform it is, from 0.
        config: TOML file of the run, the same for all platforms and their coordinator.
        at: Where it listens for the coordinator.
        application_port: Port for the platform's own application, of this machine only; 0: any that is free.
        token_file: File with the coordinator's token; without it coordinator.token in the folder, made at first.
        silence: Seconds without a word after which a user's stay has ended.
        chance: Where chance comes from. With seed it repeats a simulation and gives no protection.
    """
    from fedrank.deploy.platforms.service import ListenAt, run_platform

    log_to_stderr()
    if not silence > 0:
        raise ConfigError(f"silence must be positive, got {silence}.")
    home, tls = PlatformFolder(folder), (at.certificate, at.key)
    listen = ListenAt(at.host, port, application_port, *tls, token_file, silence)

    def ready(coordinator: str, application: str) -> None:
        print(f"platform     {coordinator}", f"application  {application}", sep="\n")
        print(f"tokens       {home.path}/coordinator.token, {home.path}/application.token", flush=True)
        at.warn_without_tls("sums and the token")

    run_platform(home, terms_of(config, chance), index, listen, ready)


@app.command
def coordinate(
    folder: Path,
    /,
    *,
    config: Path,
    platform: Each,
    token_file: Annotated[tuple[Path, ...], Parameter(negative="")] = (),
    patience: float = 30.0,
    wait: Switch = False,
    reach: Reached = Reach(),
    chance: Chance = "os",
    quiet: Quiet = False,
) -> None:
    """Coordinate platforms that share users: ask for their sums, and tell all the model. The same command goes on.

    Args:
        folder: For the coordinator's state and what came out: ledger.jsonl, privacy.json, federated.safetensors.
        config: TOML file of the run, the same for all platforms.
        platform: Address of each platform, or its folder on this machine; repeat it, in the order of their indices.
        token_file: File with the token of each platform; repeat it in the same order. Folders have theirs.
        patience: Seconds that a platform may take after the first with feedback has sent its sums; with a secure sum,
            which needs all, until this ends with an error.
        wait: Wait for every platform as long as it takes.
        reach: How platforms are reached.
        chance: As the platforms'.
    """
    from fedrank.deploy.platforms import service

    log_to_stderr()
    terms = terms_of(config, chance)
    asking = service.Asking(platform, token_file, _seconds(patience, wait), **vars(reach))
    names = {"release": "has sent its sums", "improve": "has the model"}
    names |= {"bound": "has sent its counts of norms", "clip": "has the clip"}
    names |= {"trial": "has sent its sums of the trial", "verdict": "has the verdict"}

    def said(step: Any) -> None:
        if not quiet:
            print(f"platform {step.platform} {names[step.what]}", file=sys.stderr, flush=True)

    done = service.coordinate(PlatformFolder(folder), terms, asking, said)
    if done.trial:
        print(f"trial        {done.trial}")
    ledger = done.ledger()
    print(
        f"{len(done.informed_platforms)} of {terms.platforms} platforms plan; platforms sent "
        f"{ledger.bytes_from('parties'):,} bytes, the coordinator {ledger.bytes_from('server'):,}; see "
        f"{folder}/ledger.jsonl"
    )


@app.command
def simulate(
    *,
    config: Path,
    platform: Each,
    rounds: int = 0,
    at_once: int = 1,
    out: Path | None = None,
    patience: float = 60.0,
    wait: Switch = False,
    chance: Chance = "os",
    quiet: Quiet = False,
) -> None:
    """Simulated users visit platforms on this machine, through what their applications would call.

    Args:
        config: TOML file of the run.
        platform: Folder of each platform; repeat it, in the order of their indices.
        rounds: Rounds in all; 0: those of the configuration.
        at_once: Users at the same time, who take turns.
        out: Add a line of JSON to this file for every user who has left: rounds, and engagement at each platform.
        patience: Seconds that a platform may be away before a round passes without it.
        wait: Wait for every platform as long as it takes.
        chance: With seed, the users of a simulation.
    """
    import numpy as np

    from fedrank.deploy.platforms.client import PlatformClient, visits

    log_to_stderr()
    terms = terms_of(config, chance)
    clients = [PlatformClient.of_folder(one, patience=_seconds(patience, wait)) for one in platform]
    stay, total, left = terms.protocol.world.rounds_per_episode, {}, 0
    users = (rounds or terms.config.rounds) // stay
    for seen in visits(terms, clients, users, at_once=max(1, at_once)):
        total[seen.user] = total.get(seen.user, np.zeros(terms.platforms)) + seen.engagement
        if not seen.over:
            continue
        left, brought = left + 1, total.pop(seen.user)
        row: dict[str, Json] = {"user": seen.user, "rounds": stay, "engagement": brought.round(3).tolist()}
        if out is not None:
            with out.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")
        if not quiet:
            print(f"user {left}  engagement {'  '.join(f'{one:7.1f}' for one in brought)}", flush=True)
    for client in clients:
        client.close()


def _seconds(patience: float, wait: bool) -> float:
    if not patience > 0:
        raise ConfigError(f"patience must be positive, got {patience}; to wait as long as it takes, give --wait.")
    return math.inf if wait else patience
