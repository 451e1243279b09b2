"""``fedrank silos``: what a silo's statistician asks: coefficients of all rows, and whose models are worth having."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import cyclopts

from fedrank.cli.data import LabelledColumns, table_of
from fedrank.cli.report import drawn
from fedrank.cli.terminal import AsJson, Names, add_plug_ins, headline, in_style, print_json, say
from fedrank.core.errors import ConfigError, FormatError

app = cyclopts.App(name="silos", help="Statistics of tables that lie at several silos, and whose models help whom.")


@app.command
def compare(
    data: str,
    /,
    *,
    target: Names = (),
    meaning: Annotated[LabelledColumns, cyclopts.Parameter(name="*")] = LabelledColumns(),
    person: str = "",
    without: Names = (),
    messages: Path | None = None,
    codebook: Path | None = None,
    seed: int = 0,
    out: Path | None = None,
    save_model: Path | None = None,
    as_json: AsJson = False,
) -> None:
    """Find the silos whose models help: from all rows and one division, beside simple baselines.

    Args:
        data: A CSV or parquet file with a column for the silo; or the name of a set (fedrank data list). With
            --messages the file of the silo that asks.
        target: Silos that ask, by name; without it each in turn.
        meaning: What the columns mean.
        person: Column of persons who may have several rows, which stay in one fold.
        without: Silos that are left out.
        messages: The results.json of a study with a question of the model compare; the rows of others stay there.
        codebook: The study's codebook, with --messages.
        seed: Draws the folds.
        out: Also write everything there: a page (.html), or JSON.
        save_model: Also write the recommended model there, for fedrank evaluate; of one target.
    """
    from fedrank.silos.report.answer import answers_sentence
    from fedrank.silos.sceptic.compare import answer, targets_of

    left, coefficients = [], {}
    if messages is not None:
        if meaning != LabelledColumns() or person or save_model is not None:
            raise ConfigError("with --messages columns are the codebook's, and the model is among what --out writes.")
        made, coefficients = _by_messages(Path(data), messages, codebook, target, without, seed)
        answers, table = [made], made.table
    else:
        table = table_of(data, meaning, **({"person": person} if person else {}))
        for name in [table.names[table.index(name)] for name in without]:
            table = table.without(name)
        wanted, left = targets_of(table, target)
        if save_model is not None and len(wanted) != 1:
            raise ConfigError(f"a model is of one silo; name it: --target {table.names[wanted[0]]}.")
        answers = [answer(table, number, seed=seed) for number in wanted]
    made = {
        "sentence": str(answers_sentence(answers)),
        "data": table.name,
        "label": table.label,
        "generated": table.generated,
        "seed": seed,
        "notes": [*table.notes, *left],
        "answers": [one.as_json() for one in answers],
        **({"coefficients": coefficients} if coefficients else {}),
    }
    if out is not None and out.suffix in (".html", ".htm"):
        from fedrank.silos.report.answer import write_answers

        write_answers(made, answers, out)
    elif out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(json.dumps(made, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    if save_model is not None:
        from fedrank.silos.sceptic.compare import model_of

        model_of(answers[0]).save(save_model)
    if as_json:
        print_json(made)
        return
    _print(made, answers, out)


def _by_messages(
    data: Path, messages: Path, codebook: Path | None, target: Names, without: Names, seed: int
) -> tuple[Any, dict[str, float]]:
    """The answer of one silo by the messages of others, and the coefficients of the recommended model."""
    from fedrank.silos.sceptic.learners import Glm
    from fedrank.silos.studies.codebook import read_codebook
    from fedrank.silos.studies.comparison import Comparison, compare_at
    from fedrank.silos.studies.questions import prepare
    from fedrank.silos.studies.table import own_table

    if codebook is None or len(target) != 1:
        raise ConfigError("with --messages say --codebook, and the one silo whose file it is with --target.")
    book = read_codebook(codebook)
    try:
        results = json.loads(messages.read_text(encoding="utf-8"))
    except (OSError, ValueError) as cause:
        raise FormatError(f"these are no results of a study ({cause}).", messages) from cause
    if not isinstance(results, dict) or results.get("codebook_sha256") != book.sha:
        raise ConfigError(f"{messages} is not of this codebook ({book.sha[:12]}); take that of the study.")
    questions = [one for one in book.questions if one.model == "compare"]
    if not questions:
        raise ConfigError("the codebook's plan has no question of the model compare.")
    found = Comparison.of_results(results, questions[0].name, prepare(questions[0], book).design)
    found = Comparison({silo: one for silo, one in found.told.items() if silo not in without}, found.design)
    made = compare_at(own_table(data, book, target[0]), book, found, seed=seed)
    model = made.chosen.models[made.recommended]
    return made, found.coefficients(model) if isinstance(model, Glm) else {}


for _name, _help in (
    ("codebook", "Draft the codebook of a study from one silo's table, or check one and print its hash."),
    ("answer", "Answer a round of a study from one silo's own table; the answer is a file to send."),
    ("key", "Make a silo's key for secure sums, and print its public half for the codebook."),
    ("combine", "Take silos' answers into a study's folder: write the next round, or at the end the results."),
    ("analyse", "Simulate a study on a file that holds the rows of all silos."),
):
    app.command(f"fedrank.cli.studies:{_name}", name=_name, help=_help)
add_plug_ins(app, "silos")


def _print(made: dict[str, Any], answers: list[Any], out: Path | None) -> None:
    from fedrank.silos.report.answer import calibration_words, verdicts_table, ways_table

    shown: list[Any] = [headline(made["sentence"])] if len(answers) > 1 else []
    for one in answers:
        shown += [
            headline(one.headline()),
            *(in_style(f"! {warning}", "red") for warning in one.warnings()),
            drawn(ways_table(one), ("way", "auc", "gain")),
            drawn(verdicts_table(one), ("silo", "verdict", "gain", "visible", "like")),
            calibration_words(one),
        ]
    say(
        *shown,
        "Scores are out-of-fold (5 folds); what a way has to choose is chosen inside the training rows. Intervals: "
        "DeLong. Verdicts: corrected for the number of silos. "
        + (READ_ALL if answers[0].table.n_silos > 1 else "Of each other silo one message came; its rows stayed there."),
        *(f"- {note}" for note in made["notes"]),
        *([] if out is None else [f"written: {out}"]),
    )


#: What a command that computes on a file of all silos does with rows.
READ_ALL = "This command read the rows of all silos in one place."
