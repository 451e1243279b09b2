"""``fedrank attack``: what privacy that is promised is worth against an attacker, in numbers."""

from __future__ import annotations

import json
from typing import Annotated

from cyclopts import App, Parameter

from fedrank.privacy.accountant import DELTA

app = App(name="attack", help="Attack what is promised to be private, and print measured beside promised.")


@app.command
def sketch(
    *,
    mode: str = "all",
    epsilon: float = 0.5,
    z: int = 30,
    w: int = 200,
    z1: int = 10,
    trials: int = 4_000,
    seed: int = 0,
    vocabulary: int = 50_000,
    mechanism: str = "laplace",
    delta: float = DELTA,
    as_json: Annotated[bool, Parameter(name="--json", negative="")] = False,
) -> None:
    """Attack sketches of documents and questions about them, on generated documents.

    Documents: is one more occurrence of a word in it; can the noise be taken off; does it average out. Questions: which
    term is it; which positions are its own.

    Args:
        mode: paper, per-query, publish-once or all.
        epsilon: ε as each mode means it: as printed (paper), of one answer (per-query), of an occurrence for good
            (publish-once).
        z: Rows of a sketch.
        w: Cells of a row.
        z1: Positions of a question that belong to its term; the others are decoys. Mode publish-once asks nothing.
        trials: Trials of each attack; fewer of those that take long.
        seed: Seed of everything random.
        vocabulary: Words of the dictionary.
        mechanism: laplace or gaussian noise in modes per-query and publish-once.
        delta: δ of Gaussian noise and of the ledger.
        as_json: Print JSON instead of a table.
    """
    from fedrank.simulate.sketch_attack_suite import attack_sketches

    found = attack_sketches(
        mode,
        epsilon=epsilon,
        z=z,
        w=w,
        z1=z1,
        trials=trials,
        seed=seed,
        vocabulary=vocabulary,
        mechanism=mechanism,
        delta=delta,
    )
    asked = None if mode == "publish-once" else z1
    settings = {"mode": mode, "epsilon": epsilon, "z": z, "w": w, "z1": asked, "seed": seed, "vocabulary": vocabulary}
    if as_json:
        content = {**settings, "mechanism": mechanism, "delta": delta, "findings": [one.as_json() for one in found]}
        print(json.dumps(content, ensure_ascii=False, indent=2))
        return

    from rich.console import Console
    from rich.table import Table

    table = Table(
        "attack",
        "mode",
        "measure",
        "measured [99 %]",
        "promised",
        "verdict",
        title=f"z = {z}, w = {w}, {'' if asked is None else f'z₁ = {z1}, '}ε = {epsilon:g}",
        caption="Simulated noise, seeded. Controls are no modes: each lacks a part that its mode has.",
    )
    for one in found:
        verdict = "[red]broken[/red]" if one.broken else "[green]holds[/green]"
        table.add_row(
            one.attack,
            one.mode,
            one.measure,
            f"{one.measured:.3g} \\[{one.low:.3g}, {one.high:.3g}]",
            f"{one.promised:.3g}",
            f"{verdict} (control)" if one.control else verdict,
        )
    console = Console()
    console.print(table)
    for one in found:
        console.print(f"{one.attack}, {one.mode}: {one.words}.", highlight=False, markup=False)
    if mode in ("publish-once", "all"):
        console.print("publish-once: no question leaves the querier, so there is no term to find.", highlight=False)
