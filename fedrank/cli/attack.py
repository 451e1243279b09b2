"""``fedrank privacy attack``: what privacy that is promised is worth against an attacker, in numbers.

``fedrank privacy audit``: attacks that show at least how much a mechanism reveals, beside what it promises.
"""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from cyclopts import App, Parameter

from fedrank.cli.terminal import AsJson, Quiet, add_plug_ins, headline, print_json, say, table
from fedrank.core.errors import ConfigError, FedrankWarning, MissingExtraError, RunError
from fedrank.core.privacy_report import DELTA
from fedrank.privacy.audit import AUDITS, Audited, audit_mechanism
from fedrank.report import claims
from fedrank.report.claims import Named, Sentence, Share
from fedrank.report.wording import in_words

app = App(
    name="attack",
    help="Attack what is promised to be private, and print measured beside promised.",
    default_parameter=Parameter(consume_multiple=1, negative=""),
)
add_plug_ins(app, "privacy.attack")


def audit(
    *mechanisms: str,
    epsilon: float = 1.0,
    delta: float = DELTA,
    trials: int | None = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Attack mechanisms with the code that devices run: a lower bound of ε, beside the promise.

    Messages are drawn in two worlds that should be hard to tell apart. Exit status 1 if more is shown than promised.
    Of a run its own mechanism is attacked, and what is found stands on the run's page.

    Args:
        mechanisms: Such as laplace-sums, or directories of runs; all mechanisms, if none is named.
        epsilon: ε that is promised, in nats.
        delta: δ that is promised, where the mechanism has one.
        trials: Messages drawn in each world; by default as many as bring the bound near the promise.
    """
    found = []
    for name in dict.fromkeys(mechanisms or AUDITS.names()):
        if not (quiet or as_json) and sys.stderr.isatty():
            print(f"auditing {name} …", file=sys.stderr)
        if name not in AUDITS.names() and Path(name).is_dir():
            found.append(_run_audited(Path(name), trials))
            continue
        try:
            found.append(audit_mechanism(AUDITS.get(name)(epsilon=epsilon, delta=delta), trials))
        except MissingExtraError as error:
            if mechanisms:
                raise
            warnings.warn(f"{name} is left out: {error}", FedrankWarning, stacklevel=2)
    broken = [one for one in found if one.broken and one.holds]
    sentence = audit_sentence(found)
    if as_json:
        audited = [{**asdict(one), "broken": one.broken} for one in found]
        print_json({"sentence": str(sentence), "audited": audited})
    else:
        _print(found, sentence)
    if broken:
        raise RunError(
            f"{', '.join(one.mechanism for one in broken)}: an attack shows more than is promised. Do not deploy this."
        )


def audit_sentence(found: Sequence[Audited]) -> Sentence:
    """Sentence on the number of mechanisms whose promise an attack breaks, and their names."""
    broken, known = (tuple(one.mechanism for one in found if one.broken and one.holds is ok) for ok in (True, False))
    sentence = claims.say("Mechanisms of which an attack shows more than is promised: ")
    sentence += claims.say(Share(len(broken) + len(known), len(found)))
    for names, about in ((broken, "; do not deploy "), (known, "; known to be broken: ")):
        if names:
            sentence += claims.say(about, Named(in_words(names)))
    return claims.say(sentence, ".")


def _run_audited(folder: Path, trials: int | None) -> Audited:
    """Audit what a run promised, and leave what is found in its directory and on its page."""
    from fedrank.engine.checkpoint import write_atomically
    from fedrank.report.load import load
    from fedrank.report.page import write_page

    privacy = load(folder).privacy
    if privacy is None or privacy.audit is None:
        said = (
            "the run has not written what it promises yet" if privacy is None else f"its noise is: {privacy.mechanism}"
        )
        raise ConfigError(
            f"{folder}: there is nothing to audit, {said}. Name a mechanism: fedrank privacy audit laplace-sums."
        )
    found = audit_mechanism(AUDITS.get(privacy.audit.name)(**privacy.audit.settings), trials)
    write_atomically(folder / "audit.json", (json.dumps(asdict(found), indent=2) + "\n").encode())
    write_page(load(folder))
    return found


def _print(found: Sequence[Audited], sentence: Sentence) -> None:
    columns = ("mechanism", "ε of one", "promised", "shown", "")
    title = "ε that is promised, and ε that an attack shows with 99 % confidence"
    shown = table(*columns, numbers=columns[2:4], whole=columns[:1], title=title)
    for one in found:
        at = f" at δ = {one.delta:.0e}" if one.delta else ""
        verdict = "BROKEN" if one.broken and one.holds else "broken, as known" if one.broken else "not broken"
        most = "≥ " if one.broken else ""
        shown.add_row(one.mechanism, one.unit + at, f"{one.promised:.3g}", f"{most}{one.shown:.3f}", verdict)
    numbers = [one.trials for one in found]
    trials = f"{min(numbers):,}" if min(numbers) == max(numbers) else f"{min(numbers):,} to {max(numbers):,}"
    say(
        headline(sentence),
        shown,
        "The worlds that are told apart:",
        *dict.fromkeys(f"  {one.mechanism}: {one.worlds}." for one in found),
        "ε is at least what is shown, whatever the mechanism does; that an attack shows less than is promised proves "
        f"nothing. {trials} messages were drawn in each world: of a mechanism that hides nothing they would have shown "
        f"{min(one.most for one in found):.1f} or more.",
    )
