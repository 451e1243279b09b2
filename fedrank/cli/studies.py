"""``fedrank silos codebook``, ``answer``, ``combine`` and ``analyse``: a study of tables that stay at their silos."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any, Literal

import cyclopts

from fedrank.cli.terminal import AsJson, Names, Switch, headline, print_json, say
from fedrank.core.errors import ConfigError, RunError
from fedrank.core.words import printable
from fedrank.engine.checkpoint import write_atomically
from fedrank.silos.studies.codebook import MODELS, Question, Rules, codebook_toml, read_codebook

Silos = Annotated[tuple[str, ...], cyclopts.Parameter(consume_multiple=True, negative="")]


def codebook(
    data: Path,
    /,
    *,
    study: str = "",
    silos: Silos = (),
    out: Path | None = None,
    site: str = "site",
    categorical: Names = (),
    identifier: Names = (),
    missing: Names = (),
    as_json: AsJson = False,
) -> None:
    """Draft the codebook of a study from one silo's table; of a codebook (.toml): check it, and print its hash.

    Args:
        data: A CSV or parquet file, or a codebook.
        study: Name of the study.
        silos: Names of the silos; without it those in the column of sites.
        out: File to write the draft to; without it the draft is printed.
        site: Column with the silo's name, in a file that has several.
        categorical: Columns of numbers that are names.
        identifier: Columns that name a person or a record; they are never read.
        missing: Values that mean a missing one in every column.
    """
    from fedrank.silos.studies.questions import prepare
    from fedrank.silos.studies.table import draft_codebook

    if data.suffix == ".toml":
        book = read_codebook(data)
        asked = [(one, prepare(one, book)) for one in book.questions]
        if as_json:
            print_json({"study": book.study, "sha256": book.sha, **book.as_json()})
            return
        say(
            headline(f"{book.study}: {len(book.silos)} silos, {len(book.columns)} columns; questions: {len(asked)}."),
            f"SHA-256: {book.sha}",
            *(f"- {one.name}: {one.model} {one.formula}, {made.parameters} coefficients" for one, made in asked),
        )
        return
    made, notes, alone = draft_codebook(
        data, study=study or data.name.split(".")[0], silos=silos, site=site, categorical=categorical,
        missing=missing, identifiers=identifier,
    )  # fmt: skip
    for note in alone:
        print(f"note for this silo alone: {printable(note)}", file=sys.stderr)
    text = codebook_toml(made, notes)
    if out is None:
        print(text, end="")
        return
    if out.exists():
        raise RunError(f"{out} exists; a codebook is not written over.")
    write_atomically(out, text.encode())
    say(
        f"written: {out}. Read each column, correct ranges and levels to what is public, add the plan's questions "
        f"([[plan.questions]]), and check it: fedrank silos codebook {out}",
    )


def answer(
    round_: Path,
    /,
    *,
    data: Path,
    silo: str,
    agreed: str,
    folder: Path,
    out: Path | None = None,
    yes: Switch = False,
    as_json: AsJson = False,
) -> None:
    """Answer a round of a study from one silo's own table, by the rules of the codebook; the answer is a file to send.

    Args:
        round_: The round's file, as the coordinator sent it.
        data: The silo's own CSV or parquet file.
        silo: The silo's name in the codebook.
        agreed: The codebook that the silo agreed to: its file, or its SHA-256 (twelve digits or more).
        folder: The silo's folder, which keeps the book of what left it; always the same one.
        out: File of the answer; without it beside the round, by its number and the silo's name.
        yes: Write the answer without asking; otherwise it is shown in words first.
    """
    from fedrank.silos.studies.messages import Round, read_message, write_message
    from fedrank.silos.studies.node import open_node

    asked: Round = read_message(round_, Round)
    sha = read_codebook(Path(agreed)).sha if Path(agreed).suffix == ".toml" else agreed
    node = open_node(data, asked.codebook, silo, folder, sha)
    if not node.book:
        for note in node.table.notes():
            print(f"note for this silo alone: {printable(note)}", file=sys.stderr)
    made = node.answer(asked, record=False)
    words = node.words(asked, made)
    out = out or round_.with_name(f"{round_.stem}-{asked.number}.{silo}.json")
    if out.exists():
        raise RunError(f"{out} exists; an answer is not written over. Name another file, or leave --out out.")
    if not yes:
        _ask_person(words)
    node.record(asked, made)
    size = write_message(made, out)
    if as_json:
        refused = {name: one.refused for name, one in made.replies.items() if one.refused}
        print_json({"silo": silo, "round": asked.number, "out": str(out), "bytes": size, "refused": refused})
        return
    say(
        f"written: {out}, {size / 1e3:,.1f} kB, to be sent to the coordinator. The book: {folder}",
        *(f"- {one}" for one in words),
    )


def _ask_person(words: list[str]) -> None:
    """Show what would leave, and go on where a person agrees."""
    print("This would leave the silo:", *(f"- {printable(one)}" for one in words), sep="\n")
    if not sys.stdin.isatty():
        raise ConfigError("a person must approve it, and this is no terminal; --yes answers without asking.")
    if input("Send it? [y/N] ").strip().lower() not in ("y", "yes"):
        raise ConfigError("not approved; nothing was written.")


def key(*, folder: Path) -> None:
    """Make a silo's key, where it has none, and print its public line, which goes into the codebook under [keys].

    By it the silo signs its answers, and agrees with the others on the masks of secure sums. The private half stays in
    the folder. A coordinator that signs its rounds makes one in the study's folder.

    Args:
        folder: The silo's folder, which also keeps the book of what left it.
    """
    from fedrank.silos.studies.keys import KEY, make_key, read_key

    path = folder / KEY
    print((read_key(path) if path.exists() else make_key(path)).public)


def combine(
    folder: Path,
    /,
    *answers: Path,
    codebook: Path | None = None,
    without: Names = (),
    as_json: AsJson = False,
) -> None:
    """Take silos' answers into a study's folder: write the next round, or at the end the results.

    Args:
        folder: The study's folder at the coordinator.
        answers: Files of answers that came in.
        codebook: The agreed codebook, where the study begins.
        without: Silos that are not waited for any longer.
    """
    from fedrank.silos.report.study import write_results
    from fedrank.silos.studies.coordinator import open_study
    from fedrank.silos.studies.messages import Answer, read_message
    from fedrank.silos.studies.results import headline as headline_of
    from fedrank.silos.studies.results import results_of

    with open_study(folder, codebook) as study:
        for path in answers:
            study.receive(read_message(path, Answer))
        if study.round is not None and (without or not study.waiting):
            study.close(without)
        asked = study.round
        written = [] if asked is not None else write_results(study.coordinator, folder / "results")
    if asked is not None:
        progress = study.coordinator.progress
        if as_json:
            left = {name: dict(one.left) for name, one in progress.items()}
            print_json({
                "round": asked.number, "file": str(study.round_file), "waiting": study.waiting, "left": left,
            })  # fmt: skip
            return
        say(
            headline(f"Round {asked.number} waits for {', '.join(study.waiting)}."),
            *(f"- {name} goes on without {one}." for name in progress for one in _silos_out(progress[name])),
            f"Send {study.round_file} to them; each runs: fedrank silos answer {study.round_file.name} --data OWN.csv "
            f"--silo NAME --agreed {study.codebook.sha[:12]} --folder BOOK",
        )
        return
    if as_json:
        print_json({"round": None, "files": [str(path) for path in written]})
        return
    told = [headline(str(headline_of(one, study.codebook))) for one in results_of(study.coordinator)]
    say(*told, *(f"written: {path}" for path in written))


def analyse(
    data: Path,
    /,
    *,
    formula: str = "",
    model: Literal[tuple(MODELS)] = "logistic",  # type: ignore[valid-type] - names are written once
    codebook: Path | None = None,
    errors: Literal["model", "robust", "cluster"] = "model",
    pool: Literal["rows", "silos"] = "rows",
    firth: Switch = False,
    penalty: float = 0.0,
    site: str = "",
    categorical: Names = (),
    missing: Names = (),
    identifier: Names = (),
    out: Path | None = None,
    as_json: AsJson = False,
) -> None:
    """Simulate a study on a file that holds the rows of all silos: the same rounds, answers and refusals.

    Args:
        data: A CSV or parquet file with a column for the silo.
        formula: What is asked, as in R: ill ~ age + ns(crp, 3) + strata(site). With --codebook its plan, without it.
        model: The model.
        codebook: The study's codebook; without it one is guessed from the file, no count is too small to be told, and
            silos that would refuse by a codebook's rules are named.
        errors: Standard errors.
        pool: rows: as if all rows lay together; silos: a meta-analysis of the silos' own fits.
        firth: Firth's penalty of a logistic model.
        penalty: Strength of an L2 penalty on columns of deviation 1.
        site: Column with the silo's name; by default that of the codebook, or site.
        categorical: Columns of numbers that are names.
        missing: Values that mean a missing one.
        identifier: Columns that name a person or a record; of cluster(id): the clusters.
        out: Also write the page, tables and a paragraph on methods to this folder.
    """
    from dataclasses import replace

    from fedrank.silos.report.study import write_results
    from fedrank.silos.studies.coordinator import run_study
    from fedrank.silos.studies.keys import Key
    from fedrank.silos.studies.node import Node
    from fedrank.silos.studies.results import as_jsons
    from fedrank.silos.studies.table import draft_codebook, pooled_tables

    about: dict[str, Any] = {"model": model, "formula": formula, "errors": errors, "pool": pool}
    about |= {"firth": firth, "penalty": penalty}
    name = formula.partition("~")[0].strip() or "question"
    question = Question(name=name, **about) if formula else None
    notes: list[str] = []
    if codebook is not None:
        book = read_codebook(codebook)
        book = replace(book, questions=(question,)) if question else book
    elif question is None:
        raise ConfigError("say what is asked: --formula 'ill ~ age + sex', or --codebook with a plan.")
    else:
        rules = Rules(smallest_cell=1, rows_per_parameter=0.0, events_per_parameter=0.0, exact_times=True)
        book, _, notes = draft_codebook(
            data, study=data.name.split(".")[0], site=site or "site", categorical=categorical, missing=missing,
            identifiers=identifier, questions=[question], rules=rules,
        )  # fmt: skip
    sha = book.sha
    keys = {silo: Key() for silo in book.silos} if book.keys else {}  # the silos' own are not here
    book = replace(book, keys={silo: key.public for silo, key in keys.items()})
    tables = pooled_tables(data, book, site)

    def simulate(book: Any) -> Any:
        nodes = [Node(replace(table, codebook=book), key=keys.get(table.silo)) for table in tables]
        return run_study(book, lambda asked: [node.answer(asked) for node in nodes])

    made = simulate(book)
    if codebook is None:
        notes += _refusals(simulate(replace(book, rules=Rules())))
    made.simulated, made.notes = True, tuple(notes)
    written: list[Any] = [] if out is None else write_results(made, out)
    if as_json:
        told = as_jsons(made)
        print_json({
            "sentence": told[0]["sentence"], "data": str(data), "codebook_sha256": sha, "questions": told,
        })  # fmt: skip
        return
    say(*_sections(made), *(f"written: {path}" for path in written))


def _refusals(strict: Any) -> list[str]:
    """Sentences on the silos that would refuse by the rules of a codebook as it is drafted."""
    rules, out = strict.codebook.rules, []
    for one in strict.progress.values():
        if one.left:
            kept = f"{sum(count or 0 for count in one.rows.values()):,} rows of {len(one.rows)} silos"
            out.append(
                f"By a drafted codebook's rules (smallest cell {rules.smallest_cell}) these silos would refuse: "
                + "; ".join(_silos_out(one))
                + (". There would be no result." if one.failed else f". The result would be of {kept}.")
            )
    return out


def _silos_out(one: Any) -> list[str]:
    """The silos that a question goes on without, by the reason."""
    by_reason: dict[str, list[str]] = {}
    for silo, why in one.left.items():
        by_reason.setdefault(why, []).append(silo)
    return [f"{', '.join(silos)} ({why})" for why, silos in by_reason.items()]


def _sections(made: Any) -> list[Any]:
    """For each question a headline, a table and notes."""
    from fedrank.cli.report import drawn
    from fedrank.silos.report.study import result_table
    from fedrank.silos.studies.results import headline as headline_of
    from fedrank.silos.studies.results import results_of, rounds_of

    out: list[Any] = []
    for one in results_of(made):
        out.append(headline(str(headline_of(one, made.codebook))))
        if one.progress.result is not None:
            shown = result_table(one, made)
            out.append(drawn(shown, tuple(column.key for column in shown.columns)))
        out += [f"{name}: {value:.6g}" for name, value in one.more.items()]
        out += [f"- {note}" for note in one.notes]
        crossed = f"{rounds_of(one)}, {one.progress.numbers:,} numbers from all silos"
        out.append(f"Where each silo keeps its rows this takes {crossed}; here they were read in one place.")
    return out
