"""Click logs with known truth: coverage of intervals, the table of rankings, and time and memory of long logs.

::

    python -m benchmarks.click_logs coverage --logs 100 --sessions 40000
    python -m benchmarks.click_logs table --sessions 1000000 --data generated
    python -m benchmarks.click_logs stream --sessions 10000000 --folder /tmp/logs
"""

from __future__ import annotations

import argparse
import json
import resource
import time
from pathlib import Path

import numpy as np

from fedrank.data import load
from fedrank.ranking.data.queries import QuerySet
from fedrank.ranking.logs.generate import GeneratedLog, generate_log
from fedrank.ranking.logs.learn import _Pairs, learn_from_log
from fedrank.ranking.logs.off_policy import OffPolicy, estimate_bias
from fedrank.ranking.logs.read import read_log

_DISCOUNT = 1 / np.log2(np.arange(10) + 2)


def places(log: GeneratedLog, scores: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """The documents of some sessions in a ranker's order, −1 at the end of short lists."""
    documents = log.documents[rows]
    order = np.argsort(-np.where(documents < 0, -np.inf, scores[documents]), axis=1, kind="stable")
    return np.take_along_axis(documents, order, axis=1)


def true_worth(log: GeneratedLog, scores: np.ndarray, rows: np.ndarray) -> dict[str, float]:
    """What ``ips`` and ``snips`` estimate, from what made the log."""
    ranked = places(log, scores, rows)
    gain = np.where(ranked < 0, 0, log.attraction[ranked])
    total = (gain * _DISCOUNT).sum()
    return {"ips": total / len(rows), "dr": total / len(rows), "snips": total / gain.sum()}


def ndcg(queries: QuerySet, log: GeneratedLog, scores: np.ndarray, rows: np.ndarray) -> float:
    """nDCG@10 of the lists, with the label as the gain, over sessions that show a relevant document."""
    ranked = places(log, scores, rows)
    gain = np.where(ranked < 0, 0, queries.labels[ranked]).astype(float)
    best = (-np.sort(-gain, axis=1) * _DISCOUNT).sum(axis=1)
    seen = best > 0
    return float(((gain * _DISCOUNT).sum(axis=1)[seen] / best[seen]).mean())


def worse_by(queries: QuerySet, log: GeneratedLog, scores: np.ndarray, rows: np.ndarray, by: float, seed: int):
    """The scores with as much noise as costs ``by`` of nDCG@10."""
    noise = np.random.default_rng(seed).normal(size=len(scores))
    before, low, high = ndcg(queries, log, scores, rows), 0.0, 3.0
    for _ in range(25):
        middle = (low + high) / 2
        low, high = (middle, high) if before - ndcg(queries, log, scores + middle * noise, rows) < by else (low, middle)
    return scores + high * noise


def coverage(logs: int, sessions: int, first: int, difference: float) -> dict[str, object]:
    """Share of logs whose intervals hold the truth, and in which a true difference is seen."""
    inside: dict[str, list[bool]] = {}
    seen: dict[str, list[bool]] = {"ips": [], "dr": [], "snips": []}
    wrong: list[bool] = []
    for seed in range(first, first + logs):
        rng = np.random.default_rng(seed)
        queries = load("generated", "ranking", seed=seed, normalise="none").train
        made = generate_log(queries, sessions, eta=rng.uniform(0.5, 1.5), seed=seed)
        log = made.log(queries)
        bias = estimate_bias(log)
        test = rng.permutation(queries.n_queries)[: queries.n_queries // 4]
        held = np.isin(made.query, test)
        model = _Pairs(log, bias, test).attraction_model(log.features)
        rows = np.flatnonzero(held)
        some = rng.choice(rows, min(len(rows), 3000), replace=False)
        one = made.attraction + rng.normal(0, 0.15, len(made.attraction))
        two = worse_by(queries, made, one, some, difference, seed)
        judge = OffPolicy(log.part(held), bias, model)
        worths = [judge.judge(scores.astype(np.float32)) for scores in (one, two)]
        for name, worth in zip(("one", "two"), worths, strict=True):
            truth = true_worth(made, one if name == "one" else two, rows)
            for estimator, value in truth.items():
                found = worth.estimates[estimator]
                inside.setdefault(estimator, []).append(found.low <= value <= found.high)
        for estimator in seen:
            gain = worths[0].minus(worths[1], estimator)
            seen[estimator].append(gain.low > 0)
            truth = true_worth(made, one, rows)[estimator] - true_worth(made, two, rows)[estimator]
            inside.setdefault(f"difference, {estimator}", []).append(gain.low <= truth <= gain.high)
        wrong.append(worths[0].minus(worths[1]).high < 0)
    return {
        "logs": logs, "sessions": sessions, "judged": sessions // 4, "first_seed": first, "difference": difference,
        "truth_inside": {name: round(float(np.mean(values)), 3) for name, values in inside.items()},
        "difference_seen": {name: round(float(np.mean(values)), 3) for name, values in seen.items()},
        "wrong_way": round(float(np.mean(wrong)), 3),
    }  # fmt: skip


def table(sessions: int, data: str, seed: int) -> dict[str, object]:
    """The table of rankings on a generated log, beside nDCG@10 by labels and the true worth."""
    splits = load(data, "ranking", normalise="none")
    queries = splits.train
    made = generate_log(queries, sessions, seed=seed)
    log = made.log(queries)
    begin = time.perf_counter()
    found = learn_from_log(log, seed=seed)
    seconds = time.perf_counter() - begin
    about = {"seconds": round(seconds, 1), "data": data, "seed": seed, "true_theta": made.theta.tolist()}
    out = found.as_json() | about
    labels = {}
    for how in ("estimate", "none"):
        for ranker in ("linear", "mlp"):
            one = learn_from_log(log, ranker=ranker, position_bias=how, compare=False, seed=seed)
            for part, scores in one.model.evaluate(splits, ["nDCG@10"]).items():
                labels[f"{how}, {ranker}, {part}"] = round(scores["nDCG@10 (judged)"], 4)
    return out | {"nDCG@10 by labels, over queries with a relevant document": labels}


def stream(sessions: int, folder: Path, wide: bool) -> dict[str, object]:
    """Seconds and memory of a long log in a Parquet file, with features in a table beside it or in every row."""
    import polars as pl

    folder.mkdir(parents=True, exist_ok=True)
    queries = load("generated", "ranking", normalise="none").train
    path, beside = folder / f"log-{sessions}-{wide}.parquet", folder / "features.parquet"
    if not path.exists():
        parts, size = [], 1_000_000
        for number in range(-(-sessions // size)):
            part = folder / f"part-{number}.parquet"
            made = generate_log(queries, min(size, sessions - number * size), seed=number)
            shown = made.documents >= 0
            session, place = np.nonzero(shown)
            document = made.documents[shown]
            frame = pl.DataFrame(
                {"session": (session + number * size).astype(np.uint32), "query": queries.qids[made.query[session]],
                 "document": document, "position": (place + 1).astype(np.uint8), "click": made.clicked[shown]}
            )  # fmt: skip
            if wide:
                names = [f"f{i}" for i in range(queries.n_features)]
                frame = frame.hstack(pl.DataFrame(queries.features[document], schema=names))
            frame.write_parquet(part)
            parts.append(part)
        pl.scan_parquet(parts).sink_parquet(path)
        for part in parts:
            part.unlink()
        names = [f"f{i}" for i in range(queries.n_features)]
        owner = np.repeat(queries.qids, queries.lengths)
        table = pl.DataFrame(queries.features, schema=names)
        table.with_columns(query=pl.Series(owner), document=pl.Series(range(len(owner)))).write_parquet(beside)
        return {"written": str(path), "bytes": path.stat().st_size}
    begin = time.perf_counter()
    log = read_log(path, features=None if wide else beside)
    read = time.perf_counter() - begin
    memory_read = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    found = learn_from_log(log, compare=False)
    return {
        "sessions": log.n_sessions, "rows": len(log.pair), "wide": wide,
        "seconds_read": round(read, 1), "seconds": round(time.perf_counter() - begin, 1), "MB_read": round(memory_read),
        "MB": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
        "verdict": found.row(found.chosen).verdict,
    }  # fmt: skip


def main() -> None:
    """Run one of the measurements and print it as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("coverage", "table", "stream"))
    parser.add_argument("--logs", type=int, default=100)
    parser.add_argument("--sessions", type=int, default=40_000)
    parser.add_argument("--seed", type=int, default=1000)
    parser.add_argument("--difference", type=float, default=0.01)
    parser.add_argument("--data", default="generated")
    parser.add_argument("--folder", type=Path, default=Path("/tmp/click-logs"))
    parser.add_argument("--wide", action="store_true", help="features in every row, not beside")
    a = parser.parse_args()
    if a.what == "coverage":
        found = coverage(a.logs, a.sessions, a.seed, a.difference)
    elif a.what == "table":
        found = table(a.sessions, a.data, a.seed)
    else:
        found = stream(a.sessions, a.folder, a.wide)
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
