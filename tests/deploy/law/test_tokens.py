"""A hub with tokens: what is sold, what is spent, and what survives."""

import asyncio
import contextlib
import sqlite3

import pytest
from hubs import make, opened, some_messages
from token_worlds import ADMIN, Buyer, token_app

from fedrank.core.errors import ConfigError, WireError
from fedrank.deploy.hub.store import StoreError
from fedrank.deploy.oblivious.tokens import TOKEN_BYTES, content_of, header_of, spending_number


@contextlib.asynccontextmanager
async def serving(home):
    app = token_app(home)
    hub = app._hub
    await hub.start()
    try:
        yield app
    finally:
        await hub.stop()


async def buyers(app, count):
    made = [Buyer(app) for _ in range(count)]
    for buyer in made:
        await buyer.enrol()
    return made


def test_a_token_is_spent_once_and_for_one_report(tmp_path):
    async def story():
        async with serving(make(tmp_path / "hub", tokens=2, cohort=2)) as app:
            first, second, third = await buyers(app, 3)
            token, other = await first.buy(0), await second.buy(0)
            one, two, three = some_messages(app._hub, 3)
            said = [await first.report(0, token, one), await first.report(0, token, one)]
            said += [await first.report(0, token, two), await third.report(0, token, two)]
            said += [await second.report(0, other, two)]
            await opened(app._hub, 1)
            said += [
                await first.report(0, token, one),
                await first.report(1, token, one),
                await third.report(1, other, two),
            ]
            last, fourth = await third.buy(0), Buyer(app)
            await fourth.enrol()
            said += [await third.report(1, last, three), await fourth.report(1, await fourth.buy(0), three)]
            await opened(app._hub, 2)
            said += [await first.report(2, token, one), await third.report(1, last, three)]
            return said

    said = asyncio.run(story())
    assert said == [
        (201, ""),
        (200, ""),
        (409, "conflict"),
        (409, "conflict"),
        (201, ""),
        (200, ""),
        (409, "spent"),
        (409, "spent"),
        (201, ""),
        (201, ""),
        (409, "wrong-epoch"),
        (200, ""),
    ]
    with sqlite3.connect(tmp_path / "hub" / "hub.db") as db:
        assert db.execute("SELECT round, count(*) FROM report GROUP BY round").fetchall() == [(0, 2), (1, 2)]


def test_spent_tokens_stay_spent_after_a_restart(tmp_path):
    home = make(tmp_path / "hub", tokens=3, cohort=1)

    async def begin():
        async with serving(home) as app:
            (buyer,) = await buyers(app, 1)
            token = await buyer.buy(0)
            message, *_ = some_messages(app._hub, 1)
            assert await buyer.report(0, token, message) == (201, "")
            await opened(app._hub, 1)
            return token, message

    async def go_on(token, message):
        async with serving(home) as app:
            buyer = Buyer(app)
            return [await buyer.report(round_, token, message) for round_ in (0, 1)]

    assert asyncio.run(go_on(*asyncio.run(begin()))) == [(200, ""), (409, "spent")]


def test_a_token_that_was_not_drawn_stays_spent_where_the_hub_dies_as_the_round_closes(tmp_path, monkeypatch):
    home = make(tmp_path / "hub", tokens=3, cohort=1, round_seconds=3600.0, deadline=3600.0)

    async def begin():
        async with serving(home) as app:
            hub = app._hub
            pairs = [(buyer, await buyer.buy(0)) for buyer in await buyers(app, 2)]

            def dies():
                raise SystemError("killed")

            monkeypatch.setattr(hub, "_apply", dies)  # the round has closed, and the lot has been drawn
            messages = some_messages(hub, 2)
            for (buyer, token), message in zip(pairs, messages, strict=True):
                assert await buyer.report(0, token, message) == (201, "")
            with pytest.raises(StoreError):
                await hub.close_round()
            return [token for _, token in pairs], messages

    async def go_on(tokens, messages):
        async with serving(home) as app:
            await opened(app._hub, 1)
            buyer = Buyer(app)
            return [await buyer.report(1, token, one) for token, one in zip(tokens, messages, strict=True)]

    assert asyncio.run(go_on(*asyncio.run(begin()))) == [(409, "spent")] * 2


def test_a_device_buys_one_token_an_epoch_and_a_lost_answer_is_given_again(tmp_path):
    home = make(tmp_path / "hub", tokens=1)

    async def story():
        async with serving(home) as app:
            (buyer,) = await buyers(app, 1)
            asked = [await buyer.begin(epoch) for epoch in (0, 1)]
            first = await buyer.buy(0, asked[0])
            app._issuer._kept.clear()
            assert await buyer.buy(0, asked[0]) == first
            again = await buyer.buy(0)
            assert (again.code, again.error) == (409, "other-purchase")
            await buyer.buy(1, asked[1])
            twice = await asyncio.gather(*(buyer.buy(0) for _ in range(5)))
            assert {got.error for got in twice} == {"other-purchase"}
            late = await buyer.ask("POST", "/v1/token/2", f"Bearer {buyer.token}", asked[0].request)
            assert (late.code, late.error) == (409, "wrong-epoch")
            return asked[0], first, buyer.token

    asked, first, token = asyncio.run(story())

    async def after_a_restart():
        async with serving(home) as app:
            buyer = Buyer(app)
            buyer.token = token
            other = await buyer.buy(0)
            return await buyer.buy(0, asked), other.error

    assert asyncio.run(after_a_restart()) == (first, "other-purchase")


def test_an_epoch_that_is_over_leaves_no_private_key_and_no_purchase(tmp_path):
    async def story():
        async with serving(make(tmp_path / "hub", tokens=1, cohort=1)) as app:
            (buyer,) = await buyers(app, 1)
            assert sorted(await buyer.keys()) == [0, 1]
            before = (await buyer.keys())[1]
            token = await buyer.buy(0)
            await buyer.report(0, token, some_messages(app._hub, 1)[0])
            await opened(app._hub, 1)
            keys = await buyer.keys()
            assert sorted(keys) == [1, 2] and keys[1] == before
            assert (await buyer.buy(1) is not None) and len(set(keys.values())) == 2

    asyncio.run(story())
    with sqlite3.connect(tmp_path / "hub" / "hub.db") as db:
        assert db.execute("SELECT epoch, private IS NULL FROM issuer").fetchall() == [(0, 1), (1, 0), (2, 0)]
        assert db.execute("SELECT epoch, device FROM purchase").fetchall() == [(1, 1)]
        ((number,),) = db.execute("SELECT device FROM report").fetchall()
    assert number > 2**40, "a report stands under its token, not under the device's number"


def test_forged_and_foreign_tokens_are_refused(tmp_path):
    async def story():
        async with (
            serving(make(tmp_path / "hub", tokens=1)) as app,
            serving(make(tmp_path / "other", tokens=1)) as other,
        ):
            (buyer,), (stranger,) = await buyers(app, 1), await buyers(other, 1)
            token, foreign, early = await buyer.buy(0), await stranger.buy(0), await buyer.buy(1)
            (message,) = some_messages(app._hub, 1)
            changed = [token[:at] + bytes([token[at] ^ 1]) + token[at + 1 :] for at in (0, 1, 2, 33, 34, 66, 98, 353)]
            for bad in (*changed, foreign, token[:-1], token + b"\0", bytes(TOKEN_BYTES)):
                assert (await buyer.report(0, bad, message))[0] == 401
            assert await buyer.report(0, early, message) == (409, "wrong-epoch")
            for header in (
                "",
                f"Bearer {buyer.token}",
                "PrivateToken",
                'PrivateToken token=""',
                "PrivateToken token=é",
            ):
                assert (await buyer.ask("POST", "/v1/report/0", header, message)).code == 401
            assert (await buyer.ask("GET", "/v1/model", None)).code == 200
            assert await buyer.report(0, token, message) == (201, "")
            assert app._hub.status()["reports"] == 1

    asyncio.run(story())


def test_only_a_device_buys_and_only_with_a_token_request(tmp_path):
    async def story():
        async with serving(make(tmp_path / "hub", tokens=1)) as app:
            (buyer,) = await buyers(app, 1)
            asked = await buyer.begin(0)
            assert (await buyer.ask("POST", "/v1/token/0", None, asked.request)).code == 401
            token = f"Bearer {buyer.token}"
            for body in (b"", asked.request[:-1], asked.request + b"\0", b"\0\1" + asked.request[2:], bytes(259)):
                assert (await buyer.ask("POST", "/v1/token/0", token, body)).code == 400
            beyond = asked.request[:3] + b"\xff" * 256
            assert (await buyer.ask("POST", "/v1/token/0", token, beyond)).code == 400
            for path in ("/v1/token/", "/v1/token/-1", "/v1/token/00", "/v1/token/x"):
                assert (await buyer.ask("POST", path, token, asked.request)).code == 400

    asyncio.run(story())


def test_the_issuer_cannot_tell_whose_token_it_is(tmp_path):
    """Every token could come of every purchase: for each pair there is one blinding between them."""

    async def story():
        async with serving(make(tmp_path / "hub", tokens=1)) as app:
            made = await buyers(app, 4)
            asked = [await buyer.begin(0) for buyer in made]
            tokens = [await buyer.buy(0, one) for buyer, one in zip(made, asked, strict=True)]
            _, signer = app._issuer._open[0]
            n = signer.public.n
            for token in tokens:
                signature = int.from_bytes(token[-256:])
                for one in asked:
                    blinded = int.from_bytes(one.request[3:])
                    signed = int.from_bytes(signer.sign(one.request[3:]))
                    r = signed * pow(signature, -1, n) % n
                    assert blinded == pow(signature * r, 65537, n)
            assert len({spending_number(token) for token in tokens}) == len({one.inverse for one in asked}) == 4
            assert all(len(header_of(token)) == len(header_of(tokens[0])) for token in tokens)
            assert len({content_of(token)[34:] for token in tokens}) == 1, "all but the nonce is alike for everybody"

    asyncio.run(story())


def test_a_full_disk_sells_nothing_and_loses_nothing(tmp_path, monkeypatch):
    async def story():
        async with serving(make(tmp_path / "hub", tokens=1)) as app:
            (buyer,) = await buyers(app, 1)
            asked = await buyer.begin(0)
            with monkeypatch.context() as patch:

                def full(*_):
                    raise sqlite3.OperationalError("database or disk is full")

                patch.setattr("fedrank.deploy.hub.store.transaction", full)
                got = await buyer.buy(0, asked)
                assert (got.code, got.error) == (503, "unavailable")
                with pytest.raises(StoreError):
                    app._issuer.prepare(7)
            assert len(await buyer.buy(0, asked)) == TOKEN_BYTES

    asyncio.run(story())


def test_a_wrong_answer_is_no_token(tmp_path):
    async def story():
        async with serving(make(tmp_path / "hub", tokens=1)) as app:
            (buyer,) = await buyers(app, 1)
            return await buyer.begin(0), app._issuer._open[0][1].sign((1).to_bytes(256))

    asked, wrong = asyncio.run(story())
    for answer in (wrong, b"", bytes(256)):
        with pytest.raises(WireError):
            asked.token(answer)


@pytest.mark.parametrize("version", [1, 2])
def test_keys_and_purchases_of_an_earlier_version_go_on(tmp_path, version):
    """They were in a file of their own; a device asks again for what it bought before."""
    home = make(tmp_path / "hub", tokens=1)

    async def before():
        async with serving(home) as app:
            (buyer,) = await buyers(app, 1)
            asked = await buyer.begin(0)
            return buyer.token, asked, await buyer.buy(0, asked), await buyer.keys()

    token, asked, bought, keys = asyncio.run(before())
    with contextlib.closing(sqlite3.connect(home.path / "tokens.db", isolation_level=None)) as old:
        old.execute("ATTACH ? AS now", (str(home.log),))
        for table in ("issuer", "purchase"):
            old.execute(f"CREATE TABLE {table} AS SELECT * FROM now.{table}")
            old.execute(f"DELETE FROM now.{table}")
        if version == 2:
            old.execute("CREATE TABLE hub AS SELECT name FROM now.hub")

    async def after():
        async with serving(home) as app:
            buyer = Buyer(app)
            buyer.token = token
            other = await buyer.buy(0)
            return await buyer.buy(0, asked), other.error, await buyer.keys()

    assert "tokens.db" in home.back_up(tmp_path / "copy")
    assert asyncio.run(after()) == (bought, "other-purchase", keys)
    assert [path.name for path in home.path.glob("tokens.db*")] == ["tokens.db.version-2"]


def test_a_file_of_tokens_belongs_to_one_hub(tmp_path):
    """With the purchases of another hub, whose devices have the same numbers, devices would be refused."""
    home = make(tmp_path / "hub", tokens=1)
    with contextlib.closing(sqlite3.connect(home.path / "tokens.db", isolation_level=None)) as old:
        for columns in ("hub (name)", "issuer (epoch, public, private)", "purchase (epoch, device, digest)"):
            old.execute(f"CREATE TABLE {columns}")
        old.execute("INSERT INTO hub VALUES (?)", ("ab" * 16,))
    with pytest.raises(StoreError, match="belongs to the hub abababab"):
        home.open()
    assert (home.path / "tokens.db").exists()


def test_settings_of_tokens_are_checked(tmp_path):
    for wrong in ({"tokens": -1}, {"batch": 5}, {"tokens": 1, "batch": -1}, {"tokens": 1, "gateway": "ab"}):
        with pytest.raises(ConfigError):
            make(tmp_path / "hub", **wrong)
    with pytest.raises(ConfigError, match="coordinator"):
        make(tmp_path / "hub", tokens=1, batch=2, relay=True)
    home = make(tmp_path / "hub", tokens=1, batch=5)
    settings, store = home.open()
    store.close()
    assert len(settings.gateway) == 64 and (home.path / "gateway.key").stat().st_mode & 0o077 == 0
    make(tmp_path / "hub", tokens=1, batch=5)  # the same again changes nothing
    assert home.gateway().public.hex() == settings.gateway
    assert settings.terms().as_json()["wire"] == 2
    with pytest.raises(ConfigError, match="tokens"):
        make(tmp_path / "hub", tokens=2, batch=5)
    assert ADMIN
