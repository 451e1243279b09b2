"""How the page of a run of silos with texts opens: what a search of everybody's documents is worth, beside BM25."""

from __future__ import annotations

from fedrank.report import describe, sentences
from fedrank.report.charts import Chart
from fedrank.report.figures import Level, levels_figure
from fedrank.report.opening import Number, Opening
from fedrank.report.run import Run
from fedrank.report.statistics import Estimate, mean_interval
from fedrank.texts.report import privacy
from fedrank.texts.report.files import BM25, BM25_EXACT, FEDERATED, LOCAL
from fedrank.texts.report.tables import details_of, gain, lead, unjudged
from fedrank.texts.report.words import UNPROTECTED

#: Name of the chart that the page opens with.
CHART = "opening"


def opening_of(run: Run) -> Opening:
    """Title, sentence, chart and numbers of a run of silos with texts."""
    texts = details_of(run)
    data = run.setting("data.name", run.setting("data"))
    known = "generated texts" if run.shown.generated(run) or not isinstance(data, str) else data
    title = f"Searching the texts of {len(texts.silos)} silos together: {known}"
    sentence, numbers = _searched(run) if _of_search(run) else _own(run)
    if texts.mode in UNPROTECTED:
        sentence += " Nothing protects the documents: see the warning."
    elif texts.insider is not None and texts.insider.readable:
        sentence += " Other silos can read the documents: see the warning."
    elif texts.insider is not None and texts.insider.found is not None and not texts.insider.finds:
        sentence += _hidden(run)
    costs = []
    if run.ledger is not None and len(run.ledger):
        up, down = (run.ledger.bytes_from(who) / len(texts.silos) for who in ("parties", "server"))
        costs.append(
            Number("Sent by a silo in all", describe.size(round(up)), f"{describe.size(round(down))} received")
        )
    if (private := privacy.tile_words(run)) is not None:
        costs.append(Number(*private))
    chart = (CHART, f"{_title(run)}. The same numbers are in the tables below.") if _levels(run) else ("", "")
    return Opening(title, sentence + sentences.closing(run), (*numbers, *costs), *chart)


def chart(run: Run) -> Chart | None:
    """What each way of searching reached; None without values."""
    levels = _levels(run)
    if not levels:
        return None
    said = [describe.seeds_in_words(len(run.seeds)).replace("band", "line"), *describe.caveats(run)]
    return levels_figure(levels, _title(run), said)


def _of_search(run: Run) -> bool:
    """Whether the page opens with the search of all documents: it has values, and foreign documents are judged."""
    from_home = lead(run, FEDERATED, BM25, scope="federation", at="home")
    return from_home is not None and not unjudged(run)


def _searched(run: Run) -> tuple[str, list[Number]]:
    texts = details_of(run)
    measure = str(texts.searched)
    from_home, trained = (lead(run, FEDERATED, BM25, scope="federation", at=at) for at in ("home", "federation"))
    assert from_home is not None  # asked before
    home, plain = (_mean(run, BM25, scope) for scope in ("home", "federation"))
    sentence = (
        f"Searching all {len(texts.silos)} silos’ documents is "
        f"{sentences.against(from_home, home, 'searching only one’s own with BM25')}"
    )
    numbers = [Number(f"{measure} against BM25 at home", sentences.signed(from_home.mean), _note(from_home))]
    if trained is not None:
        sentence += f"; the trained ranker is {sentences.against(trained, plain, 'plain BM25 in the same search')}"
        numbers.append(Number("Training against BM25 in that search", sentences.signed(trained.mean), _note(trained)))
    return f"{sentence}.", numbers


def _hidden(run: Run) -> str:
    """What is left of a search where other silos neither read documents nor find texts."""
    said = " Other silos were not seen to read the documents or to tell whether a text is there (see the attacks below)"
    seen, exact = (_mean(run, name, "federation") for name in (BM25, BM25_EXACT))
    if unjudged(run) or not exact:
        return f"{said}."
    return (
        f"{said}: BM25 reaches {seen:.3f} in what they see, and {exact:.3f} with exact counts, which owners have who "
        "look queries up at home (fedrank serve search)."
    )


def _own(run: Run) -> tuple[str, list[Number]]:
    measure = details_of(run).measure
    over_bm25, over_local = lead(run, FEDERATED, BM25), gain(run)
    parts, numbers = [], []
    for name, value, said in ((BM25, over_bm25, "plain BM25"), (LOCAL, over_local, "one trained by the silo alone")):
        if value is not None:
            parts.append(sentences.against(value, _mean(run, name, "own"), said))
            numbers.append(Number(f"{measure} against {name}", sentences.signed(value.mean), _note(value)))
    if not parts:
        reached = _mean(run, FEDERATED, "own")
        return f"On its own documents a silo reaches {measure} {reached:.3f}; there is nothing to compare with.", []
    return f"On a silo’s own documents, the ranker trained together is {describe.in_words(parts)}.", numbers


def _levels(run: Run) -> list[Level]:
    texts = details_of(run)
    rows = (
        [
            ("Trained ranker, all documents", FEDERATED, "federation"),
            ("BM25, all documents", BM25, "federation"),
            ("BM25 at home", BM25, "home"),
            ("Own ranker at home", LOCAL, "home"),
        ]
        if _of_search(run)
        else [
            ("Trained together", FEDERATED, "own"),
            ("BM25, not trained", BM25, "own"),
            ("Trained alone", LOCAL, "own"),
        ]
    )
    levels = []
    for name, method, scope in rows:
        measure = texts.measure if scope == "own" else texts.searched
        values = list(texts.values(method, str(measure), scope=scope).values())
        if values:
            found = mean_interval(values)
            ours = method == FEDERATED
            low, high = (
                (found.low, found.high) if ours and found.low is not None and found.high is not None else (None, None)
            )
            ends = (None, None) if low is None or high is None else (max(low, 0.0), min(high, 1.0))
            levels.append(Level(name, found.mean, *ends, ours=ours))
    return levels


def _title(run: Run) -> str:
    texts = details_of(run)
    return f"{texts.searched} of a search" if _of_search(run) else f"{texts.measure} on a silo’s own documents"


def _mean(run: Run, method: str, scope: str) -> float:
    texts = details_of(run)
    measure = texts.measure if scope == "own" else texts.searched
    values = list(texts.values(method, str(measure), scope=scope).values())
    return mean_interval(values).mean if values else 0.0


def _note(value: Estimate) -> str:
    return (
        sentences.interval_words(value)
        if value.half is None
        else f"± {value.half:.3f}: {sentences.interval_words(value)}"
    )
