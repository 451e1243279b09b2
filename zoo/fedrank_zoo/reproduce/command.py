"""``fedrank reproduce``: a paper's tables and figures, theirs beside ours; and what packages add."""

from __future__ import annotations

from pathlib import Path

from cyclopts import App

from fedrank.cli.report import drawn
from fedrank.cli.terminal import AsJson, Names, Quiet, add_plug_ins, headline, listener, print_json, say
from fedrank.core.errors import ConfigError, FedrankError, UnknownNameError

app = App(name="reproduce")
add_plug_ins(app, "reproduce")


@app.default
def reproduce(
    paper: str = "",
    /,
    *,
    only: Names = (),
    fraction: float = 1.0,
    out: Path | None = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Run a paper's tables and figures and lay its numbers beside ours. Started again, it goes on where it was stopped.

    Args:
        paper: Such as foltr-es or foltr-study, or the folder of a reproduction of your own; without it, what there is.
        only: Some of the studies, by name: --only table3 figure1.
        fraction: Part of the rounds and seeds to run, for a quick look: 0.1. Pages and tables say so.
        out: Directory of the runs and the page; by default runs/reproduce-PAPER.
    """
    from fedrank_zoo.reproduce.study import papers, read_paper

    if not paper:
        _list(map(read_paper, papers()), as_json)
        return
    if not 0 < fraction <= 1:
        raise ConfigError(f"fraction must be in (0, 1], got {fraction}.")
    known = read_paper(paper)
    studies = {study.name: study for study in known.studies}
    for name in only:
        if name not in studies:
            raise UnknownNameError(f"study of {known.name}", name, list(studies))
    chosen = [study for name, study in studies.items() if not only or name in only]
    quick = "" if fraction == 1 else f"-{fraction:g}"
    folder = out or Path("runs") / f"reproduce-{known.name}{quick}"
    from fedrank_zoo.reproduce.page import results, study_opening, write_study_page

    shown, page = [], None
    for study in chosen:  # the page is there from the first study on
        shown.append(_run(study, folder / study.name, fraction, quiet))
        page = write_study_page(known, shown, folder)
    sentence = study_opening(known, shown).sentence
    if as_json:
        print_json({"sentence": str(sentence), "page": None if page is None else str(page), **results(known, shown)})
        return
    _print(known, shown, sentence, page)


def _run(study, folder: Path, fraction: float, quiet: bool):
    from fedrank.report.load import load
    from fedrank_zoo.reproduce.page import StudyRuns
    from fedrank_zoo.reproduce.study import run_study

    try:
        if (compute := study.program_function) is not None:
            tables, charts = compute(study, fraction, listener(quiet, study.name))
            return StudyRuns(study, (), fraction, tables, charts=charts)
        done = run_study(study, folder, fraction, lambda name: listener(quiet, f"{study.name}: {name}"))
        return StudyRuns(study, tuple((variation, load(path)) for variation, path in done), fraction)
    except FedrankError as error:  # the other studies need not wait for it
        return StudyRuns(study, (), fraction, missing=str(error))


def _print(paper, shown, sentence, page: Path | None) -> None:
    from fedrank_zoo.reproduce.page import spending
    from fedrank_zoo.reproduce.page import table as values_table

    parts: list = [headline(sentence)]
    reasons: dict[str, str] = {}  # where several studies miss the same, it is told once
    for one in shown:
        if one.missing:
            same = reasons.get(one.missing)
            why = f"For the same reason as {same}." if same else one.missing
            reasons.setdefault(one.missing, one.study.title)
            parts.append(f"{one.study.title}: not run. {why}")
        # The tests over queries are on the page.
        made = (values_table(paper, one), spending(one)) if one.runs else ()
        for table in (*(each for each in made if each is not None), *one.tables):
            parts += [drawn(table), *(f"  {note}" for note in table.notes), ""]
    say(*parts, page=page)


def _list(papers, as_json: bool) -> None:
    if as_json:
        print_json([{"name": p.name, "title": p.title, "studies": [s.name for s in p.studies]} for p in papers])
        return
    for paper in papers:
        print(f"{paper.name}: {paper.title}")
        for study in paper.studies:
            print(f"    {study.name}: {study.title}")
