"""A leaderboard whose numbers are made up, for its page."""

import numpy as np

from fedrank_zoo.leaderboard.grid import HETEROGENEITY, SCEPTICS, Entrant, Part, Terms, default_grid
from fedrank_zoo.leaderboard.page import write
from fedrank_zoo.leaderboard.standings import BUDGETS, Row, Standings

METHODS = ("foltr-es", "foltr-es, median-of-means", "foltr-pdgd", "a-method-with-a-long-name", "pdgd")


def made_up(seeds=5):
    """Standings of five methods on two data sets, for two kinds of users."""
    rng = np.random.default_rng(7)
    parts = [Part("mq2008", 1), Part("mq2008", 2), Part("clueweb09-ltr", 1, 0)]
    entrants = [
        Entrant(name, name.partition(",")[0], {"aggregate": "x"} if "," in name else {}) for name in METHODS
    ]  # fmt: skip
    grid = default_grid(Terms(seeds=seeds), parts, entrants, clicks=("navigational", "perfect"))
    base = {data: rng.uniform(0, 1, 60) for data in ("mq2008", "clueweb09-ltr")}
    rows = []
    for block in grid.blocks:
        for budget in BUDGETS:
            for i, name in enumerate((*METHODS, *(f"labels: {one}" for one in SCEPTICS))):
                if block.attack == "none" and "," in name:
                    continue
                ours = not name.startswith("labels")
                if ours and block.epsilon is not None and name == "pdgd":
                    rows.append(Row(name, "fedrank", block, budget, why="it promises no ε of all that a user does"))
                    continue
                cost = 0.01 * (8 / block.epsilon if block.epsilon else 0) + 0.2 * (block.attack != "none")
                cost += 0.05 * list(HETEROGENEITY).index(block.heterogeneity)
                queries = base[block.data] - 0.02 * i - cost * ours + rng.normal(0, 0.03, 60)
                values = queries.mean() + rng.normal(0, 0.01, seeds)
                by_seed = dict(enumerate(values.tolist(), 100)) if ours else {-1: float(queries.mean())}
                asked = {f"{block.data} {q}": float(v) for q, v in enumerate(queries)}
                measures = {"nDCG(dcg='exp-log2')@10": by_seed, "online": by_seed}
                rows.append(Row(name, "fedrank" if ours else "labels", block, budget, ("fold 1",), measures, asked))
    theirs = Row("theirs", "submitted by somebody", grid.blocks[0], "interactions", ("fold 1",), measures, {})
    return Standings(grid, (*rows, theirs), 3, {}, ("mq2008, fold 1: BestFeature: number 25, rising",), 1234.0)


def make_board(folder):
    """Its page."""
    folder.mkdir(parents=True, exist_ok=True)
    return write(made_up(), folder)
