"""``fedrank privacy mechanisms``."""

from __future__ import annotations

from dataclasses import asdict

from fedrank.cli.terminal import AsJson, print_json, say, table


def mechanisms(
    *,
    epsilon: tuple[float, ...] = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0),
    interactions: int = 4,
    reward: str = "MaxRR",
    as_json: AsJson = False,
) -> None:
    """Compare how exactly each local mechanism transmits a message of FOLtR-ES, at the same ε of the whole message.

    Args:
        epsilon: ε of a message, in nats; several at once.
        interactions: B, interactions behind a message; even.
        reward: Metric of an interaction: MaxRR, DCG, nDCG or MeanRR, over ten results.
    """
    import numpy as np

    from fedrank.metrics.online import REWARDS
    from fedrank_zoo.message_variances.variances import compare_mechanisms

    metric = REWARDS.get(reward)(10)
    values = np.asarray(metric.values, np.float64) / max(metric.values)
    rows = {one: compare_mechanisms(one, interactions, values) for one in epsilon}
    if as_json:
        print_json([{"epsilon": one, **asdict(row)} for one, found in rows.items() for row in found])
        return

    numbers = ("at 0", "mean", "worst", "clipped")
    title = "variance of the difference of two rankers, in [−1, 1]"
    shown = table("ε", "mechanism", *numbers, numbers=numbers, title=title)
    for one, found in rows.items():
        for i, row in enumerate(found):
            variances = (row.at_zero, row.mean, row.worst, row.clipped)
            cells = ("–" if value is None else f"{value:.3g}" for value in variances)
            shown.add_row("" if i else f"{one:g}", row.name, *cells, end_section=i == len(found) - 1)
    say(
        shown,
        "The smaller, the fewer devices the same gradient takes. At 0: where both rankers are worth the same. Clipped: "
        "the mean where nine in ten differences are at an end of the range, as with privacy.clip.",
    )
