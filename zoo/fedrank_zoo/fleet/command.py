"""The command ``fedrank hub simulate``: many devices on this machine, with simulated people, that talk to a hub."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fedrank.cli.terminal import AsJson, Quiet, Status, Switch, print_json
from fedrank.core.errors import ConfigError, RunError
from fedrank.core.words import printable
from fedrank.deploy.folder import read_token
from fedrank.deploy.hub.folder import HubFolder

#: The folder of a hub where none is named.
_HUB = Path("hub")
#: Devices that ended with an error and are named.
_NAMED = 5


def simulate(
    hub: str = str(_HUB),
    /,
    *,
    devices: int = 50,
    data: str = "generated",
    fold: int = 1,
    clicks: str = "navigational",
    enrolment: Path | None = None,
    seconds: float = 0.0,
    pause: float = 0.3,
    own_queries: Switch = False,
    seed: int = 0,
    most_epsilon: float = float("inf"),
    through: str | None = None,
    keep: Path | None = None,
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
        enrolment: File with the hub's enrolment token; with a folder it is found there.
        seconds: Stop after so long; 0: when training is over.
        pause: Longest pause of a device between two looks at the hub, in seconds.
        own_queries: Each device has its own queries.
        seed: Of what people ask and click.
        most_epsilon: Largest ε of a message that the devices agree to; by default any, as no person is behind them.
        through: Address of an oblivious relay that the devices go through, where the hub's terms ask for one.
        keep: Keep the devices' files in this folder.
    """
    from fedrank.data import load
    from fedrank.ranking.build import user_for
    from fedrank.ranking.clicks.cascade import MAX_GRADES
    from fedrank.ranking.data.reader import QueryReader
    from fedrank_zoo.fleet.processes import FleetSettings, crashes, fleet, look, watch

    url, token = _where(hub, enrolment)
    settings = FleetSettings(url, token, devices, seconds, pause, own_queries, seed, most_epsilon, through)
    splits = load(data, QueryReader(fold=fold, max_label=MAX_GRADES - 1))
    user = user_for(clicks, splits)
    shown, features = look(url), splits.train.features.shape[1]
    if shown is not None and shown["n_features"] != features:
        raise ConfigError(
            f"the hub ranks documents of {shown['n_features']} features, those of {data!r} have {features}. Give other "
            f"data, or make a hub with --n-features {features}."
        )
    status = Status(quiet, seconds=0.0)

    def tell(seen: dict[str, Any] | None, running: int) -> None:
        said = "the hub cannot be seen" if seen is None else printable(_progress_of(seen))  # the hub's words
        status.show(f"{running} devices running; {said}")

    with fleet(settings, splits.train, user, keep) as processes:
        seen = watch(settings, processes, tell)
        status.end()
        crashed = crashes(processes)
    if crashed:
        more = ", …" if len(crashed) > _NAMED else ""
        raise RunError(
            f"{len(crashed)} of {devices} devices ended with an error: {', '.join(crashed[:_NAMED])}{more}; what they "
            "printed is above. A signal without a word may be a lack of memory: use fewer devices."
        )
    if seen is None:
        raise RunError(
            f"{url}: no hub was seen there. Is it being served (fedrank hub serve {_HUB}), and does it show its status "
            "publicly (--status public)?"
        )
    if as_json:
        print_json(seen)
    else:
        print(f"round {seen['round']}, {sum(point['reports'] for point in seen['history'])} reports; see {url}/status")


def _where(hub: str, enrolment: Path | None) -> tuple[str, str]:
    """The hub's address and the token that a device enrols with."""
    if "://" in hub:
        if enrolment is None:
            raise ConfigError("give --enrolment, a file with the hub's enrolment token; its folder would have it.")
        return hub, read_token(enrolment, 8)
    home = HubFolder(hub)
    url = home.url("hub")
    return url, read_token(enrolment, 8) if enrolment else home.token("enrolment")


def _progress_of(seen: dict[str, Any]) -> str:
    """The round of a hub, by its status."""
    reward = seen["history"][-1]["reward"] if seen["history"] else None
    shown = "" if reward is None else f"  {seen['reward']} {reward:.3f}"
    return f"round {seen['round']}: {seen['reports']}/{seen['cohort']} reports{shown}"
