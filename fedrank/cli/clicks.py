"""``fedrank data clicks``: which simulated users there are, and made-up click logs."""

from __future__ import annotations

from pathlib import Path

import cyclopts

from fedrank.cli.terminal import AsJson, add_plug_ins, print_json, say, table

app = cyclopts.App(name="clicks", help="List the simulated users; make up a click log.")


add_plug_ins(app, "data.clicks")


@app.command(name="list")
def list_(*, as_json: AsJson = False) -> None:
    """List the simulated users that ``--clicks`` knows by name."""
    from fedrank.ranking.clicks.cascade import USERS

    entries = [USERS.entry(name) for name in USERS.names()]
    if as_json:
        print_json([{"name": e.name, "summary": e.summary, "citation": e.citation} for e in entries])
        return
    drawn = table("user", "what they do", whole=("user",))
    for entry in entries:
        drawn.add_row(entry.name, entry.summary)
    say(drawn)


@app.command
def generate(
    out: Path,
    /,
    *,
    data: str = "generated",
    fold: int = 1,
    sessions: int = 100_000,
    eta: float = 1.0,
    depth: int = 10,
    rankers: int = 3,
    swapped: float = 0.1,
    seed: int = 0,
) -> None:
    """Make up a click log with known position bias from labelled queries, to try fedrank learn-from-log on it.

    Several rankers answer in turn, and a share of the lists has two neighbours swapped; without either, bias cannot be
    told from relevance.

    Args:
        out: The file to write: .parquet, .csv or .jsonl.
        data: A name in the catalogue, a LETOR file or folder, or 'generated'; the training part.
        fold: Fold of the data set.
        sessions: Number of searches.
        eta: A user looks at position k with probability 1 / k^eta.
        depth: Results of a list.
        rankers: Number of rankers.
        swapped: Share of the lists with two neighbours swapped.
        seed: Of everything.
    """
    from fedrank.data import load
    from fedrank.ranking.logs.generate import generate_log

    queries = load(data, "ranking", fold=fold, normalise="none").train
    made = generate_log(queries, sessions, eta=eta, depth=depth, rankers=rankers, swapped=swapped, seed=seed)
    made.write(queries, out)
    print(f"wrote {out}: {sessions:,} searches for {queries.n_queries:,} queries, {made.clicked.sum():,} clicks")
