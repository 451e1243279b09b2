"""``fedrank attack``: what privacy that is promised is worth against an attacker, in numbers."""

from __future__ import annotations

import json
from typing import Annotated

from cyclopts import App, Parameter

from fedrank.core.privacy_report import DELTA

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
    from fedrank.texts.attacks.suite import attack_sketches

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

    from fedrank.cli.terminal import table

    shown = table(
        "attack",
        "mode",
        "measure",
        "measured \\[99 %]",
        "promised",
        "verdict",
        numbers=("promised",),
        title=f"z = {z}, w = {w}, {'' if asked is None else f'z₁ = {z1}, '}ε = {epsilon:g}",
    )
    for one in found:
        verdict = "[red]broken[/red]" if one.broken else "[green]holds[/green]"
        shown.add_row(
            one.attack,
            one.mode,
            one.measure,
            f"{one.measured:.3g} \\[{one.low:.3g}, {one.high:.3g}]",
            f"{one.promised:.3g}",
            f"{verdict} (control)" if one.control else verdict,
        )
    console = Console()
    console.print(shown)
    console.print(
        "Simulated noise, seeded. Controls are no modes: each lacks a part that its mode has.", highlight=False
    )
    for one in found:
        console.print(f"{one.attack}, {one.mode}: {one.words}.", highlight=False, markup=False)
    if mode in ("publish-once", "all"):
        console.print("publish-once: no question leaves the querier, so there is no term to find.", highlight=False)


@app.command
def slates(
    *,
    modes: Annotated[tuple[str, ...], Parameter(consume_multiple=True, negative="")] = (),
    seeds: int = 4,
    seed: int = 0,
    episodes: int = 30,
    candidates: int = 10,
    slate: int = 3,
    platforms: int = 2,
    epsilon: float = 8.0,
    clip: float = 1.0,
    target_epsilons: Annotated[tuple[float, ...], Parameter(consume_multiple=True, negative="")] = (8.0, 1.0),
    as_json: Annotated[bool, Parameter(name="--json", negative="")] = False,
) -> None:
    """Attack platforms that learn slates together: what do Q-values, targets and gradients tell?

    Platform A sees engagement, platform B does not. Networks are trained for some users, messages are recorded, and
    three attackers look at them: B for A's engagement, the coordinator for A's clicks and engagement, A for B's values.

    Args:
        modes: published, corrected, extended, team, noisy-values, noisy-targets; without it all.
        seeds: Runs of each mode.
        seed: The first one's seed.
        episodes: Users of each run; attackers that are fitted know every other one's engagement.
        candidates: N, items that a platform can choose from.
        slate: n, items that it shows.
        platforms: K; the first is attacked by the last.
        epsilon: ε of a vector of values in mode noisy-values, at δ = 1e-06.
        clip: Values are cut to ± this there.
        target_epsilons: ε of one engagement, by noise on it before it enters a target, in mode noisy-targets.
        as_json: Print JSON instead of a table.
    """
    from fedrank.slates.attacks.suite import MODES, attack_slates

    shape = {"candidates": candidates, "slate": slate, "platforms": platforms}
    settings = {"seeds": seeds, "first_seed": seed, "episodes": episodes, "epsilon": epsilon, "clip": clip}
    found = attack_slates(modes or tuple(MODES), **settings, target_epsilons=target_epsilons, **shape)
    if as_json:
        content = {**settings, "target_epsilons": list(target_epsilons), **shape}
        print(json.dumps({**content, "leaks": [one.as_json() for one in found]}, ensure_ascii=False, indent=2))
        return

    from rich.console import Console

    from fedrank.cli.terminal import table

    columns = ("by", "R² \\[95 %]", "rank", "error (blind)", "exact")
    title = f"N = {candidates}, n = {slate}, K = {platforms}, {seeds} seeds of {episodes} users"
    shown, heading = table(*columns, numbers=columns[1:], title=title), ""
    for one in found:
        if heading != (heading := f"{one.mode}: {one.attacker} looks for {one.secret}"):
            shown.add_section()
            shown.add_row(f"[bold]{heading}[/bold]")
        m = one.measures
        told = "r2" in m
        shown.add_row(
            one.means,
            f"{m['r2'].mean:.3f} \\[{m['r2'].low:.3f}, {m['r2'].high:.3f}]" if told else "",
            f"{m['rank'].mean:.3f}" if told else "",
            f"{m['error'].mean:.3g} ({m['blind'].mean:.3g})" if told else f"(guess: {100 * m['blind'].mean:.1f} %)",
            f"{100 * m['exact'].mean:.1f} %",
        )
    console = Console()
    console.print(shown)
    console.print(
        "R² and rank correlation: 1 is everything. Error: mean absolute. Exact: right to a part in a hundred.",
        highlight=False,
    )
    console.print("".join(f"{name}: {meaning}.\n" for name, meaning in MODES.items()), highlight=False, markup=False)
