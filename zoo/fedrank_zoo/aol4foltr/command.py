"""``fedrank reproduce aol4foltr``."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import numpy as np
from cyclopts import App

from fedrank.cli.terminal import AsJson, Switch, print_json, say, table
from fedrank.core.errors import ConfigError

app = App(name="aol4foltr", help="Train on the clicks of real users (AOL4FOLTR), in their order of time.")


@app.default
def replay(
    folder: Path,
    /,
    *,
    users: int = 100,
    arrival: Literal["synchronous", "asynchronous"] = "asynchronous",
    batch: int = 4,
    events: int | None = 10_000,
    learning_rate: float = 0.1,
    own: float = 0.0,
    held_out: float = 0.2,
    without: tuple[str, ...] = (),
    seeds: int = 3,
    seed: int = 0,
    verify: Switch = False,
    example: Switch = False,
    as_json: AsJson = False,
) -> None:
    """Train on the clicks of real users (AOL4FOLTR), each a client with its own searches in their order of time.

    Federated PDGD with a linear ranker, without noise, judged by MRR@20 on the last searches. The first call copies the
    lines of the chosen users out of 55 GB of text, which takes long; the next ones find them.

    Args:
        folder: Where metadata.csv and letor.txt or letor.txt.gz lie.
        users: Users with the most searches.
        arrival: synchronous: rounds in which all users with a whole batch answer. asynchronous: an answer is merged
            when the last search of its batch was made, the staler the less.
        batch: Searches of an answer.
        events: Most searches to learn from.
        learning_rate: Step size of PDGD.
        own: Share of its weights that a client keeps, from 0 (it takes the server's) to 1 (it never does, as in the
            published code).
        held_out: Share of the searches, the last ones, that the model is judged on.
        without: Ids of users to leave out; the published study leaves out 71845.
        seeds: Runs.
        seed: The first one's.
        verify: Refuse files that are not the published ones; reads 10 GB.
        example: First write a small made-up log in the same form to the folder.
    """
    from fedrank_zoo.aol4foltr.log import check_files, read_users, write_example
    from fedrank_zoo.aol4foltr.replay import replay_log

    if seeds < 1:
        raise ConfigError(f"seeds must be at least 1, got {seeds}.")
    if example:
        if folder.exists() and any(folder.iterdir()):
            raise ConfigError(f"{folder} is not empty; the made-up log is written to a new folder.")
        write_example(folder)
        users = min(users, 6)
    if verify:
        check_files(folder)
    log = read_users(folder, users, without)
    runs = [
        replay_log(log, arrival, batch, events, learning_rate, own, held_out, seed=seed + number)
        for number in range(seeds)
    ]
    values = np.stack([run.mrr for run in runs])
    if as_json:
        about = {"users": len(log.names), "searches": log.queries.n_queries, "arrival": arrival, "made_up": example}
        print_json({**about, "events": runs[0].events.tolist(), "mrr": values.tolist()})
        return
    drawn = table("searches learned from", "MRR@20", "lowest", "highest", numbers=("MRR@20",))
    for number, seen in enumerate(runs[0].events.tolist()):
        at = values[:, number]
        drawn.add_row(f"{seen:,}", f"{at.mean():.4f}", f"{at.min():.4f}", f"{at.max():.4f}")
    say(drawn)
    made_up = " Made up: the numbers say nothing about real users." if example else ""
    print(f"{log.queries.n_queries:,} searches of {len(log.names)} users, {arrival}, {seeds} seeds.{made_up}")
