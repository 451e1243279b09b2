"""The hub's rounds: what counts, what does not, and what survives."""

import asyncio
import dataclasses
import re
import sqlite3
from pathlib import Path

import numpy as np
import pytest
from hub_apps import served
from hub_worlds import play
from hubs import enrolled, make, opened, running, some_messages, trial_settings

import fedrank
from fedrank.core.errors import ConfigError, RunError
from fedrank.core.privacy_report import LIFETIME_EPSILON, MOST_EPSILON, MOST_SEARCH_EPSILON
from fedrank.deploy.checkpoints import Checkpoints
from fedrank.deploy.device import Device, State
from fedrank.deploy.hub import hub as hub_module
from fedrank.deploy.hub import stages
from fedrank.deploy.hub.audit import replay_log, write_model
from fedrank.deploy.hub.folder import HubFolder
from fedrank.deploy.hub.service import why_silent, why_unfair
from fedrank.deploy.hub.settings import HubSettings, read_settings
from fedrank.deploy.hub.stages import Outcome
from fedrank.deploy.hub.store import STEPS, StoreError
from fedrank.ranking.model import RankingModel
from fedrank.ranking.rankers.base import RANKERS


def test_a_real_full_disk_loses_nothing(tmp_path):
    """SQLite itself says that the disk is full, through a limit on the file's pages."""

    async def story():
        async with running(make(tmp_path / "hub", cohort=100_000)) as hub:
            pages = hub.store._db.execute("PRAGMA page_count").fetchone()[0]
            hub.store._db.execute(f"PRAGMA max_page_count = {pages}")
            outcomes = []
            for device in range(1, 2000):
                outcomes.append(await hub.report(0, device, some_messages(hub, 1, seed=device)[0]))
                if outcomes[-1] is not Outcome.ACCEPTED:
                    break
            assert outcomes[-1] is Outcome.UNAVAILABLE
            hub.store._db.execute(f"PRAGMA max_page_count = {pages + 100}")
            assert await hub.report(0, 5000, some_messages(hub, 1)[0]) is Outcome.ACCEPTED
            return len(outcomes)

    counted = asyncio.run(story())
    with sqlite3.connect(tmp_path / "hub" / "hub.db") as db:
        assert db.execute("SELECT count(*) FROM report").fetchone() == (counted,)  # one less that failed, one after it


class Clock:
    """A clock that is set by hand, in place of the module ``time``."""

    def __init__(self):
        self.now, self.wall = 1000.0, 1_700_000_000.0

    def monotonic(self):
        return self.now

    def time(self):
        return self.wall


def test_a_deadline_closes_a_round_with_what_it_has(tmp_path):
    async def story():
        async with running(make(tmp_path / "hub", cohort=100, least=2, deadline=0.3)) as hub:
            devices = await enrolled(hub, 2)
            sent = some_messages(hub, 2)
            await hub.report(0, devices[0], sent[0])
            await asyncio.sleep(0.5)
            assert hub.view.round == 0  # one report is less than the least
            await hub.report(0, devices[1], sent[1])
            await opened(hub, 1)
            assert hub.status()["history"][0]["reports"] == 2

    asyncio.run(story())


@pytest.mark.parametrize("jump", [-1e9, 1e9, 0.0])
def test_a_clock_that_jumps_closes_no_round_and_keeps_none_open(tmp_path, monkeypatch, jump):
    async def story():
        home = make(tmp_path / "hub", cohort=100, least=1, deadline=60.0)
        clock = Clock()
        for module in (hub_module, stages):
            monkeypatch.setattr(module, "time", clock)
        async with running(home) as hub:
            (device,) = await enrolled(hub, 1)
            await hub.report(0, device, some_messages(hub, 1)[0])
            clock.wall += jump
            clock.now += 59
            await hub.leave(99)  # a turn of the writer
            assert hub.view.round == 0
        clock.now = 5.0  # the machine was started again: its monotonic clock begins anew
        async with running(home) as hub:
            left = hub.round.opened + 60 - clock.now
            assert 0 <= left <= 60
            clock.now += left + 1
            await hub.leave(99)
            await opened(hub, 1)

    asyncio.run(story())


def test_training_ends_after_its_rounds_and_goes_on_if_told_so(tmp_path):
    home = make(tmp_path / "hub", rounds=2)

    async def until_done():
        async with running(home) as hub:
            await play(hub, await enrolled(hub, 4), 2)
            assert (hub.view.state, hub.view.round) == ("done", 2)
            assert await hub.report(2, 1, some_messages(hub, 1)[0]) is Outcome.DONE
            return hub.view.model

    async def look():
        async with running(home) as hub:
            return hub.view.state, hub.view.model

    model = asyncio.run(until_done())
    assert asyncio.run(look()) == ("done", model)
    home.prepare(trial_settings(n_features=5, p=0.9, cohort=4, least=1, deadline=0.0, rounds=3))
    assert asyncio.run(look()) == ("open", model)


def test_tokens_are_kept_as_hashes_and_forgotten_when_a_device_leaves(tmp_path):
    home = make(tmp_path / "hub")

    async def story():
        async with running(home) as hub:
            token = await hub.enrol()
            device = hub.device_of(token)
            await hub.report(0, device, some_messages(hub, 1)[0])
            raw = b"".join(p.read_bytes() for p in home.path.glob("hub.db*"))
            assert token.encode() not in raw
            for wrong in ("", token[:-1], token + "x", "ä" * 40, "\udcff"):
                assert hub.device_of(wrong) is None
            assert await hub.leave(device) is True
            assert await hub.leave(device) is False
            assert hub.device_of(token) is None
            return device, hub.device_of(await hub.enrol())

    gone, new = asyncio.run(story())

    async def again():
        async with running(home) as hub:
            return hub.device_of(await hub.enrol())

    assert (gone, new, asyncio.run(again())) == (1, 2, 3)  # a number is never given twice


def test_terms_cannot_change_and_other_settings_can(tmp_path):
    home = make(tmp_path / "hub")
    with pytest.raises(ConfigError, match="sigma cannot be changed"):
        home.prepare(trial_settings(n_features=5, p=0.9, sigma=0.1))
    home.prepare(trial_settings(n_features=5, p=0.9, cohort=7))
    assert home.open()[0].cohort == 7
    text = home.settings.read_text()
    home.settings.write_text(text.replace("interactions = 4", "interactions = 8"))
    with pytest.raises(RunError, match="interactions is 8, was 4"):
        home.open()


def test_settings_that_cannot_be_are_refused_before_anything_is_made(tmp_path):
    for settings, words in [
        (dict(), "n_features"),
        (dict(n_features=5, p=0.9, interactions=3), "even"),
        (dict(n_features=5, cohort=0), "cohort"),
        (dict(n_features=5, least=0), "least"),
        (dict(n_features=5, p=0.01), r"p in \[1/11, 1\]"),
        (dict(n_features=5, mechanism="laplace"), "needs epsilon"),
        (dict(n_features=5, reward="Max"), "online metric"),
        (dict(n_features=2_000_000), "n_features"),
        (dict(n_features=900_000, ranker="mlp"), "1,000,000 weights"),
        (dict(n_features=5, ranker="linear", hidden=3), "linear without hidden"),
    ]:
        with pytest.raises(ConfigError, match=words):
            HubFolder(tmp_path / "hub").prepare(trial_settings(**settings))
        assert not (tmp_path / "hub").exists()


@pytest.mark.parametrize(
    ("lines", "words"), [("", ""), ('aggregate = "median-of-means"\n', "aggregate must be 'mean'")]
)
def test_a_hub_of_the_mean_goes_on_and_one_of_a_robust_rule_does_not(tmp_path, lines, words):
    home = make(tmp_path / "hub")
    text = home.settings.read_text()
    home.settings.write_text("byzantine = 1\n" + (lines or 'aggregate = "mean"\n') + text)
    if words:
        with pytest.raises(ConfigError, match=words):
            home.open()
    else:
        home.open()[1].close()


def test_a_folder_of_other_things_is_left_alone(tmp_path):
    (tmp_path / "letter.txt").write_text("dear")
    with pytest.raises(RunError, match=r"letter\.txt"):
        make(tmp_path)
    with pytest.raises(StoreError, match="no hub here"):
        HubFolder(tmp_path).open()
    home = make(tmp_path / "hub")
    home.log.write_bytes(b"not a database at all" * 100)
    with pytest.raises(StoreError, match="cannot be opened"):
        home.open()


def test_one_process_serves_a_hub(tmp_path):
    home = make(tmp_path / "hub")
    with home.lock(), pytest.raises(RunError, match="another process"), HubFolder(home.path).lock():
        pass


def test_secrets_are_the_owners_and_stay(tmp_path):
    home = make(tmp_path / "hub")
    path = home.path / "admin.token"
    assert path.stat().st_mode & 0o777 == 0o600
    before = home.token("admin")
    home.prepare(trial_settings(n_features=5, p=0.9, cohort=4, least=1, deadline=0.0))
    assert home.token("admin") == before != home.token("enrolment")
    path.write_text("short")
    with pytest.raises(RunError, match="16 characters"):
        home.token("admin")


def test_states_of_a_future_that_did_not_happen_go_when_an_earlier_round_is_written(tmp_path):
    kept = Checkpoints(tmp_path, {"of": "a hub"}, keep=3)
    for number in (1, 2, 3):
        kept.save(number, {"weights": np.full(2, number, np.float32)})
    kept.save(2, {"weights": np.full(2, 20.0, np.float32)})  # the log was put back from a copy
    found = [(number, state["weights"].tolist()) for number, state in kept.states({"weights": np.zeros(2, np.float32)})]
    assert found == [(2, [20.0, 20.0]), (1, [1.0, 1.0])]


def test_devices_with_their_defaults_report_to_a_hub_with_its_defaults(tmp_path):
    """ε of a message and of a search is 1, and so is that of a life: a device sends one message."""
    private = HubSettings(n_features=3).terms()
    caps = MOST_SEARCH_EPSILON, MOST_EPSILON, LIFETIME_EPSILON
    assert (private.epsilon_interaction, private.epsilon_message, private.epsilon_life) == caps
    home = HubFolder(tmp_path / "hub")
    home.prepare(trial_settings(n_features=3, cohort=1, least=1))
    assert why_silent(read_settings(home.settings)) == ""
    with served(home) as hub, Device("http://127.0.0.1:9", home.token("enrolment"), tmp_path / "device") as device:
        device._connection.request = hub.device(tmp_path / "other")._connection.request
        assert device.sync().state is State.OK
        for _ in range(4):
            ranking = device.rank(np.eye(3))
            assert ranking.learning
            device.log_click(ranking, 1)
            device.finish(ranking)
        assert device.sync().sent == 1


@pytest.mark.parametrize(
    "settings",
    [
        dict(p=0.9),
        dict(mechanism="laplace", epsilon=2.0),
        dict(epsilon=4.5),
        dict(p=1.0),
        dict(epsilon=0.9, collect=True),
    ],
)
def test_a_hub_whose_devices_would_send_nothing_says_so(tmp_path, settings):
    home = HubFolder(tmp_path / "hub")
    home.prepare(trial_settings(n_features=3, **settings))
    assert bool(why_silent(read_settings(home.settings))) == ("collect" not in settings)


def test_a_hub_says_that_the_fastest_decide_by_what_it_keeps(tmp_path):
    home = HubFolder(tmp_path / "hub")
    home.prepare(trial_settings(n_features=3))
    assert "round_seconds" in why_unfair(read_settings(home.settings))
    home.prepare(trial_settings(n_features=3, round_seconds=60.0))
    assert why_unfair(read_settings(home.settings)) == ""


def test_the_page_about_what_is_kept_names_every_table():
    page = Path(__file__).parents[3] / "docs" / "explanation" / "what-the-hub-learns.md"
    rows = [line for line in page.read_text(encoding="utf-8").splitlines() if line.startswith("| `")]
    for table in re.findall(r"CREATE TABLE (?:IF NOT EXISTS )?(\w+)", "".join(STEPS)):
        assert any(f"`{table}`" in row.split("|")[1] for row in rows), table


@pytest.mark.slow
def test_a_hub_starts_from_a_learnt_ranker_and_replays_from_it(tmp_path):
    learnt = np.linspace(-2.0, 3.0, 5, dtype=np.float32)
    RankingModel(RANKERS.get("linear").build(5, 0), learnt, normalise="query-minmax").save(
        tmp_path / "learnt.safetensors"
    )
    home = make(tmp_path / "hub", start_from=str(tmp_path / "learnt.safetensors"), rounds=3)
    (tmp_path / "learnt.safetensors").unlink()  # the hub has it

    async def story():
        async with running(home) as hub:
            np.testing.assert_array_equal(np.frombuffer(hub.view.model[5:], "<f4"), learnt)
            devices = await enrolled(hub, 4)
            for number in range(2):
                for device, sent in zip(devices, some_messages(hub, 4, number), strict=True):
                    await hub.report(number, device, sent)
                await opened(hub, number + 1)

    asyncio.run(story())
    found = replay_log(home.path)
    assert found.proven and found.models_alike == 3 and np.any(found.weights != learnt)
    assert np.max(np.abs(found.weights - learnt)) < 0.01  # two steps of Adam
    home.back_up(tmp_path / "copy")
    HubFolder(tmp_path / "copy").restore(tmp_path / "restored", home.path / "operator.key")
    assert replay_log(tmp_path / "restored").proven
    for folder in (home.path, tmp_path / "restored"):
        write_model(folder, found.weights, tmp_path / "new.safetensors")
        model = fedrank.load(tmp_path / "new.safetensors")
        assert model.normalise == "query-minmax" and np.array_equal(model.weights, found.weights)
    with pytest.raises(ConfigError, match="start_from"):
        home.prepare(dataclasses.replace(read_settings(home.settings), start_from=""))


def test_a_model_of_another_ranker_is_no_start(tmp_path):
    RankingModel(RANKERS.get("linear").build(4, 0), np.ones(4, np.float32)).save(tmp_path / "four.safetensors")
    with pytest.raises(ConfigError, match="ranker"):
        make(tmp_path / "hub", start_from=str(tmp_path / "four.safetensors"))
    with pytest.raises(ConfigError, match="coordinator"):
        make(tmp_path / "hub", start_from=str(tmp_path / "four.safetensors"), collect=True)
