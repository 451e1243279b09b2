"""Speed and numbers do not decide, and a sinking model is noticed: races, liars and checks against a real hub.

    python -m benchmarks.hub.trust [--data mq2008] [--seeds 5] [--only race liars life rollout]

The hub is the real one, with its log and its writer, in this process. Messages are made by what a simulation or a
device runs, from simulated users on ranking data. In the race time is scaled: a second of the story takes ``--second``
seconds here. Writes ``benchmarks/hub/trust.json``, which the documentation quotes.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import dataclasses
import hashlib
import json
import statistics
import tempfile
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from scipy import stats

import fedrank
from fedrank.aggregation.server_steps import Adam
from fedrank.core.protocol import Party
from fedrank.core.rng import perturbation
from fedrank.deploy.draws import CHECK, SEED, beacon_of, drawn, word
from fedrank.deploy.hub.audit import replay_log
from fedrank.deploy.hub.checks import Watch
from fedrank.deploy.hub.folder import HubFolder
from fedrank.deploy.hub.hub import Hub
from fedrank.deploy.hub.settings import TRIAL, HubSettings
from fedrank.deploy.terms import Terms
from fedrank.engine.settings import from_dict
from fedrank.ranking.build import build
from fedrank.ranking.deployment import RankingServer
from fedrank.ranking.foltr_es import FoltrES
from fedrank.ranking.mechanisms.randomised_response import RandomisedResponse
from fedrank.ranking.on_device import credit_clicks, draft, portable_scores

#: Where results go.
RESULTS = Path(__file__).with_suffix(".json")
#: Seconds between two reports of an honest device of the race, in the story.
_PERIOD = 5.0


class World:
    """Simulated users on ranking data, and how good a model is for them.

    Args:
        data: A data set of the catalogue, or ``"generated"``.
        settings: Settings of the hub, all but the number of features.
        devices: Number of honest devices.
        seed: Seed of what people search and click.
        fold: Fold of the data set.
    """

    def __init__(self, data: str, settings: dict[str, Any], devices: int, seed: int, fold: int):
        shared = {"data": data, "fold": fold, "clients": devices, "interactions": 4, "seed": seed}
        config = from_dict({**shared, "clicks": "navigational"}).resolved()
        experiment = build(config)
        train = experiment.splits.train
        self.settings = HubSettings(
            **{**TRIAL, "n_features": train.features.shape[1], "mechanism": "randomised-response", **settings}
        )
        self.terms: Terms = self.settings.terms()
        protocol = dataclasses.replace(self.settings.protocol(), user=experiment.protocol.user)
        exchange, shared, own = protocol.exchanges[0], experiment.parties.shared, experiment.parties.own
        self._layout, self._devices = exchange.reply, devices
        self._request = exchange.request

        def answers(request, key, seeds):
            def one(mine, mine_key, seed):
                draws = exchange.draw(mine_key)
                draws = draws._replace(seed=jax.numpy.where(self.settings.drawn_seeds, seed, draws.seed))
                return exchange.respond(request, Party(shared, mine), draws)[1]

            return jax.vmap(one)(own, jax.random.split(key, devices), seeds)

        self._answers = jax.jit(answers)
        self._key, self._train = jax.random.key(seed), train
        self._click = [np.asarray(table) for table in (experiment.protocol.user.click, experiment.protocol.user.stop)]
        self.random = np.random.default_rng([seed, 1])
        # Measured on the test queries, in place of those that settings are chosen by.
        splits = experiment.splits
        tested = dataclasses.replace(splits, vali=splits.vali if splits.test is None else splits.test)
        self._server = RankingServer(config, dataclasses.replace(experiment, splits=tested), measured=True)

    def messages(self, model: bytes, seeds: Sequence[int] | None = None) -> list[bytes]:
        """What every honest device says about a model: one message each.

        Args:
            model: The model message.
            seeds: Their seeds, where these are drawn; None: each has its own.
        """
        drawn_seeds = np.zeros(self._devices, np.uint32) if seeds is None else np.array(seeds, np.uint32)
        request = self._request.decode(model)
        self._key, now = jax.random.split(self._key)
        replies = jax.device_get(self._answers(request, now, drawn_seeds))
        whole, size = self._layout.encode_all(replies, (self._devices,)), self._layout.nbytes
        return [whole[at : at + size] for at in range(0, len(whole), size)]

    def check(self, newest: bytes, best: bytes) -> bytes:
        """What an honest device says that compares two models."""
        terms, rankers = self.terms, [np.frombuffer(model[5:], "<f4") for model in (newest, best)]
        sums = np.zeros(2, np.int64)
        for _ in range(terms.interactions):
            query = self.random.integers(len(self._train.offsets) - 1)
            part = slice(self._train.offsets[query], self._train.offsets[query + 1])
            x, labels = np.asarray(self._train.features[part], np.float32), np.asarray(self._train.labels[part])
            lists = [np.argsort(-portable_scores(w, x, terms.hidden), kind="stable") for w in rankers]
            order, team = draft(*lists, terms.depth, int(self.random.integers(2**32)))
            patterns = np.array(credit_clicks(self._clicks(labels[order]), team), np.int32)
            sums += np.asarray(terms.metric.numerators)[np.asarray(terms.metric.index)[patterns]]
        words = self.random.integers(2**32, size=3, dtype=np.uint32)
        assert terms.check is not None
        return terms.check.encode(terms.clicks_to_reply.check(np.uint32(pair_of(best)), sums, words, np))

    def _clicks(self, labels: np.ndarray) -> int:
        """The clicks of a user on a list, from the top, as bits."""
        click, stop = self._click
        pattern = 0
        for rank, label in enumerate(labels[: self.terms.depth].astype(int)):
            if self.random.random() < click[label]:
                pattern |= 1 << rank
                if self.random.random() < stop[label]:
                    break
        return pattern

    def ndcg(self, model: bytes) -> float:
        """nDCG(dcg='exp-log2')@10 of a model on the test queries."""
        scores = self._server.scores(np.frombuffer(model[5:], "<f4").astype(np.float32)) or []
        return next(
            float(one["value"])
            for one in scores
            if one["split"] == "vali" and one["measure"] == "nDCG(dcg='exp-log2')@10"
        )


def pair_of(best: bytes) -> int:
    """What a check says about the best model."""
    return int.from_bytes(hashlib.sha256(best[5:]).digest()[:4], "little")


class Liars:
    """Attackers who agree on a direction and send the seeds that point there, and the values that count most.

    Args:
        terms: Terms of the hub.
        searched: Seeds that each of them tries in a round; 1: the first is taken, with the better sign.
        seed: Seed of the attackers.
        towards: ``"fixed"``: one random direction; ``"reverse"``: away from the model.
    """

    def __init__(self, terms: Terms, searched: int, seed: int, towards: str = "fixed"):
        self._terms, self._searched, self._towards = terms, searched, towards
        self._random = np.random.default_rng([seed, 2])
        self._goal = perturbation(int(self._random.integers(2**32)), terms.size)
        seeds = self._random.integers(2**32, size=4096, dtype=np.uint32)
        self._known = seeds, np.stack([perturbation(int(one), terms.size) for one in seeds])

    def messages(self, model: bytes, count: int, drawn_seeds: Sequence[int] | None = None) -> list[bytes]:
        """The messages of so many of them about a model; where seeds are drawn, what suits best with these."""
        weights = np.frombuffer(model[5:], "<f4")
        goal = -weights if self._towards == "reverse" and weights.any() else self._goal
        if not count:
            return []
        seeds, vs = self._known
        if drawn_seeds is not None:
            seeds = np.array(drawn_seeds, np.uint32)
            vs = np.stack([perturbation(int(one), self._terms.size) for one in seeds])
        along = vs @ goal / np.linalg.norm(vs, axis=1)
        out, layout = [], self._terms.reply
        top = self._terms.number_mechanism.reports - 1 if self._terms.number_mechanism is not None else 0
        for number in range(count):
            tried = (
                np.array([number])
                if drawn_seeds is not None
                else self._random.integers(len(seeds), size=self._searched)
            )
            best = tried[np.argmax(np.abs(along[tried]))]
            out.append(layout.encode(layout.message(seeds[best], np.int32(top if along[best] > 0 else 0))))
        return out


def seeds_of(hub: Hub, numbers: Sequence[int], model: bytes) -> list[int] | None:
    """The seeds that were drawn for devices; None where everybody has his own."""
    if not hub.terms.drawn_seeds:
        return None
    beacon = beacon_of(model)
    return [word(hub.row.admission.devices.key(number), SEED, beacon) for number in numbers]


@contextlib.asynccontextmanager
async def running(folder: str, settings: HubSettings) -> AsyncIterator[Hub]:
    """A hub at work."""
    home = HubFolder(Path(folder) / "hub")
    home.prepare(settings)
    settings, store = home.open()
    hub = Hub(home.path, store, settings)
    await hub.start()
    try:
        yield hub
    finally:
        await hub.stop()


async def pass_first_round(hub: Hub) -> int:
    """End the first round of a hub that draws, in which all devices are new and none reports; the rounds so passed."""
    if not hub.terms.draws:
        return 0
    await hub.close_round(empty=True)
    await hub.wait_for_round(60.0)
    return 1


# ------------------------------------------------------------------------------------------------------------- race


async def _race(
    world: World, attackers: int, lottery: bool, rounds: int, second: float, seed: int, searched: int
) -> dict[str, Any]:
    """Attackers without a pause beside honest devices that report every five seconds, until so many rounds are over."""
    honest = world._devices
    settings = dataclasses.replace(world.settings, round_seconds=_PERIOD * second if lottery else 0.0, deadline=3600.0)
    liars = Liars(world.terms, searched, seed)
    with tempfile.TemporaryDirectory() as folder:
        async with running(folder, settings) as hub:
            tokens = await asyncio.gather(*(hub.enrol() for _ in range(honest + attackers)))
            numbers = [hub.device_of(token) for token in tokens]
            rounds += await pass_first_round(hub)
            answers: dict[int, list[bytes]] = {}

            def message_of(view, index: int) -> bytes:
                if view.round not in answers:
                    answers.clear()
                    seeds = seeds_of(hub, numbers, view.model)
                    foul = liars.messages(view.model, attackers, None if seeds is None else seeds[honest:])
                    answers[view.round] = world.messages(view.model, seeds and seeds[:honest]) + foul
                return answers[view.round][index]

            async def person(index: int) -> None:
                await asyncio.sleep(float(world.random.uniform(0, _PERIOD)) * second)
                while hub.view.round < rounds:
                    if hub.view.state == "open":
                        view = hub.view
                        await hub.report(view.round, numbers[index], message_of(view, index))
                    await asyncio.sleep(_PERIOD * second * float(world.random.uniform(0.9, 1.1)))

            async def attacker(index: int) -> None:
                told = -1
                while hub.view.round < rounds:
                    view = hub.view
                    if view.state != "open" or view.round == told:
                        await asyncio.sleep(0)
                        await hub.wait_for_round(0.05)
                        await asyncio.sleep(0.001)
                        continue
                    await hub.report(view.round, numbers[honest + index], message_of(view, honest + index))
                    told = view.round

            await asyncio.gather(*map(person, range(honest)), *map(attacker, range(attackers)))
            final, foul = hub.view.model, set(numbers[honest:])
            counted = [device for number in range(rounds) for device, _ in hub.store.reports(number)]
    return {"share": sum(device in foul for device in counted) / len(counted), "ndcg": world.ndcg(final)}


def race(args: argparse.Namespace) -> list[dict[str, Any]]:
    """The race with and without the lottery, and nobody attacking."""
    settings = dict(mechanism="piecewise", epsilon=args.epsilon, cohort=args.cohort, least=1, learning_rate=args.rate)
    out = []
    for seed in range(args.first, args.first + args.seeds):
        for name, attackers, lottery, drawn_seeds in (
            ("nobody attacks, first come", 0, False, False),
            ("first come", 20, False, False),
            ("nobody attacks, by lot", 0, True, False),
            ("by lot", 20, True, False),
            ("nobody attacks, by lot, seeds drawn", 0, True, True),
            ("by lot, seeds drawn", 20, True, True),
        ):
            world = World(args.data, {**settings, "drawn_seeds": drawn_seeds}, 200, seed, args.fold)
            found = asyncio.run(_race(world, attackers, lottery, args.race_rounds, args.second, seed, args.searched))
            out.append({"study": "race", "case": name, "seed": seed, **found})
            print(json.dumps(out[-1]), flush=True)
    return out


# ------------------------------------------------------------------------------------------------------------- liars


async def _life(
    world: World, liars: Liars | None, share: float, rounds: int, begin: int, check_liars: str
) -> dict[str, Any]:
    """A hub's life in which a share of the devices lies from some round on; all devices report in every round."""
    honest = world._devices
    foul_count = round(honest * share / (1 - share)) if share else 0
    curve: list[tuple[int, float]] = []
    with tempfile.TemporaryDirectory() as folder:
        async with running(folder, dataclasses.replace(world.settings, round_seconds=3600.0, deadline=3600.0)) as hub:
            tokens = await asyncio.gather(*(hub.enrol() for _ in range(honest + foul_count)))
            numbers = [hub.device_of(token) for token in tokens]
            foul, passed = set(numbers[honest:]), await pass_first_round(hub)
            rounds, begin = rounds + passed, begin + passed
            while hub.view.round < rounds and not hub.view.over:
                view = hub.view
                number, seeds = view.round, seeds_of(hub, numbers, view.model)
                sent = dict(zip(numbers, world.messages(view.model, seeds and seeds[:honest]), strict=False))
                if liars is not None and number >= begin:
                    told = liars.messages(view.model, foul_count, None if seeds is None else seeds[honest:])
                    sent |= dict(zip(numbers[honest:], told, strict=True))
                if world.terms.check is not None and view.best[5:] != view.model[5:]:
                    beacon = beacon_of(view.model)
                    for device in numbers:
                        if drawn(hub.row.admission.devices.key(device), CHECK, beacon, world.terms.checks):
                            if device not in foul:
                                sent[device] = world.check(view.model, view.best)
                            elif number >= begin:
                                sent[device] = _lie(world.terms, pair_of(view.best), check_liars)
                outcomes = await asyncio.gather(*(hub.report(number, device, one) for device, one in sent.items()))
                assert {one.value for one in outcomes} == {"accepted"}, outcomes
                await hub.close_round()
                while hub.view.round == number and not hub.view.over:
                    await asyncio.sleep(0.001)
                if number % 10 == 0:
                    curve.append((number, world.ndcg(view.model)))
            final, status, judged = hub.view, hub.status(), hub.store.judgements()
            home = hub.store.path.parent
        proven = replay_log(home).proven
    return {
        "ndcg": world.ndcg(final.model),
        "before": _before(curve, begin),
        "lowest": min((value for number, value in curve if number >= begin), default=None),
        "halted": final.round if final.state == "halted" else None,
        "best": (status.get("checks") or {}).get("best"),
        "promoted": next((one.round for one in judged if one.promoted), None),
        "checks": sum(one.checks for one in judged),
        "proven": proven,
        "curve": curve,
    }


def _lie(terms: Terms, pair: int, says: str) -> bytes:
    """A check of a liar: the newest is better, or worse."""
    assert terms.check is not None and terms.number_mechanism is not None
    top = terms.number_mechanism.reports - 1
    return terms.check.encode(terms.check.message(np.uint32(pair), np.int32(top if says == "better" else 0)))


def _before(curve: Sequence[tuple[int, float]], begin: int) -> float | None:
    return next((value for number, value in reversed(curve) if number <= begin), None)


def liars(args: argparse.Namespace) -> list[dict[str, Any]]:
    """Ten in a hundred devices lie from some round on: checks and drawn seeds."""
    out = []
    for seed in range(args.first, args.first + args.seeds):
        for checks, share, checkers, drawn_seeds in (
            (0.0, 0.0, "none", False),
            (0.2, 0.0, "none", False),
            (0.0, 0.1, "none", False),
            (0.2, 0.1, "better", False),
            (0.2, 0.1, "worse", False),
            (0.0, 0.1, "none", True),
            (0.2, 0.1, "better", True),
        ):
            settings = dict(
                mechanism="piecewise",
                epsilon=args.epsilon,
                cohort=1000,
                least=1,
                learning_rate=args.rate,
                checks=checks,
                drawn_seeds=drawn_seeds,
            )
            world = World(args.data, settings, 200, seed, args.fold)
            attack = None if not share else Liars(world.terms, args.searched, seed)
            found = asyncio.run(_life(world, attack, share, args.rounds, args.begin, checkers))
            case = {"rule": "mean", "checks": checks, "liars": share, "checkers": checkers, "drawn_seeds": drawn_seeds}
            out.append({"study": "liars", **case, "seed": seed, **found})
            print(json.dumps({k: v for k, v in out[-1].items() if k != "curve"}), flush=True)
    return out


# ---------------------------------------------------------------------------------------------------- chance and lies


def life(args: argparse.Namespace) -> list[dict[str, Any]]:
    """False alarms over lives of 1,000 rounds of 40 checks, and what lying checkers do, at the tests alone."""
    out, random = [], np.random.default_rng(args.first)
    terms = HubSettings(**{**TRIAL, "n_features": 5, "epsilon": args.epsilon, "checks": 0.2}).terms()
    margin, alpha, rounds, each = 0.05, 0.05, 1000, 40
    mechanism = terms.number_mechanism
    assert mechanism is not None
    probabilities = mechanism.probabilities()
    ends = np.stack([probabilities[0], probabilities[-1]])  # of a difference of −1, of +1
    for name, mean, share, says in (
        ("the newest is worse by the margin, no more", -margin, 0.0, 0),
        ("as good", 0.0, 0.0, 0),
        ("as good; 10 % of checkers say worse", 0.0, 0.1, 0),
        ("worse by 0.2", -0.2, 0.0, 0),
        ("worse by 0.2; 10 % of checkers say better", -0.2, 0.1, mechanism.reports - 1),
        ("worse by 0.4; 10 % of checkers say better", -0.4, 0.1, mechanism.reports - 1),
    ):
        lives, alarms, after = (400 if mean >= -margin and not share else 40), 0, []
        chances = ends[0] * (1 - mean) / 2 + ends[1] * (1 + mean) / 2
        for _ in range(lives):
            watch = Watch(terms, margin, alpha)
            for number in range(rounds):
                reports = random.choice(mechanism.reports, size=each, p=chances / chances.sum())
                reports[: round(share * each)] = says
                watch._sinks.add(mechanism.estimates[reports])
                if watch._sinks.money >= 1 / alpha:
                    alarms, after = alarms + 1, [*after, number + 1]
                    break
        interval = stats.binomtest(alarms, lives).proportion_ci(method="exact")
        out.append(
            {
                "study": "life",
                "case": name,
                "lives": lives,
                "alarms": alarms,
                "share": alarms / lives,
                "low": interval.low,
                "high": interval.high,
                "rounds_until": statistics.median(after) if after else None,
            }
        )
        print(json.dumps(out[-1]), flush=True)
    return out


# ----------------------------------------------------------------------------------------------------------- rollout


def rollout(args: argparse.Namespace) -> list[dict[str, Any]]:
    """A hub that starts from a ranker: after how many checks its test says that the newest is better than the old one.

    Beside it a hub that learns next to nothing, whose test should say so in at most 5 % of the lives.
    """
    out = []
    for seed in range(args.first, args.first + args.seeds):
        with tempfile.TemporaryDirectory() as folder:
            start = Path(folder) / "start.safetensors"
            given = {"data": args.data, "fold": args.fold, "clicks": "navigational", "seed": seed, "seeds": 1}
            paper = FoltrES(server=Adam(0.01), privacy=RandomisedResponse())
            fedrank.train(paper, rounds=2, clients=500, **given).model().save(start)
            for name, rate in (("learns", 0.4 / args.rollout_rounds), ("learns next to nothing", 1e-9)):
                settings = dict(
                    mechanism="piecewise", epsilon=1.0, cohort=2000, least=1, learning_rate=rate, checks=0.2,
                    start_from=str(start), interactions=16,
                )  # fmt: skip
                world = World(args.data, settings, 1000, seed, args.fold)
                before = world.ndcg(bytes(5) + np.asarray(fedrank.load(start).weights, "<f4").tobytes())
                found = asyncio.run(_life(world, None, 0.0, args.rollout_rounds, 0, "none"))
                out.append({"study": "rollout", "case": name, "seed": seed, "start": before, **found})
                print(json.dumps({k: v for k, v in out[-1].items() if k != "curve"}), flush=True)
    return out


STUDIES = {"race": race, "liars": liars, "life": life, "rollout": rollout}


def main() -> None:
    """Run the studies and write what they found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="mq2008")
    parser.add_argument("--fold", type=int, default=2)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first", type=int, default=1000, help="first seed")
    parser.add_argument("--only", nargs="+", choices=list(STUDIES), default=list(STUDIES))
    parser.add_argument("--epsilon", type=float, default=4.5)
    parser.add_argument("--rate", type=float, default=3e-3)
    parser.add_argument("--cohort", type=int, default=22)
    parser.add_argument("--second", type=float, default=0.05)
    parser.add_argument("--race-rounds", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=300)
    parser.add_argument("--begin", type=int, default=100)
    parser.add_argument("--rollout-rounds", type=int, default=50)
    parser.add_argument("--searched", type=int, default=4096)
    parser.add_argument("--out", type=Path, default=RESULTS)
    args = parser.parse_args()
    about = {key: value for key, value in vars(args).items() if key not in ("only", "out")}
    there = json.loads(args.out.read_text()) if args.out.exists() else {"rows": []}
    kept = [row for row in there["rows"] if row["study"] not in args.only]
    found = [row for name in args.only for row in STUDIES[name](args)]
    args.out.write_text(json.dumps({"settings": about, "rows": kept + found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
