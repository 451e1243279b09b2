"""Tables of runs over silos: who helps a target, with what evidence; rows of each silo; the headline differences."""

from __future__ import annotations

import math
from typing import Any

from fedrank.core.ledger import Ledger
from fedrank.core.words import format_count
from fedrank.report import wording
from fedrank.report.run import Run
from fedrank.report.statistics import Interval, final_values, mean_interval, p_is, p_value
from fedrank.report.tables import Column, Table, filled, table_of
from fedrank.report.words import flows, models_in, models_of
from fedrank.silos.report.figures import LOSS, SYMBOLS, baseline_values, measure_name, measured_by
from fedrank.silos.report.files import Findings, Helper, Silos

#: A caveat on figures; pages and terminals have the sentences that say whose AUC, and why.
UNDEFINED = "Some AUCs are undefined, see the notes"

#: Exchanges between silos before the first round, and what each is for.
SETUP = ("pretrain", "probe", "tell", "refit")
EXCHANGES = {
    "pretrain": "before the first round every silo trains by itself",
    "probe": "before the first round the target judges the silos' first models",
    "train": "silos train the model on their own rows",
    "train-others": "the other silos train the model on their own rows",
    "judge": "the target judges an average of models",
    "judge-all": "every average that is tried is judged",
    "train-and-judge": "the target trains, and judges averages of the round before",
    "tell": "the other silos tell what their rows say of a regression, once",
    "refit": "the target fits its model to all of its rows, shrunk to silos that are alike, once",
}


def ledger_words(run: Run) -> list[str]:
    """Sentences on what crossed between silos and the server, by exchange: messages, models, bytes.

    A silo is asked in some rounds and not in others, so that nothing is said per silo and round.
    """
    ledger = run.ledger or Ledger()
    lines, models = [flow for flow in flows(ledger) if flow.messages], models_of(run)
    rounds = max((entry.round for entry in ledger), default=-1) + 1
    out = []
    for exchange in dict.fromkeys(flow.exchange for flow in lines):
        parts = []
        for flow in (flow for flow in lines if flow.exchange == exchange):
            who = "the server sent" if flow.sender == "server" else "silos sent"
            holds = models_in(models, flow)
            inside = f" with {format_count(holds, 'model')} each" if holds else ""
            size = f"{wording.size(flow.bytes_each)}{' each' if flow.messages > 1 else ''}"
            parts.append(f"{who} {format_count(flow.messages, 'message')} {flow.message}{inside}, {size}")
        turns = len({entry.round for entry in ledger if entry.exchange == exchange})
        when = "" if exchange in SETUP else f", in {format_count(turns, 'round')}"
        said = EXCHANGES.get(exchange)
        out.append(f"Exchange “{exchange}”{f' ({said})' if said else ''}: {'; '.join(parts)}{when}.")
    count, transfers = sum(f.messages for f in lines), sum(f.messages * models_in(models, f) for f in lines)
    up, down = ledger.bytes_from("parties"), ledger.bytes_from("server")
    of_models = f", {format_count(transfers, 'transfer')} of a model" if transfers else ""
    seeds = "" if len(run.seeds) == 1 else "; other seeds may ask other silos, and move more or less"
    which = f", target {run.details.targets[0]}" if len(run.details.targets) > 1 else ""
    out.append(
        f"{format_count(rounds, 'round')} made {format_count(count, 'message')}{of_models}, {wording.size(up)} up and "
        f"{wording.size(down)} down, for one run of one seed{which}{seeds}. Transport (TCP, TLS, HTTP) comes on top."
    )
    return out


#: Decimals of an AUC and of differences of AUCs.
DIGITS = 3
#: Keeps a symbol and its words on one line.
NBSP = "\N{NO-BREAK SPACE}"


def helpers_table(run: Run, target: str) -> Table:
    """The effect of every other silo on a target: paired difference, p-value, verdict, Shapley value, share of rounds.

    Args:
        run: A run over silos with evidence for the target.
        target: One of its targets.
    """
    silos, found = run.details, run.details.findings[target]
    counts = {h.n for h in found.helpers}
    rows = [
        {
            "silo": helper.name,
            "verdict": verdict(helper),
            "difference": helper.difference,
            "evidence": p_value(helper.p if helper.n else None),
            "visible": helper.visible,
            "n": helper.n if len(counts) > 1 else None,
            "shapley": helper.shapley,
            "played": _percent(played_share(silos, found, helper.name)) if found.played else None,
            "own": (helper.inverted or {}).get("auc"),
        }
        for helper in found.helpers
    ]
    measure = measured_by(run)
    always = (
        Column("silo", "silo"),
        Column("verdict", "verdict"),
        Column("difference", f"paired difference of {measure}", numeric=True, signed=True, digits=DIGITS),
        Column("evidence", "p", numeric=True),
    )
    if_known = (
        Column("visible", "harm that would have been seen", numeric=True, digits=DIGITS),
        Column("n", "rounds compared", numeric=True),
        Column("shapley", "Shapley value", numeric=True, signed=True, digits=DIGITS),
        Column("played", "in the averaged set", numeric=True),
        Column("own", f"{measure} of the silo's first model", numeric=True, digits=DIGITS),
    )
    notes = [f"The labels of {h.name} {labels(h)}." for h in found.helpers if h.looks_inverted]
    if len(counts) == 1:
        notes.append(f"Each was compared in {counts.pop():,} rounds over {seeds(run)}.")
    alone = [c for c, share in found.played.items() if c.count("1") == 1 and share > 0]
    if alone:
        notes.append(f"The target alone was played in {_percent(sum(found.played[c] for c in alone))} of the rounds.")
    if any(h.n == 0 for h in found.helpers):
        notes.append("A silo that was never judged beside its absence has no difference: that says nothing about it.")
    return Table(f"Who helps {target}", (*always, *filled(if_known, rows)), tuple(rows), tuple(notes))


def sceptic_table(run: Run, target: str) -> Table | None:
    """Table of simple baselines of a target on the same rows, with the run's difference to each; None without any."""
    about = run.details.sceptic.get(target)
    if not about:
        return None
    rows = [
        (one["title"], one["mean"], difference_of(one))
        for way, one in about["ways"].items()
        if one["kind"] == "baseline" or way == "recommended"
    ]
    measure = measured_by(run)
    columns = (
        Column("way", "way"),
        Column("mean", f"test {measure}", numeric=True, digits=DIGITS),
        Column("difference", "this run’s model minus it", numeric=True, signed=True, digits=DIGITS),
    )
    notes = (
        f"On {about['rows']:,.0f} rows of {target}, those that train and those that validate; the other silos’ "
        "training rows. Recommended: chosen inside these rows, see fedrank silos compare.",
    )
    return table_of(f"Simple baselines for {target}", columns, rows, notes)


def look_table(run: Run, target: str) -> Table | None:
    """The verdicts of one division of a target's rows, from before the first round; None without any."""
    about = run.details.looks.get(target)
    if not about:
        return None
    rows = [
        (
            name,
            "; ".join([one["text"], *(_ALARMS[kind] for kind in one["alarms"])]),
            None if one["gain"] is None else Interval(one["gain"], one["low"], one["high"]),
            *(p_value(one["p"]), one["weight"], one["auc_as_it_is"]),
        )
        for name, one in about["silos"].items()
    ]
    columns = (
        Column("silo", "silo"),
        Column("verdict", "verdict"),
        Column("gain", "AUC with its rows", numeric=True, signed=True, digits=DIGITS),
        Column("p", "p", numeric=True),
        Column("weight", "weight in the shrunk model", numeric=True, digits=2),
        Column("as", "AUC of its model as it is", numeric=True, digits=DIGITS),
    )
    reached = {name: about[name] for name in ("auc", "over_alone")}
    auc, gain = (Interval(one["value"], one["low"], one["high"]) for one in reached.values())
    notes = (
        f"Recommended: {about['title']}, AUC {wording.format_value(auc, digits=DIGITS)}, over alone "
        f"{wording.format_value(gain, signed=True, digits=DIGITS)}, chosen anew in each fold of the rows of {target}.",
    )
    return table_of(f"A first look for {target}", columns, rows, notes)


#: What a first look calls what looks wrong at a silo.
_ALARMS = {
    "inverted": "labels look inverted",
    "permuted": "labels look permuted",
    "constant": "one label only",
    "copy": "the rows of another silo",
    "twice": "rows more than once",
    "units": "another unit",
}


def difference_of(one: Any) -> Interval:
    """Difference of the run's model to a baseline of ``sceptic.json``."""
    found = one["difference"]
    return Interval(float(found["mean"]), found["low"], found["high"])


def explain_columns(silos: Silos) -> list[str]:
    """Sentences on the columns of :func:`helpers_table`."""
    out = [
        "Paired difference: on validation rows, the target's model averaged with the silo minus without it, in the "
        "same round, mean over the rounds and seeds in which both were judged. Above 0 the silo helps.",
        "In brackets: the 95 % interval over seeds, of three or more.",
    ]
    units = {helper.unit for found in silos.findings.values() for helper in found.helpers}
    if "seeds" in units:
        out.append(
            "p: Student's t test of one number a seed, the mean over its rounds, multiplied by the number of silos "
            "that are asked about for the target. A verdict needs p below 0.05. Seeds divide the same rows anew: a "
            "verdict is about the rows that the silos have."
        )
        out.append(
            "Harm that would have been seen: one that this test finds with a probability of 0.8, by the spread over "
            "seeds. “No evidence” is no proof that there is none below it."
        )
    if "rounds" in units:
        out.append(
            "Fewer than three seeds give no verdict: a difference may have the same sign in every round because of the "
            "very rows that models were validated on. Run several seeds, which divide the rows anew."
        )
    if any(helper.shapley for found in silos.findings.values() for helper in found.helpers):
        out.append(
            "Shapley value: what the silo adds to what all silos together add, averaged over all orders in which they "
            "could join."
        )
    return out


def rows_table(run: Run) -> Table:
    """Table of each silo's number of rows, and share of label 1."""
    rows = [{"silo": name, **of, "positive": _percent(of.get("positive"))} for name, of in run.details.rows.items()]
    columns = (
        Column("silo", "silo"),
        Column("train", "training rows", numeric=True),
        Column("vali", "validation rows", numeric=True),
        Column("test", "test rows", numeric=True),
        Column("positive", "label 1", numeric=True),
    )
    return Table("Whose rows", columns, tuple(rows), (*run.details.notes, *run.details.undefined))


def best_test(run: Run, target: str) -> dict[int, float]:
    """Test AUC by seed of the target's model: fitted to all rows, else the best on validation rows, else the last."""
    measure = measured_by(run)
    for base in (f"{measure}, refit", f"{measure}, best so far", measure):
        values = final_values(run.metrics, "test", measure_name(run, base, target))
        if values:
            return values
    return {}


def is_refit(run: Run, target: str) -> bool:
    """True if the target's model was fitted anew to all of the target's rows, those that validate among them."""
    return bool(final_values(run.metrics, "test", measure_name(run, f"{measured_by(run)}, refit", target)))


def against(run: Run, target: str, name: str) -> Interval | None:
    """Test AUC of the target's model minus what another way of training reached; above 0 the target's is better.

    Args:
        run: A run over silos.
        target: One of its targets.
        name: ``"alone"`` or ``"everyone"``.

    Returns:
        None if the run has no such number. Paired by seed where the run wrote that; else the difference of means
        without an interval, because the mean of the other has its own spread.
    """
    found = run.details.findings.get(target)
    models = found.against.get(name, {}) if found else {}
    paired = models.get("refit", models.get("best", models.get("last")))
    if paired is not None:
        return paired
    values, constant = list(best_test(run, target).values()), baseline_values(run, target).get(name)
    if not values or constant is None:
        return None
    better = -1.0 if measured_by(run) == LOSS else 1.0
    return Interval(better * (mean_interval(values).mean - constant))


def seeds(run: Run) -> str:
    """Number of seeds with its noun: "1 seed", "5 seeds"."""
    return f"{len(run.seeds)} seed{'' if len(run.seeds) == 1 else 's'}"


def verdict(helper: Helper) -> str:
    """The verdict with its symbol, or "not compared"."""
    return "not compared" if helper.n == 0 else f"{SYMBOLS[helper.verdict]} {helper.verdict}".replace(" ", NBSP)


def labels(helper: Helper) -> str | None:
    """The verdict about a silo's labels, to follow the word "labels"; None if it was not tested."""
    if not helper.inverted:
        return None
    auc, p = helper.inverted.get("auc"), helper.inverted.get("p")
    numbers = [f"AUC {auc:.2f}"] if auc is not None else []
    numbers += [p_is(p)] if p is not None else []
    said = str(helper.inverted.get("verdict", "")).removeprefix("labels ")
    return f"{said} ({', '.join(numbers)})" if numbers else said


def warning(run: Run, target: str, helper: Helper) -> str:
    """One sentence or two about a silo that harms a target, with all of the evidence."""
    mean, low, high = ("–",) * 3
    if helper.difference is not None:
        ends = (helper.difference.mean, helper.difference.low, helper.difference.high)
        mean, low, high = (wording.format_value(end, signed=True, digits=DIGITS) for end in ends)
    p = p_is(helper.p)
    said = (
        f"averaging with it changes {target}’s {measured_by(run)} by {mean} (95 % interval over seeds {low} to "
        f"{high}; {p}, corrected for the number of silos; {helper.n:,} paired rounds over {seeds(run)})."
    )
    if helper.looks_inverted:
        said += f" Its labels {labels(helper)}."
    return said


def played_share(silos: Silos, found: Findings, name: str) -> float | None:
    """Share of rounds in which a silo was in the set whose average became the model; None if nothing was played."""
    if not found.played:
        return None
    digit = silos.names.index(name)
    return math.fsum(share for code, share in found.played.items() if code[digit : digit + 1] == "1")


def _percent(share: Any) -> str:
    return "–" if share is None else f"{share:.0%}".replace("%", " %")
