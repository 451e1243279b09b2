"""Devices enrol with credentials that have caps, and with codes that are good once."""

import asyncio
import json
import sqlite3
import types

import pytest
from hubs import make, running

from fedrank.core.errors import ConfigError
from fedrank.deploy.hub import admission as module
from fedrank.deploy.hub.admission import CODE, SECRET, Credentials, NotAdmittedError


def changed(home, do):
    """What a function returns of the credentials of a hub's log, opened by another than the hub."""
    _, store = home.open()
    try:
        return do(Credentials(store))
    finally:
        store.close()


async def refused(hub, ticket):
    """Reason why a device may not enrol with a ticket; empty if it may."""
    try:
        await hub.enrol(ticket)
    except NotAdmittedError as error:
        return error.reason
    return ""


def test_a_cap_counts_devices_that_left_as_well(tmp_path):
    home = make(tmp_path / "hub")

    async def story():
        async with running(home) as hub:
            secret = changed(home, lambda c: c.add("app-eu", 3))  # while the hub runs
            for _ in range(3):
                token = await hub.enrol(secret)
                assert await hub.leave(hub.device_of(token))
            return await refused(hub, secret), await refused(hub, None), len(hub.row.admission.devices)

    assert asyncio.run(story()) == ("enrolment-full", "", 1)

    async def after_a_restart():
        async with running(home) as hub:
            return hub.status()["credentials"]

    (shown,) = asyncio.run(after_a_restart())
    assert shown == {"name": "app-eu", "devices": 3, "used": 3, "days": 0, "codes": False, "revoked": False}


def test_a_hub_knows_which_secrets_and_codes_are_good_now(tmp_path):
    home = make(tmp_path / "hub")

    async def story():
        async with running(home) as hub:
            secret = changed(home, lambda c: c.add("app", 3))  # while the hub runs
            back_end = changed(home, lambda c: c.add("back-end", 3, code_minutes=5))
            code, _ = await hub.code(back_end)
            assert [hub.knows(one) for one in (secret, back_end, code)] == [True] * 3
            assert not hub.knows(secret[:-1]) and not hub.knows("code.x") and not hub.knows(SECRET)
            await hub.enrol(code)
            changed(home, lambda c: c.revoke("app"))
            return [hub.knows(one) for one in (secret, back_end, code)]

    assert asyncio.run(story()) == [False, True, False]


def test_a_code_that_was_made_while_the_clock_was_ahead_is_not_good_for_longer(tmp_path, monkeypatch):
    home, now = make(tmp_path / "hub"), 1.75e9
    monkeypatch.setattr(module, "time", types.SimpleNamespace(time=lambda: now))

    async def story():
        nonlocal now
        async with running(home) as hub:
            back_end = changed(home, lambda c: c.add("back-end", 3, code_minutes=5))
            now += 3e7  # a year ahead
            ahead, _ = await hub.code(back_end)
            now -= 3e7
            code, _ = await hub.code(back_end)
            known = [hub.knows(ahead), hub.knows(code)]
            now += 301
            return known, hub.knows(code)

    assert asyncio.run(story()) == ([False, True], False)


def test_a_batch_that_comes_at_once_is_admitted_up_to_the_cap(tmp_path):
    home = make(tmp_path / "hub")

    async def story():
        async with running(home) as hub:
            secret = changed(home, lambda c: c.add("app", 7))
            outcomes = await asyncio.gather(*(refused(hub, secret) for _ in range(40)))
            return outcomes.count(""), outcomes.count("enrolment-full"), len(hub.row.admission.devices)

    assert asyncio.run(story()) == (7, 33, 7)


def test_a_window_forgets_what_is_older(tmp_path, monkeypatch):
    home, day = make(tmp_path / "hub"), [20_000]
    monkeypatch.setattr(module, "today", lambda: day[0])
    monkeypatch.setattr("fedrank.deploy.hub.store.time.time", lambda: day[0] * 86400.0)

    async def story():
        out = []
        async with running(home) as hub:
            secret = changed(home, lambda c: c.add("app", 2, days=7))
            for day[0], wanted in (
                (20_000, ""),
                (20_003, ""),
                (20_006, "enrolment-full"),
                (20_007, ""),
                (20_009, "enrolment-full"),
                (20_010, ""),
            ):
                out.append((await refused(hub, secret)) == wanted)
        return out

    # Two a week: that of day 0 counts until day 6, that of day 3 until day 9.
    assert asyncio.run(story()) == [True] * 6


def test_nobody_enrols_with_what_is_unknown_or_revoked(tmp_path):
    home = make(tmp_path / "hub")

    async def story():
        async with running(home) as hub:
            secret = changed(home, lambda c: c.add("app", 5))
            token = await hub.enrol(secret)
            assert changed(home, lambda c: c.revoke("app")) and not changed(home, lambda c: c.revoke("app"))
            return (
                await refused(hub, secret),
                await refused(hub, SECRET + "x" * 40),
                await refused(hub, CODE + "x" * 40),
                hub.device_of(token),
                changed(home, lambda c: c.members("app")),
            )

    assert asyncio.run(story()) == ("unauthorised", "unauthorised", "unauthorised", 1, [1])


def test_a_code_is_good_once_and_for_its_time(tmp_path, monkeypatch):
    home = make(tmp_path / "hub")

    async def story():
        async with running(home) as hub:
            secret = changed(home, lambda c: c.add("back end", 3, code_minutes=10))
            assert await refused(hub, secret) == "unauthorised"  # it enrols nobody itself
            assert await hub.code(SECRET + "wrong") is None
            codes = [(await hub.code(secret))[0] for _ in range(5)]
            both = await asyncio.gather(refused(hub, codes[0]), refused(hub, codes[0]))  # in one batch, perhaps
            again = await refused(hub, codes[0])
            late, now = codes[1], module.time.time()
            monkeypatch.setattr(module.time, "time", lambda: now + 601)
            too_late = await refused(hub, late)
            monkeypatch.undo()
            rest = [await refused(hub, code) for code in codes[2:]]
            return sorted(both), again, too_late, rest

    both, again, too_late, rest = asyncio.run(story())
    assert both == ["", "unauthorised"] and again == too_late == "unauthorised"
    assert rest == ["", "", "enrolment-full"]  # three in all


def test_the_log_has_no_secret_and_does_not_say_which_code_a_device_had(tmp_path):
    home = make(tmp_path / "hub")

    async def story():
        async with running(home) as hub:
            secret = changed(home, lambda c: c.add("back end", 3, code_minutes=10))
            code, _ = await hub.code(secret)
            await hub.enrol(code)
            return secret, code

    secret, code = asyncio.run(story())
    with sqlite3.connect(home.log) as log:
        text = "\n".join(log.iterdump())
        assert log.execute("SELECT count(*) FROM code").fetchone() == (0,)
    for shown in (secret, code, module.key_of(code).hex(), module.key_of(code).hex().upper()):
        assert shown not in text
    assert secret.startswith(SECRET) and code.startswith(CODE)


@pytest.mark.parametrize(
    "wrong, said",
    [
        ({"name": "", "devices": 1}, "name"),
        ({"name": "a\nb", "devices": 1}, "name"),
        ({"name": "a", "devices": 0}, "devices"),
        ({"name": "a", "devices": 1, "days": -1}, "days"),
        ({"name": "taken", "devices": 1}, "taken"),
    ],
)
def test_a_credential_that_makes_no_sense_is_refused(tmp_path, wrong, said):
    home = make(tmp_path / "hub")
    changed(home, lambda c: c.add("taken", 1))
    with pytest.raises(ConfigError, match=said):
        changed(home, lambda c: c.add(**wrong))
    with pytest.raises(ConfigError, match="nobody"):
        changed(home, lambda c: c.revoke("nobody"))


def test_credentials_at_the_command_line(tmp_path, capsys):
    from fedrank.cli.main import call

    home = make(tmp_path / "hub")
    assert call(["hub", "credential", "add", str(home.path), "--name", "app-eu", "--devices", "1000"]) == 0
    secret = capsys.readouterr().out.strip()
    assert secret.startswith(SECRET)
    call(["hub", "credential", "list", str(home.path), "--json"])
    (shown,) = json.loads(capsys.readouterr().out)["credentials"]
    assert (shown["name"], shown["devices"], shown["used"]) == ("app-eu", 1000, 0)
    call(["hub", "credential", "revoke", str(home.path), "--name", "app-eu"])
    capsys.readouterr()
    call(["hub", "credential", "list", str(home.path)])
    assert "app-eu: 0 of 1,000 devices, revoked" in capsys.readouterr().out
