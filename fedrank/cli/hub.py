"""``fedrank hub``: what an operator does with a hub, whether it runs or not.

``fedrank hub log``: public evidence that all devices get the same model.
"""

from __future__ import annotations

import contextlib
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from cyclopts import App

from fedrank.cli.terminal import AsJson, Switch, add_plug_ins, print_json
from fedrank.core.errors import RunError
from fedrank.core.words import printable
from fedrank.deploy.http.client import HttpClient
from fedrank.deploy.hub.admission import Credentials
from fedrank.deploy.hub.folder import HubFolder, Operator
from fedrank.deploy.hub.settings import read_settings

app = App(name="hub", help="Serve a hub that devices learn with, operate it, and verify its log.")
for _name, _place, _help in (
    ("serve", "deploy:serve", "Be a hub: hand out the ranker, collect reports, improve it round by round."),
    ("relay", "deploy:relay", "Be an oblivious relay to a hub, so that it does not learn who sends what."),
    ("replay", "deploy:replay", "Make a hub's model again from its log, to prove it or to leave devices out."),
    ("log", "hub:log", "Show a hub's public log of terms and models, and verify it."),
):
    app.command(f"fedrank.cli.{_place}", name=_name, help=_help)
add_plug_ins(app, "hub")
credential = App(name="credential", help="Credentials that devices enrol with, each with a cap.")
app.command(credential)

_HUB = Path("hub")


@app.command
def resume(folder: Path = _HUB, /, *, ca: Path | None = None) -> None:
    """Have a hub go on that halted because its model sank; it goes on from its best model.

    Look first at what happened: who enrolled, what the status page says. Devices that lie can be removed.

    Args:
        folder: Of the hub, which must be running.
        ca: File with the certificates to trust, where the hub's is its own.
    """
    answer = Operator(HubFolder(folder), ca).ask("POST", "/v1/admin/resume", ignore=("not-halted",))
    if answer.status == 409:
        print("the hub is not halted")
    else:
        print(f"round {answer.json()['round']} is open")


@app.command
def rotate(
    folder: Path,
    key: Literal["log", "gateway", "issuer"],
    /,
    *,
    operator: Path | None = None,
    ca: Path | None = None,
) -> None:
    """Change a key of a hub by an entry of its public log; the hub may be running, and devices follow.

    Old and new key both work for overlap_days; then the old one is destroyed. Of the issuer's key, tokens that were
    bought for the next epoch are bought anew. Back up afterwards: an older backup has the old keys.

    Args:
        folder: Of the hub.
        key: Which key.
        operator: File of the operator's key, for the log's key; by default operator.key in the folder.
        ca: File with the certificates to trust, where the hub's is its own.
    """
    from fedrank.deploy.hub.keys import OPERATOR_FILE, WHAT, ask_rotation

    home = HubFolder(folder)
    settings, store = home.open()
    with contextlib.closing(store):
        ask_rotation(folder, store, settings.terms(store.name), WHAT[key], operator or folder / OPERATOR_FILE)
    if home.url_path("hub").exists():
        Operator(home, ca).ask("POST", "/v1/admin/renew")
        print(f"the {key} key was changed; the old one is over in {settings.overlap_days:g} days")
    else:
        print(f"the {key} key is changed when the hub starts")


@app.command
def backup(folder: Path = _HUB, /, *, out: Path) -> None:
    """Copy a hub into a new folder, of which restore makes a hub again; the hub may be running.

    The backup is as confidential as the hub: it holds the store, the tokens and the private keys. Of a hub on
    PostgreSQL it holds the files of the folder: pg_dump copies the database.

    Args:
        folder: Of the hub.
        out: The new folder, which must not exist.
    """
    for name in HubFolder(folder).back_up(out):
        print(out / name)
    if read_settings(HubFolder(folder).settings).database:
        print("The database is not in it: pg_dump --format=custom makes a copy of one moment.")


@app.command
def restore(backup: Path, /, *, out: Path, operator: Path | None = None, has_every_head: Switch = False) -> None:
    """Make a hub of a backup, in a new folder, after the hub itself was lost.

    Devices go on with it, whatever they saw since the backup: the public log says that the hub was put back, which they
    show. Tokens of the open epochs are void. Put a database back first (pg_restore). Never serve the lost hub again.
    Of the copy that the hub wrote until it was lost (copy_to), say --has-every-head: its log goes on as it is.

    Args:
        backup: Folder of the backup, or the copy.
        out: The new folder; one that exists has to be empty, such as a volume of a container.
        operator: File of the operator's key, operator.key, where the hub was made with one.
        has_every_head: It is the copy itself, no copy of it, as the hub left it; devices that saw more are lost.
    """
    when = HubFolder(backup).restore(out, operator, has_every_head)
    if when is None:
        print(f"{out}: goes on from the copy, which has every head that was shown")
        return
    print(f"{out}: put back at {datetime.fromtimestamp(when, UTC):%Y-%m-%d %H:%M:%S} UTC, as its log says")


@credential.command
def add(
    folder: Path, /, *, name: str, devices: int, days: int = 0, code_minutes: int = 0, as_json: AsJson = False
) -> None:
    """Make a credential and print its secret, which cannot be shown again; the hub may be running.

    Every enrolment counts against the cap, those of devices that left included.

    Args:
        folder: Of the hub.
        name: Name of the credential, such as app-eu.
        devices: Most devices that may enrol with it within its window.
        days: The window in days, today included; 0: of all time.
        code_minutes: Make it a credential for an app's back end: it enrols no device, but asks the hub (POST /v1/code)
            for codes, each good for one device and this number of minutes.
    """
    _, store = HubFolder(folder).open()
    with contextlib.closing(store):
        secret = Credentials(store).add(name, devices, days=days, code_minutes=code_minutes)
    if as_json:
        print_json({"name": name, "secret": secret, "devices": devices, "days": days, "code_minutes": code_minutes})
        return
    print(secret)


@credential.command(name="list")
def list_credentials(folder: Path, /, *, as_json: AsJson = False) -> None:
    """List the credentials, what each allows, and how much of it is used.

    Args:
        folder: Of the hub.
    """
    settings, store = HubFolder(folder).open(read_only=True)
    with contextlib.closing(store):
        found = Credentials(store).as_json()
    if as_json:
        print_json({"credentials": found, "open_enrolment": settings.open_enrolment})
        return
    for one in found:
        window = f" in {one['days']} days" if one["days"] else ""
        kind = ", codes" if one["codes"] else ""
        print(f"{one['name']}: {one['used']:,} of {one['devices']:,} devices{window}{kind}", end="")
        print(", revoked" if one["revoked"] else "")
    if settings.open_enrolment:
        print("enrolment.token: any number of devices (open_enrolment)")


@credential.command
def revoke(folder: Path, /, *, name: str, and_devices: Switch = False, ca: Path | None = None) -> None:
    """Revoke a credential: no device can enrol with it any more; the hub may be running.

    Args:
        folder: Of the hub.
        name: Name of the credential.
        and_devices: Remove the devices that enrolled with it too; the hub must be running.
        ca: File with the certificates to trust, where the hub's is its own.
    """
    home = HubFolder(folder)
    _, store = home.open()
    with contextlib.closing(store):
        there, members = Credentials(store).revoke(name), Credentials(store).members(name)
    print(f"{name}: {'no device enrols with it any more' if there else 'was revoked before'}")
    if and_devices:
        operator = Operator(home, ca)
        for number in members:
            operator.ask("DELETE", f"/v1/admin/device/{number}", ignore=("not-found",))
        print(f"{len(members):,} devices removed")
    elif members:
        print(f"{len(members):,} devices that enrolled with it go on; --and-devices removes them")


def log(hub: str = "hub", /, *, replay: bool = True, allow_http: Switch = False, as_json: AsJson = False) -> None:
    """Show a hub's public log of its terms and of every model that it handed out, and verify all of it.

    Exit status 1 if something in it is wrong.

    Args:
        hub: Folder of the hub, or its URL.
        replay: In a folder, make all models again from the reports and compare them with the log.
        allow_http: Plain http to another machine.
    """
    from fedrank.deploy.hub.audit import as_json as in_json
    from fedrank.deploy.hub.audit import audit_folder, audit_hub

    try:
        far = hub.startswith(("http://", "https://"))
        found = audit_hub(HttpClient(hub, allow_http=allow_http)) if far else audit_folder(Path(hub), replay=replay)
    except OSError as error:
        raise RunError(f"{hub}: no answer ({error}).") from error
    if as_json:
        print_json(in_json(found))
    else:
        print(f"key      {found.key}")
        print(f"entries  {found.size}, of them {found.models} models")
        print(f"hash     {found.root.hex()}")
        for when in found.put_back:
            print(f"put back {datetime.fromtimestamp(when, UTC):%Y-%m-%d %H:%M:%S} UTC, from a backup")
        if found.replayed is not None:
            print(f"reports  make {found.replayed} of these models again")
        if found.note:
            print(printable(found.note, lines=True), end="")
    if found.wrong:
        raise RunError(f"{hub}: {'; '.join(found.wrong)}.")
