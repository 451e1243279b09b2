"""``fedrank privacy attack records``."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

from cyclopts import Parameter

from fedrank.cli.data import LabelledColumns, table_of
from fedrank.cli.terminal import AsJson, headline, print_json, say, table
from fedrank_zoo.noisy_statistics.command import Public
from fedrank_zoo.record_attack import MODES, RecordAttack


def records(
    data: str,
    /,
    *,
    of: str = "",
    meaning: Annotated[LabelledColumns, Parameter(name="*")] = LabelledColumns(),
    public: Annotated[Public, Parameter(name="*")] = Public(),
    settings: Annotated[RecordAttack, Parameter(name="*")] = RecordAttack(),
    as_json: AsJson = False,
) -> None:
    """Attack what a silo sends: was a record among its rows? Membership inference by shadow models (LiRA).

    Args:
        data: A CSV or parquet file with a column for the silo; or the name of a set (fedrank data list).
        of: The silo that is attacked, by name; without it the first.
        meaning: What the columns mean.
        public: Public ranges of the columns; without ranges nothing with noise is attacked.
        settings: The attack.
    """
    from fedrank.silos.sceptic.learners import rows_of
    from fedrank_zoo.record_attack.membership import attack_records, membership_sentence

    silos = table_of(data, meaning)
    number = silos.index(of) if of else 0
    ranges = public.of(silos.feature_names) if public.is_given else None
    found = attack_records(rows_of(silos)[number], ranges, settings)
    sentence = membership_sentence(found, silos.names[number])
    if as_json:
        told = {"data": silos.name, "of": silos.names[number], **asdict(settings)}
        print_json({"sentence": str(sentence), **told, "findings": [one.as_json() for one in found]})
        return

    columns = ("what is sent", "ε", "AUC of the attack \\[99 %]", "named, of 5 % wrong", "largest AUC that ε allows")
    title = f"{silos.names[number]}, {silos.silos[number].n_rows:,} rows"
    shown = table(*columns, numbers=columns[1:], whole=("what is sent",), title=title)
    for one in found:
        told = f"{one.auc:.3f} \\[{one.low:.3f}, {one.high:.3f}]"
        bad = "red" if one.broken else "green"
        epsilon, most = ("–", "–") if one.epsilon is None else (f"{one.epsilon:g}", f"{one.most:.3f}")
        shown.add_row(one.mode, epsilon, f"[{bad}]{told}[/{bad}]", f"{100 * one.found:.1f} %", most)
    modes = (f"{mode}: {MODES[mode]}." for mode in settings.modes)
    say(headline(sentence), shown, *modes, "0.5 is chance. Simulated noise, seeded.")
