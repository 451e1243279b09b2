"""The page for whoever signs an answer: what to use, who helps and harms, whether probabilities hold, for a paper."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedrank import __version__
from fedrank.core.registry import bibtex
from fedrank.core.trees import Json
from fedrank.report.claims import Measured, Named, Number, Opening, Sentence, Share, head, say
from fedrank.report.figures import Level, levels_figure
from fedrank.report.html import Html, bullets, document, h, section, warn, write_document
from fedrank.report.statistics import Interval, p_is
from fedrank.report.tables import Column, Table, table_of
from fedrank.report.wording import in_words
from fedrank.silos.sceptic.compare import RECOMMENDED, Answer, Row, compare_aucs
from fedrank.silos.sceptic.probes import Verdict
from fedrank.silos.sceptic.ways import WAYS

_DIGITS = 3
#: Publications that a paragraph of methods names.
_CITED = ("delong1988auc", "ledell2015auc", "mcmahan2017fedavg", "hoeting1999bma")
#: Colours of verdicts: what is significant has one, the rest has not.
_MARK = {"helps": "▲ ", "harms": "▼ ", "no evidence": "· "}


def write_answers(made: Mapping[str, Json], answers: Sequence[Answer], file: str | os.PathLike[str]) -> Path:
    """Write the page of one or more targets.

    Args:
        made: What ``--json`` prints: data, label, notes.
        answers: At least one.
        file: Where.

    Raises:
        RunError: The page cannot be written.
    """
    parts = [part for one in answers for part in _of(one, len(answers) > 1)]
    first = answers[0]
    title = f"Whose models help {first.name}?" if len(answers) == 1 else f"Whose models help whom? {made['data']}"
    chart = _chart(first)
    opening = Opening(
        title,
        answers_sentence(answers),
        tuple(_numbers(first)),
        "ways",
        f"AUC of every way for {first.name}, with intervals. The same numbers are in the table below.",
        (
            "estimate effects over all silos, whose rows stay where they are:",
            "fedrank silos codebook my-table.csv --study NAME --silos north south east --out codebook.toml",
        ),
    )
    caveats = ["Generated data"] if made.get("generated") else []
    caveats += [f"For {one.name}: {said}" for one in answers for said in one.warnings()]
    box = warn("Look at this first", bullets(caveats), label="Warning") if caveats else None
    about = f"fedrank silos compare · {made['data']} · {made['label']}"
    page = document(
        f"{title} – fedrank",
        head(opening, about, (), chart.figure("ways", opening.description), box),
        *(_overview(answers) if len(answers) > 1 else ()),
        *parts,
        section("flow", "Rows in, out, and why", _flow(first), bullets(made["notes"])),
        section("methods", "For a paper", h("p", methods(first)), h("pre", h("code", bibtex(_CITED)))),
        h("footer", f"Made by fedrank silos compare, fedrank {__version__}, seed {made['seed']}."),
    )
    return write_document(page, file)


def answers_sentence(answers: Sequence[Answer]) -> Sentence:
    """The headline of a target; of several, what to use and who helps whom."""
    if len(answers) == 1:
        return answers[0].headline()
    own = [one.name for one in answers if not one.uses_others]
    rest = [one.name for one in answers if one.uses_others]
    said = Sentence(())
    if own:
        said += say("Use your own model: ", Named(in_words(own)), ". ")
    if rest:
        said += say("Use others’ rows or models as well: ", Named(in_words(rest)), ". ")
    pairs = sum(len(one.verdicts) for one in answers)
    helps, harms = (Share(sum(v.word == w for one in answers for v in one.verdicts), pairs) for w in ("helps", "harms"))
    return said + say(
        "Of the pairs of silos, rows of one raise the other’s AUC in ", helps, " and lower it in ", harms, "."
    )


def _overview(answers: Sequence[Answer]) -> list[Html]:
    """Recommendations and verdicts of several targets."""
    names = answers[0].names
    columns = (Column("silo", "silo"), Column("rows", "rows", numeric=True), Column("said", "in a sentence"))
    said = (str(one.headline()).partition(": ")[2].replace("use ", "Use ", 1) for one in answers)
    rows = [(one.name, one.own.rows, words) for one, words in zip(answers, said, strict=True)]
    use = table_of("What to use", columns, rows)
    cells = [{v.silo: _cell(v) for v in one.verdicts} for one in answers]
    matrix = Table(
        "Who helps whom: AUC of a row’s silo with the rows of a column’s silo",
        (Column("target", "target"), *(Column(f"of {k}", name) for k, name in enumerate(names))),
        tuple(
            {"target": one.name} | {f"of {k}": of.get(k, "") for k in range(len(names))}
            for one, of in zip(answers, cells, strict=True)
        ),
        (
            "▲ helps, ▼ harms at p < 0.05 after Bonferroni’s correction; · no evidence. Seen: a harm of that size "
            "would have been seen with a probability of 0.8. Intervals are in the sections below.",
        ),
    )
    return [
        section("use", "What to use", use),
        section("matrix", "Who helps whom", matrix),
    ]


def _cell(verdict: Verdict) -> str:
    if verdict.gain.error != verdict.gain.error:
        return "–"
    said = f"{_MARK[verdict.word]}{_sign(verdict.gain.value)}"
    return said if verdict.word != "no evidence" else f"{said} (seen: {_sign(-verdict.visible)})"


def methods(one: Answer) -> str:
    """A paragraph of methods for one target, ready for a paper."""
    silos = ", ".join(f"{name} (n = {told.rows:,.0f})" for name, told in zip(one.names, one.told, strict=True))
    return (
        f"Models for {one.name} were compared on rows of {len(one.names)} silos: {silos}. {_where(one)} Logistic "
        "models had an L2 penalty on standardised columns; missing values were set to a mean. "
        f"All rows of {one.name} were scored by models that had not seen them (5-fold "
        "cross-fitting, stratified by label); penalties and the recommended model were chosen inside the training "
        "folds. The shrunk model is the mean over sets of silos, spreads between their coefficients and ridge "
        "penalties, each weighed by its posterior probability (Hoeting et al. 1999), with a normal prior from the "
        "other silos’ models and Laplace’s approximation. AUCs and paired differences have "
        "DeLong's standard errors (DeLong et al. 1988), with placements within folds (LeDell et al. 2015); intervals "
        "of AUCs are symmetric in the logit (Pepe 2003). A silo was "
        f"said to help or to harm where the AUC of a model of the rows of {one.name} and its own differed from that of "
        f"{one.name} alone at p < 0.05 after Bonferroni's correction for {len(one.names) - 1} silos; harms that "
        f"would have been detected with a power of 0.8 are given. Computed with fedrank {__version__}."
    )


def _of(one: Answer, several: bool) -> list[Html]:
    name = f", {one.name}" if several else ""
    at = f"-{one.target}" if several else ""
    found = one.calibration
    return [
        section(f"ways{at}", f"Every way{name}", ways_table(one)),
        section(f"silos{at}", f"Who helps and who harms{name}", verdicts_table(one)),
        section(
            f"calibration{at}",
            f"Do probabilities mean what they say?{name}",
            h("p", calibration_words(one)),
            _curve(one),
            Table(
                "Decision curve",
                (
                    Column("probability", "acting from a probability of", numeric=True, digits=2),
                    Column("benefit", "net benefit", numeric=True, signed=True, digits=3),
                    Column("benefit_all", "of acting on every row", numeric=True, signed=True, digits=3),
                    Column("sensitivity", "sensitivity", numeric=True, digits=3),
                    Column("specificity", "specificity", numeric=True, digits=3),
                ),
                tuple(row._asdict() for row in found.thresholds),
                ("Acting on no row has a net benefit of 0.",),
            ),
        ),
    ]


def _numbers(one: Answer) -> list[Number]:
    low, high = one.auc.interval()
    rows, all_rows = (
        one.own.rows,
        f"of {sum(told.rows for told in one.told):,.0f} in {len(one.names)} silos; all count",
    )
    nested = f"{max(0.0, low):.3f} to {min(1.0, high):.3f}; chosen anew in each fold"
    first = f"Over the best baseline ({WAYS[one.rival].title})"
    return [
        Number(f"Rows of {one.name}", Named(f"{rows:,}"), all_rows),
        Number("AUC of what to use", Measured(one.auc.value, "AUC"), nested),
        Number(first, compare_aucs(one.gain, first)),
        Number(
            "Brier score",
            Measured(one.calibration.brier, "Brier score"),
            f"{one.calibration.brier_without:.3f} without a model",
        ),
    ]


def _chart(one: Answer) -> Any:
    levels = []
    for row in one.rows:
        low, high = (max(0.0, min(1.0, end)) for end in row.auc.interval())
        known = row.auc.error == row.auc.error
        ends = (low, high) if known else (None, None)
        levels.append(Level(_title(row), row.auc.value, *ends, ours=row.way == RECOMMENDED))
    said = [f"{one.own.rows:,} rows, cross-fitted; 95 % intervals (DeLong’s errors, in the logit)"]
    return levels_figure(levels, f"AUC at {one.name}", said, _DIGITS)


def _title(row: Row) -> str:
    return row.about.title + (" (simulation only)" if row.about.kind == "simulation" else "")


def ways_table(one: Answer) -> Table:
    """The table of ways to a model for a silo."""
    rows = [
        (
            _title(row) + (" ←" if row.way == one.recommended else ""),
            Interval(row.auc.value, *row.auc.interval()),
            None if row.way == "alone" else Interval(row.over_alone.value, *row.over_alone.interval()),
            row.about.says,
        )
        for row in one.rows
    ]
    columns = (
        Column("way", "way"), Column("auc", "AUC", numeric=True, digits=_DIGITS),
        Column("gain", "over alone", numeric=True, signed=True, digits=_DIGITS), Column("what", "what it is"),
    )  # fmt: skip
    notes = ("←: the way that is recommended by all rows.",)
    return table_of(f"Every way to a model for {one.name}", columns, rows, notes)


def verdicts_table(one: Answer) -> Table:
    """The table of what each other silo's rows do for a silo."""
    names = one.names
    columns = (
        Column("silo", "silo"), Column("verdict", "verdict"), Column("gain", "AUC with its rows", numeric=True),
        Column("visible", "harm that would have been seen", numeric=True, digits=3),
        Column("partner", "weight in the shrunk model", numeric=True, digits=2),
        Column("as", "AUC of its model as it is", numeric=True, digits=3), Column("like", "not told apart from"),
    )  # fmt: skip
    rows = [
        (
            *(names[v.silo], _MARK[v.word] + v.word, _gain(v), v.visible if v.visible == v.visible else None),
            *(one.partners.get(names[v.silo]), one.probes.scores[v.silo].value),
            ", ".join(names[k] for k in one.probes.together[v.silo]) or "none",
        )
        for v in one.verdicts
    ]
    notes = ("Verdicts: p < 0.05 after Bonferroni's correction. Harm seen: with a probability of 0.8.",)
    return table_of(f"What the other silos' rows do for {one.name}", columns, rows, notes)


def _gain(verdict: Verdict) -> str:
    if verdict.gain.error != verdict.gain.error:
        return "–"
    return f"{_sign(verdict.gain.value)} ({_ends(verdict.gain.interval())}), {p_is(verdict.p)}"


def _curve(one: Answer) -> Table:
    columns = (
        Column("predicted", "mean probability", numeric=True, digits=3),
        Column("observed", "share of label 1", numeric=True, digits=3),
        Column("rows", "rows", numeric=True),
    )
    return Table("Calibration curve", columns, tuple(bin_._asdict() for bin_ in one.calibration.bins))


def calibration_words(one: Answer) -> str:
    """Sentences on whether the probabilities of the recommended model hold."""
    found, sets = one.calibration, one.sets
    a, b = found.intercept.interval(), found.slope.interval()
    return (
        f"Calibration intercept {_sign(found.intercept.value)} ({_ends(a)}; 0 is right), slope "
        f"{found.slope.value:.2f} ({b[0]:.2f} to {b[1]:.2f}; 1 is right, below probabilities are too extreme). "
        f"Conformal sets at {sets.level:.0%} for rows like those of {one.name}: they hold the label of "
        f"{sets.coverage:.1%} of its rows ({sets.coverage_of[0]:.1%} of label 0, {sets.coverage_of[1]:.1%} of label 1) "
        f"and name one label for {sets.single:.0%}. All of the model that is recommended, cross-fitted."
    )


def _where(one: Answer) -> str:
    """A sentence on where rows were."""
    if one.table.n_silos > 1:
        return "All rows were read in one place."
    return f"Rows of {one.name} stayed there; of each other silo one message came."


def _flow(one: Answer) -> Table:
    gaps = {silo.name: int((silo.features != silo.features).any(axis=1).sum()) for silo in one.table.silos}
    columns = (
        Column("silo", "silo"), Column("rows", "rows", numeric=True), Column("positive", "label 1", numeric=True),
        Column("gaps", "rows with a gap, kept", numeric=True), Column("role", "what for"),
    )  # fmt: skip
    roles = {one.name: "trains and judges"}
    rows = [
        (name, round(told.rows), round(told.positive), gaps.get(name), roles.get(name, "trains"))
        for name, told in zip(one.names, one.told, strict=True)
    ]
    return table_of("Rows", columns, rows)


def _ends(ends: tuple[float, float]) -> str:
    return f"{_sign(ends[0])} to {_sign(ends[1])}"


def _sign(value: float) -> str:
    return f"{value:+.3f}".replace("-", "−")
