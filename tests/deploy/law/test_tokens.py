"""A hub with tokens: what is sold and when, what a token draws, what is spent, and what survives."""

import asyncio
import collections
import contextlib
import hashlib
import sqlite3

import pytest
from hubs import make, opened, some_messages
from scipy import stats
from token_worlds import ADMIN, Buyer, next_round, round_of, token_app

from fedrank.core.errors import ConfigError, RunError, WireError
from fedrank.deploy.draws import CHECK, SEED, Beacon, drawn, turn, word
from fedrank.deploy.hub.audit import audit_folder
from fedrank.deploy.hub.keys import read_private
from fedrank.deploy.hub.status import page
from fedrank.deploy.hub.store import StoreError
from fedrank.deploy.hub.tokens import Issuer
from fedrank.deploy.log.tree import BEACON, MODEL, OFFER, REPORTS, beacon_entry, numbered_hash, offer_entry
from fedrank.deploy.oblivious.encapsulation import public_key_of
from fedrank.deploy.oblivious.tokens import (
    TOKEN_BYTES,
    content_of,
    draw_key,
    header_of,
    parts_of,
    spending_number,
)

LONG = dict(round_seconds=3600.0, deadline=3600.0)


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


async def bought(app, count, epoch=1):
    """Buyers with a token of the next epoch, which has begun when this returns."""
    made = await buyers(app, count)
    tokens = [await one.buy(epoch) for one in made]
    while app._hub.terms.epoch_of(app._hub.view.round) < epoch:
        await next_round(app._hub)
    return made, tokens


def entries(home, *kinds):
    with contextlib.closing(sqlite3.connect(home.path / "hub.db")) as db:
        rows = db.execute("SELECT kind, data FROM entry ORDER BY number").fetchall()
    return [bytes([kind]) + data for kind, data in rows if kind in kinds]


# ------------------------------------------------------------------------------------------------ what counts once


def test_a_token_counts_once_in_the_round_that_it_draws(tmp_path):
    async def story():
        async with serving(make(tmp_path / "hub", tokens=3, **LONG)) as app:
            hub = app._hub
            made, tokens = await bought(app, 40)
            turns = {token: round_of(hub, token) for token in tokens}
            assert len(set(turns.values())) > 1
            said = []
            for number in (1, 2, 3):
                for buyer, token, one in zip(made, tokens, some_messages(hub, 40), strict=True):
                    said.append((turns[token] == number, *await buyer.report(number, token, one)))
                mine = next(token for token in tokens if turns[token] == number)
                again = [await made[0].report(number, mine, one) for one in some_messages(hub, 40)]
                assert collections.Counter(again) == {(200, ""): 1, (409, "conflict"): 39}
                await next_round(hub)
            assert {(right, code) for right, code, _ in said} == {(True, 201), (False, 409)}
            assert {why for right, _, why in said if not right} == {"not-due"}
            late = await made[0].report(4, tokens[0], some_messages(hub, 1)[0])
            return late, hub.store.query("SELECT count(*), count(DISTINCT device) FROM report")

    assert asyncio.run(story()) == ((409, "wrong-epoch"), [(40, 40)])
    assert not audit_folder(tmp_path / "hub").wrong
    with sqlite3.connect(tmp_path / "hub" / "hub.db") as db:  # out of turn, and others than it said
        db.execute("UPDATE report SET round = 5 - round WHERE round IN (2, 3)")
    said = audit_folder(tmp_path / "hub").wrong
    assert any("of round 3 are others" in one for one in said)
    assert any("round 2 has reports with" in one for one in said)


def test_spent_tokens_stay_spent_after_a_restart(tmp_path):
    home = make(tmp_path / "hub", tokens=1, **LONG)

    async def begin():
        async with serving(home) as app:
            (buyer,), (token,) = await bought(app, 1)
            one, other = some_messages(app._hub, 2)
            assert await buyer.report(1, token, one) == (201, "")
            return token, one, other

    async def go_on(token, one, other):
        async with serving(home) as app:
            buyer = Buyer(app)
            return [await buyer.report(1, token, message) for message in (one, other)]

    assert asyncio.run(go_on(*asyncio.run(begin()))) == [(200, ""), (409, "conflict")]


def test_a_token_that_was_not_used_stays_spent_where_the_hub_dies_as_the_round_closes(tmp_path, monkeypatch):
    home = make(tmp_path / "hub", tokens=1, cohort=1, **LONG)

    async def begin():
        async with serving(home) as app:
            hub = app._hub
            made, tokens = await bought(app, 2)

            def dies():
                raise SystemError("killed")

            monkeypatch.setattr(hub, "_apply", dies)  # the round has closed, and the lot has been drawn
            messages = some_messages(hub, 2)
            for buyer, token, one in zip(made, tokens, messages, strict=True):
                assert await buyer.report(1, token, one) == (201, "")
            with pytest.raises(StoreError):
                await hub.close_round()
            return tokens, messages

    async def go_on(tokens, messages):
        async with serving(home) as app:
            await opened(app._hub, 2)
            buyer = Buyer(app)
            said = {await buyer.report(1, token, one) for token, one in zip(tokens, messages, strict=True)}
            return said, app._hub.store.query("SELECT count(*), sum(length(message) > 0) FROM report")

    said, counted = asyncio.run(go_on(*asyncio.run(begin())))
    assert said <= {(200, ""), (409, "stale-round")} and counted == [(2, 1)]


# ----------------------------------------------------------------------------------- what a token draws, and when


def test_the_tokens_of_an_epoch_spread_evenly_over_its_rounds():
    beacon = bytes(32)
    counts = collections.Counter(turn(draw_key(number), beacon, 7) for number in range(70_000))
    assert sorted(counts) == list(range(7)) and stats.chisquare(list(counts.values())).pvalue > 1e-6
    assert {turn(draw_key(number), beacon, 1) for number in range(100)} == {0}


def test_a_tokens_seed_and_whether_it_checks_are_drawn_by_its_content(tmp_path):
    settings = dict(mechanism="piecewise", epsilon=1.0, drawn_seeds=True, checks=0.5, due=0.7, tokens=1, **LONG)

    async def story():
        async with serving(make(tmp_path / "hub", **settings)) as app:
            hub = app._hub
            made, _ = await bought(app, 90)  # without one of four kinds once in a million runs
            await next_round(hub)  # the newest model is the best one until another is there
            more = [await one.buy(3) for one in made]
            await next_round(hub)
            beacon, found = hub.row.issuer.beacon(3).value, collections.Counter()
            for buyer, token in zip(made, more, strict=True):
                key = draw_key(spending_number(token))
                right = word(key, SEED, beacon)
                layout = hub.terms.reply
                wrong = await buyer.report(3, token, layout.encode(layout.message(seed=right ^ 1, report=0)))
                assert wrong == (409, "not-due")
                due = drawn(key, b"fedrank/due", beacon, 0.7)
                said = await buyer.report(3, token, layout.encode(layout.message(seed=right, report=0)))
                assert said == ((201, "") if due else (409, "not-due"))
                found[due, drawn(key, CHECK, beacon, 0.5)] += 1
            assert min(found.values()) >= 1 and len(found) == 4

    asyncio.run(story())


def test_what_decides_is_not_known_while_tokens_are_sold(tmp_path):
    """The secret is committed to before the first sale and shown after the last; the reports are logged before it."""
    home = make(tmp_path / "hub", tokens=1, cohort=2, **LONG)

    async def story():
        async with serving(home) as app:
            hub = app._hub
            made = await buyers(app, 3)
            epoch, offer = await made[0].offer()
            _, commitment = parts_of(offer)
            assert epoch == 1 and offer_entry(1, offer) in entries(home, OFFER)
            ((secret,),) = hub.store.query("SELECT secret FROM issuer WHERE epoch = 1")
            assert hashlib.sha256(secret).digest() == commitment
            tokens = [await one.buy(1) for one in made]
            said = (await made[0].ask("GET", "/v1/tokens")).json
            assert "beacon" not in said and not entries(home, REPORTS, BEACON)
            await next_round(hub)
            for number in (1, 2):
                for buyer, token, one in zip(made, tokens, some_messages(hub, 3, number), strict=True):
                    assert await buyer.report(number, token, one) == (201, "")
                tokens = [await one.buy(number + 1) for one in made]
                await next_round(hub)
            said = (await made[0].ask("GET", "/v1/tokens")).json["beacon"]
            beacon = Beacon.from_json(said)
            assert beacon.reports == numbered_hash(hub.store.reports(2)) and beacon.sales == 3
            assert len(hub.store.reports(2)) == 2 and len(hub.store.reporters(2)) == 3  # those that are used
            assert beacon.value == hashlib.sha256(b"fedrank/beacon" + beacon.secret + beacon.reports).digest()
            assert beacon_entry(3, beacon.value, 3) in entries(home, BEACON)
            assert Beacon.from_json(beacon.as_json()) == beacon

    asyncio.run(story())
    order = [entry for entry in entries(home, MODEL, REPORTS, BEACON)]
    for number in (0, 1, 2):  # the reports of a round, then the model of the next, then what it draws by
        places = [i for i, entry in enumerate(order) if int.from_bytes(entry[1:5]) == number + (entry[0] != REPORTS)]
        assert [order[i][0] for i in places] == [REPORTS, MODEL, BEACON], number


def test_no_token_is_sold_for_an_epoch_that_has_begun_or_is_about_to(tmp_path, monkeypatch):
    """Late purchase: whoever could buy after the beacon is known would look for a nonce that draws what suits."""
    home = make(tmp_path / "hub", tokens=2, **LONG)

    async def story():
        async with serving(home) as app:
            hub = app._hub
            early, late, again = await buyers(app, 3)
            asked = await again.begin(1)
            first = await again.buy(1, asked)
            await early.buy(1)
            closing = asyncio.Event()
            settle = Issuer.settle

            def waits(self, number):  # the last round of the epoch before has closed, no model is made yet
                loop.call_soon_threadsafe(closing.set)
                assert go_on.wait(10)
                settle(self, number)

            import threading

            go_on, loop = threading.Event(), asyncio.get_running_loop()
            with monkeypatch.context() as patch:
                patch.setattr(Issuer, "settle", waits)
                closed = asyncio.create_task(hub.close_round(empty=True))
                await closing.wait()
                buys = asyncio.create_task(late.buy(1))
                await asyncio.sleep(0.05)
                assert not hub.store.reader().issuer_keys()[0][4], "nothing is drawn yet"
                go_on.set()
                await closed
            assert (await buys).error == "wrong-epoch"
            await opened(hub, 1)
            assert (await late.buy(1)).error == "wrong-epoch"
            app._issuer._kept.clear()
            assert await again.buy(1, asked) == first, "an answer that was lost is given again"
            assert (await again.buy(1)).error == "other-purchase"
            ((sales,),) = hub.store.query("SELECT sales FROM issuer WHERE epoch = 1")
            assert sales == 2
            assert len(await late.buy(2)) == TOKEN_BYTES
            await next_round(hub)
            assert len(await early.buy(2)) == TOKEN_BYTES, "in any round of the epoch before"

    asyncio.run(story())


def test_a_buyer_who_tries_many_nonces_gets_one_drawn_at_random(tmp_path):
    """Grinding, before and after: against a beacon that is known it works, against one that is not yet it does not."""

    def best_of(beacon, nonces):  # a liar wants the smallest seed, say
        return min(nonces, key=lambda nonce: word(nonce, SEED, beacon))

    secret, reports, least, ground = b"s" * 32, b"r" * 32, 2.0**32 / 100, {True: 0, False: 0}
    for trial in range(200):
        nonces = [hashlib.sha256(b"%d %d" % (trial, n)).digest()[:8] for n in range(1000)]
        actual = Beacon(secret, hashlib.sha256(reports + b"%d" % trial).digest(), 1).value
        guess = Beacon(b"?" * 32, bytes(32), 1).value  # all that a buyer can do before the secret is shown
        for known in (True, False):
            ground[known] += word(best_of(actual if known else guess, nonces), SEED, actual) < least
    assert ground[True] == 200, "the attack, against a beacon that is known when the token is bought"
    assert stats.binomtest(ground[False], 200, 0.01).pvalue > 1e-3, "chance, against one that is made later"


def test_an_epoch_with_too_few_sales_is_void(tmp_path):
    async def story():
        async with serving(make(tmp_path / "hub", tokens=1, least_sales=3, **LONG)) as app:
            hub = app._hub
            made, tokens = await bought(app, 2)
            (one, _) = some_messages(hub, 2)
            told = app._numbers()
            assert (told["sales"], told["least_sales"], told["void"]) == (2, 3, True)
            assert "least_sales = 3" in page(told, {})
            assert "beacon" not in (await made[0].ask("GET", "/v1/tokens")).json
            assert await made[0].report(1, tokens[0], one) == (409, "not-due")
            made += await buyers(app, 1)
            tokens = [await buyer.buy(2) for buyer in made]
            await next_round(hub)
            assert await made[0].report(2, tokens[0], one) == (201, "")
            told = app._numbers()
            assert (told["sales"], told["void"]) == (3, False) and "least_sales = 3" not in page(told, {})

    asyncio.run(story())


def test_a_signature_that_is_not_below_the_modulus_is_none(tmp_path):
    """Malleability: the same content with another signature is the same token, and a larger number is no signature."""

    async def story():
        async with serving(make(tmp_path / "hub", tokens=1, **LONG)) as app:
            hub = app._hub
            n = app._issuer._signers[1].public.n
            (buyer,), (token,) = await bought(app, 1)
            signature = int.from_bytes(token[-256:])
            above = [signature + k * n for k in range(1, 3) if signature + k * n < 2**2048]
            forged = [token[:-256] + one.to_bytes(256) for one in (*above, n - signature)]
            one, other = some_messages(hub, 2)
            said = {await buyer.report(1, bad, one) for bad in forged}
            assert said == {(401, "unauthorised")}
            assert await buyer.report(1, token, one) == (201, "")
            # Another signature of the same content, as only the holder of the key could make it.
            from cryptography.hazmat.primitives import hashes
            from cryptography.hazmat.primitives.asymmetric import padding
            from cryptography.hazmat.primitives.serialization import load_der_private_key

            ((private,),) = hub.store.query("SELECT private FROM issuer WHERE epoch = 1")
            pss = padding.PSS(padding.MGF1(hashes.SHA384()), 48)
            second = token[:-256] + load_der_private_key(private, None).sign(token[:-256], pss, hashes.SHA384())
            assert second != token and spending_number(second) == spending_number(token)
            assert await buyer.report(1, second, one) == (200, "")
            assert await buyer.report(1, second, other) == (409, "conflict")

    asyncio.run(story())


# ------------------------------------------------------------------------------------------ what is sold, to whom


def test_a_device_buys_one_token_an_epoch_and_a_lost_answer_is_given_again(tmp_path):
    home = make(tmp_path / "hub", tokens=1)

    async def story():
        async with serving(home) as app:
            (buyer,) = await buyers(app, 1)
            asked = await buyer.begin(1)
            first = await buyer.buy(1, asked)
            app._issuer._kept.clear()
            assert await buyer.buy(1, asked) == first
            again = await buyer.buy(1)
            assert (again.code, again.error) == (409, "other-purchase")
            twice = await asyncio.gather(*(buyer.buy(1) for _ in range(5)))
            assert {got.error for got in twice} == {"other-purchase"}
            for epoch in (0, 2):
                other = await buyer.ask("POST", f"/v1/token/{epoch}", f"Bearer {buyer.token}", asked.request)
                assert (other.code, other.error) == (409, "wrong-epoch")
            return asked, first, buyer.token

    asked, first, token = asyncio.run(story())

    async def after_a_restart():
        async with serving(home) as app:
            buyer = Buyer(app)
            buyer.token = token
            other = await buyer.buy(1)
            return await buyer.buy(1, asked), other.error

    assert asyncio.run(after_a_restart()) == (first, "other-purchase")


def test_an_epoch_that_is_over_leaves_no_private_key_and_no_purchase(tmp_path):
    async def story():
        async with serving(make(tmp_path / "hub", tokens=1)) as app:
            (buyer,), (token,) = await bought(app, 1)
            epoch, offer = await buyer.offer()
            await buyer.report(1, token, some_messages(app._hub, 1)[0])
            assert await buyer.buy(2) is not None
            await next_round(app._hub)
            later, other = await buyer.offer()
            assert (epoch, later) == (2, 3) and offer != other

    asyncio.run(story())
    with sqlite3.connect(tmp_path / "hub" / "hub.db") as db:
        assert db.execute("SELECT epoch, private IS NULL FROM issuer").fetchall() == [(1, 1), (2, 0), (3, 0)]
        assert db.execute("SELECT epoch, device FROM purchase").fetchall() == [(2, 1)]
        ((number,),) = db.execute("SELECT device FROM report").fetchall()
    assert number > 2**40, "a report stands under its token, not under the device's number"


def test_forged_and_foreign_tokens_are_refused(tmp_path):
    async def story():
        async with (
            serving(make(tmp_path / "hub", tokens=1)) as app,
            serving(make(tmp_path / "other", tokens=1)) as other,
        ):
            (buyer,), (token,) = await bought(app, 1)
            _, (foreign,) = await bought(other, 1)
            early = await buyer.buy(2)
            (one,) = some_messages(app._hub, 1)
            changed = [token[:at] + bytes([token[at] ^ 1]) + token[at + 1 :] for at in (0, 1, 2, 33, 34, 66, 98, 353)]
            for bad in (*changed, foreign, token[:-1], token + b"\0", bytes(TOKEN_BYTES)):
                assert (await buyer.report(1, bad, one))[0] == 401
            assert await buyer.report(1, early, one) == (409, "wrong-epoch")
            for header in (
                "",
                f"Bearer {buyer.token}",
                "PrivateToken",
                'PrivateToken token=""',
                "PrivateToken token=é",
            ):
                assert (await buyer.ask("POST", "/v1/report/1", header, one)).code == 401
            assert (await buyer.ask("GET", "/v1/model", None)).code == 200
            assert await buyer.report(1, token, one) == (201, "")
            assert app._hub.status()["reports"] == 1

    asyncio.run(story())


def test_only_a_device_buys_and_only_with_a_token_request(tmp_path):
    async def story():
        async with serving(make(tmp_path / "hub", tokens=1)) as app:
            (buyer,) = await buyers(app, 1)
            asked = await buyer.begin(1)
            assert (await buyer.ask("POST", "/v1/token/1", None, asked.request)).code == 401
            token = f"Bearer {buyer.token}"
            for body in (b"", asked.request[:-1], asked.request + b"\0", b"\0\1" + asked.request[2:], bytes(259)):
                assert (await buyer.ask("POST", "/v1/token/1", token, body)).code == 400
            beyond = asked.request[:3] + b"\xff" * 256
            assert (await buyer.ask("POST", "/v1/token/1", token, beyond)).code == 400
            for path in ("/v1/token/", "/v1/token/-1", "/v1/token/00", "/v1/token/x"):
                assert (await buyer.ask("POST", path, token, asked.request)).code == 400

    asyncio.run(story())


def test_the_issuer_cannot_tell_whose_token_it_is(tmp_path):
    """Every token could come of every purchase: for each pair there is one blinding between them."""

    async def story():
        async with serving(make(tmp_path / "hub", tokens=1)) as app:
            made = await buyers(app, 4)
            asked = [await buyer.begin(1) for buyer in made]
            tokens = [await buyer.buy(1, one) for buyer, one in zip(made, asked, strict=True)]
            signer = app._issuer._signers[1]
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
            asked = await buyer.begin(1)
            with monkeypatch.context() as patch:

                def full(*_):
                    raise sqlite3.OperationalError("database or disk is full")

                patch.setattr("fedrank.deploy.hub.store.transaction", full)
                got = await buyer.buy(1, asked)
                assert (got.code, got.error) == (503, "unavailable")
                with pytest.raises(StoreError):
                    app._issuer.prepare(7)
            assert len(await buyer.buy(1, asked)) == TOKEN_BYTES

    asyncio.run(story())


def test_a_wrong_answer_is_no_token(tmp_path):
    async def story():
        async with serving(make(tmp_path / "hub", tokens=1)) as app:
            (buyer,) = await buyers(app, 1)
            return await buyer.begin(1), app._issuer._signers[1].sign((1).to_bytes(256))

    asked, wrong = asyncio.run(story())
    for answer in (wrong, b"", bytes(256)):
        with pytest.raises(WireError):
            asked.token(answer)


def test_a_hub_that_sold_tokens_for_the_running_epoch_is_not_served(tmp_path):
    """Its devices agreed to that, and its terms cannot change."""
    home = make(tmp_path / "hub", tokens=1)
    with sqlite3.connect(home.log) as db:
        db.execute("""UPDATE hub SET settings = replace(settings, '"wire": 3', '"wire": 2')""")
    with pytest.raises(RunError, match="earlier versions"):
        home.open()


def test_settings_of_tokens_are_checked(tmp_path):
    for wrong in (
        {"tokens": -1},
        {"batch": 5},
        {"tokens": 1, "batch": -1},
        {"tokens": 1, "gateway": "ab"},
        {"least_sales": 5},
        {"tokens": 1, "least_sales": 0},
    ):
        with pytest.raises(ConfigError):
            make(tmp_path / "hub", **wrong)
    home = make(tmp_path / "hub", tokens=1, batch=5)
    settings, store = home.open()
    store.close()
    assert len(settings.gateway) == 64 and (home.path / "gateway.key").stat().st_mode & 0o077 == 0
    make(tmp_path / "hub", tokens=1, batch=5)  # the same again changes nothing
    assert public_key_of(read_private(home.path / "gateway.key")).hex() == settings.gateway
    assert settings.terms().as_json()["wire"] == 3
    with pytest.raises(ConfigError, match="tokens"):
        make(tmp_path / "hub", tokens=2, batch=5)
    assert ADMIN
