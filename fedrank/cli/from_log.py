"""``fedrank learn-from-log``: a ranker from a team's click log, and what it would have been worth."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from fedrank.cli.terminal import AsJson, headline, print_json, say, table
from fedrank.ranking.logs.columns import LogFormat


def learn_from_log(
    log: Path,
    /,
    *,
    out: Path | None = None,
    page: Path | None = None,
    features: Path | None = None,
    ranker: Literal["linear", "mlp"] = "linear",
    position_bias: Literal["estimate", "given", "none"] = "estimate",
    normalise: Literal["auto", "none", "standard", "min-max", "log"] = "auto",
    measure: Literal["DCG@10", "clicks"] = "DCG@10",
    held_out: float = 0.25,
    compare: bool = True,
    format: Annotated[LogFormat, Parameter(name="format")] = LogFormat(),
    seed: int = 0,
    as_json: AsJson = False,
) -> None:
    """Learn a ranker from a click log, freed of position bias, and judge it by searches that it has not seen.

    The log has a row for each result that was shown: query, document, position, click, and the features that the
    document had then. It is CSV, TSV, Parquet or JSON lines; or a folder of User Behavior Insights (ubi_queries and
    ubi_events as JSON lines). The page "From a click log to a ranker in your search engine" goes the whole way.

    Args:
        log: The file or the folder.
        out: Write the ranker to this file, such as ranker.safetensors; fedrank export makes other forms of it.
        page: Also write a page with a figure there, such as ranker.html.
        features: Table of features beside the log, with columns query (or session) and document.
        ranker: Ranker to learn.
        position_bias: estimate: from results that stood at several positions; given: the column of propensities; none:
            take clicks as they are.
        normalise: Constants of the log that features are normalised by; auto: standard, unless all lie in [0, 1].
        measure: What rankings are judged by: DCG@10 with attraction as the gain, or clicks a search.
        held_out: Share of the queries that rankings are judged by.
        compare: Also judge the other ranker, weights by propensity alone, the best single feature, and LightGBM with
            positions where it is installed.
        format: Meaning of the log's columns.
        seed: Of the draw of held-out queries.
    """
    from fedrank.ranking.logs.learn import learn_from_log as learn
    from fedrank.ranking.report import click_log as report

    found = learn(
        log, ranker=ranker, position_bias=position_bias, normalise=normalise, measure=measure, held_out=held_out,
        form=format, features=features, compare=compare, seed=seed,
    )  # fmt: skip
    if out is not None:
        found.model.save(out)
    sentence = str(report.log_opening(found).sentence)
    if page is not None:
        report.write_page(found, page, log.name)
    if as_json:
        print_json({"sentence": sentence, **found.as_json()})
        return
    say(headline(sentence))
    drawn = table("ranking", measure, "against logged", "", "clicks", whole=("ranking", measure, "against logged"))
    for row in found.rows:
        against = _with_half(row.gain, "+") if row.verdict else ""
        drawn.add_row(
            row.name, _with_half(row.worth.estimates["dr"]), against, row.verdict, f"{row.worth.effective_clicks:,.0f}"
        )
    bias = table("position", *(str(k) for k in range(1, len(found.bias.theta)) if found.bias.usable[k]))
    usable = found.bias.usable
    bias.add_row("looked at", *(f"{value:.3f}" for value in found.bias.theta[usable]))
    bias.add_row("± of its logarithm", *(f"{value:.3f}" for value in found.bias.error[usable]))
    say(drawn)
    say(
        f"Doubly robust estimates with 95 % intervals, from {found.held_out:,} searches for queries that nothing was "
        f"learnt from ({found.learnt:,} were learnt from); clicks: effective number behind an estimate.",
        bias,
        *(f"Left out: {count:,} {why}." for why, count in found.left_out.items()),
        *(f"Warning: {warning}" for warning in found.warnings),
    )
    written = () if out is None else (f"wrote {out}: fedrank export {out} model.json --to elasticsearch-ltr",)
    say(*written, page=page)


def _with_half(estimate: Any, sign: str = "") -> str:
    """An estimate with half the width of its interval."""
    return f"{estimate.value:{sign}.4f} ± {(estimate.high - estimate.low) / 2:.4f}"
