"""Contents of the page of a run that learns to rank, on devices or at one service."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from typing import ClassVar

from typing_extensions import override

from fedrank.core.privacy_report import Unit
from fedrank.report import describe, sections, wording
from fedrank.report.claims import Comparison, Measured, Named, Number, Opening, Sentence, Unseen, Verdict, list_all, say
from fedrank.report.curves import NOTHING_YET, CurvesShown, leading_measure
from fedrank.report.run import Run
from fedrank.report.statistics import final_values, first_values, mean_interval

#: Protocols in which one service learns from everything.
_CENTRAL = ("pdgd", "dbgd", "mgd")


class RankingShown(CurvesShown):
    """Curves of the users' reward and of offline measures, beside rankers trained on labels."""

    party = ("device", "devices")
    learnt = "learnt from clicks"
    baseline_names: ClassVar[Mapping[str, str]] = {"own rankers": "own rankers"}
    where: ClassVar[Mapping[str, str]] = {
        "test": "on queries it has not seen",
        "vali": "on validation queries",
        "train": "on the queries it learnt from",
        "online": "in the users’ own sessions",
    }
    replicates = ("fold", "data_seed")

    @override
    def parties_of(self, run: Run) -> tuple[str, str]:
        return ("service", "services") if run.setting("protocol") in _CENTRAL else self.party

    @override
    def opening(self, run: Run) -> Opening:
        leading = leading_measure(run)
        one, many = self.parties_of(run)
        central = run.setting("protocol") in _CENTRAL
        number = _taking_part(run)
        who = f"one {one}" if central else many if number is None else f"{number:,} {many}"
        clicks = bool(len(run.metrics.where(split="online")))  # an own method may learn from labels, without a session
        how = f"{'learns' if central else 'learn'} to rank{' from clicks' * clicks}"
        title = f"{wording.capital(who)} {how}: {self.data_words(run)}"
        if leading is None:
            return Opening(title, say(NOTHING_YET, describe.closing(run)), self.costs(run))
        split, measure = leading
        place = f"{self.where[split]}"
        reached = Measured(mean_interval(list(final_values(run.metrics, split, measure).values())), measure)
        gain, labels = _compare(run, split, measure)
        numbers = [Number(f"{measure_words(measure)} {place}", reached)]
        if labels is not None:
            numbers.append(Number(f"Against {_strongest(run, split, measure)}, trained on labels", labels))
        if gain.verdict is Verdict.NOT_TOLD_APART:
            sentence = say(
                f"From {'the clicks of ' * clicks}{who} no ranker was learnt that, {place}, is ", Unseen(gain)
            )
            sentence += say("; it is ", labels, ".") if labels is not None else say(".")
        else:
            said = list_all([part for part in (gain, labels) if part is not None])
            began = f"From clicks alone, {who}" if clicks else wording.capital(who)
            sentence = say(f"{began} taught a ranker that, {place}, is ", said, ".")
        sentence += _other_measure(run, split, measure, gain, labels) + describe.closing(run)
        chart = self.opening_chart(run)
        learnt = gain.verdict is Verdict.BETTER
        return Opening(title, sentence, (*numbers, *self.costs(run)), *chart, advice=_advice(run, number, learnt))

    @override
    def costs(self, run: Run) -> tuple[Number, ...]:
        return () if run.setting("protocol") in _CENTRAL else super().costs(run)

    @override
    def crossed_title(self, run: Run) -> str | None:
        return "What crossed" if run.setting("protocol") in _CENTRAL else None

    @override
    def ledger_words(self, run: Run) -> list[str] | None:
        if run.setting("protocol") in _CENTRAL:
            return ["Nothing crosses: one service has everything. What its users send to it is not counted here."]
        return None

    @override
    def baseline_notes(self, run: Run) -> list[str]:
        if not run.baselines:
            return ["This run has no label-trained baseline."]
        names, verb = " and ".join(one.name for one in run.baselines), "is" if len(run.baselines) == 1 else "are"
        return [f"{names} {verb} trained on relevance labels, which no {self.parties_of(run)[0]} here has."]

    @override
    def subject(self, run: Run) -> str:
        return f"{run.setting('clicks')} users"

    @override
    def headline(self, run: Run) -> str:
        data, fold = run.setting("data"), run.setting("fold")
        clicks = ", ".join(map(str, run.setting("devices.users") or ())) or run.setting("clicks")
        ranker = run.setting("ranker")
        parts = (
            run.setting("protocol"),
            data if fold is None else f"{data}, fold {fold}",
            clicks and f"{clicks} users",
            ranker and f"{ranker} ranker",
        )
        return " · ".join(str(part) for part in parts if part and not isinstance(part, Mapping))

    @override
    def caveats(self, run: Run) -> list[str]:
        out = [str(warning) for warning in (run.model or {}).get("warnings") or ()]
        if caveat := (run.model or {}).get("caveat"):
            out.append(str(caveat))
        if share := run.setting("attack.share"):
            out.append(f"{share:.0%} of the devices lie: {run.setting('attack.kind')}".replace("%", " %", 1))
        if dealt := run.setting("devices.users"):
            out.append(f"Devices have different users: {', '.join(map(str, dealt))}")
        kinds = {"topic": "devices have queries of one topic", "labels": "devices see documents of few grades"}
        if kind := kinds.get(str(run.setting("share"))):
            out.append(kind.capitalize())
        if any(name.endswith("(own rankers)") for name in run.metrics.unique("measure")):
            out.append("Each device has its own ranker, measured as (own rankers): means over 20 of them")
        for key, said in (("dropout", "of the replies do not arrive"), ("late", "of the replies are late")):
            if part := run.setting(f"devices.{key}"):
                out.append(f"{part:.0%} {said}".replace("%", " %", 1))
        return out

    @override
    def qualified(self, run: Run, split: str, measure: str) -> str:
        return f"{measure} of {self.subject(run)}" if split == "online" else measure

    @override
    def same_question(self, run: Run) -> str:
        fold = run.setting("fold")
        return f"{run.setting('data')}" + ("" if fold is None else f", fold {fold}")

    @override
    def data_settings(self, run: Run) -> list[str]:
        drawn = self.generated(run) or run.setting("holdout")  # else the seed says what devices have, and no more
        return ["data", "fold", "divide", "holdout", *(["data_seed"] if drawn else [])]


def _strongest(run: Run, split: str, measure: str) -> str | None:
    """Name of the best ranker trained on labels, which a sceptic would choose; None if the run has none."""
    known = {one.name: one.values[split, measure] for one in run.baselines if (split, measure) in one.values}
    return max(known, key=known.__getitem__) if known else None


def _compare(run: Run, split: str, measure: str) -> tuple[Comparison, Comparison | None]:
    """The final value against that at the start, and against the best ranker trained on labels."""
    final, start = final_values(run.metrics, split, measure), first_values(run.metrics, split, measure)
    first = mean_interval(list(start.values())).mean
    gain = mean_interval([final[seed] - start[seed] for seed in final])
    gained = Comparison(gain, "the one it started as", first)
    best = _strongest(run, split, measure)
    if best is None:
        return gained, None
    mark = next(one.values[split, measure] for one in run.baselines if one.name == best)
    against = mean_interval(list(final.values())).minus(mark)
    return gained, Comparison(against, "one trained on relevance labels", mark)


def _other_measure(run: Run, split: str, measure: str, gain: Comparison, labels: Comparison | None) -> Sentence:
    """The reading of nDCG where it contradicts that of the measure in the sentence."""
    other = next((one for one in run.measures(*describe.OFFLINE) if one.startswith("nDCG") and one != measure), None)
    if other is None or not final_values(run.metrics, split, other):
        return Sentence(())
    opposite = {Verdict.BETTER: Verdict.WORSE, Verdict.WORSE: Verdict.BETTER}
    pairs = zip((gain, labels), _compare(run, split, other), strict=True)
    turned = [its for ours, its in pairs if ours and its and its.verdict is opposite.get(ours.verdict)]
    return say(" By ", Named(other), " it is ", list_all(turned), ".") if turned else Sentence(())


def measure_words(measure: str) -> str:
    """A measure without what the page says of its users.

    >>> measure_words("expected MaxRR (navigational)"), measure_words("nDCG(dcg='exp-log2')@10 (judged)")
    ('MaxRR', "nDCG(dcg='exp-log2')@10 (judged)")
    """
    return re.sub(r"^expected (.*) \(.*\)$", r"\1", measure)


#: Fewest devices that a plan is made for.
_LEAST_PLANNED = 500


def _advice(run: Run, devices: int | None, learnt: bool) -> tuple[str, str]:
    """Own queries after generated ones; a plan where no user is promised anything; after a gain a hub."""
    protocol, data = run.setting("protocol"), shlex.quote(str(run.setting("data")))
    if run.shown.generated(run):
        return "run it on your queries with labels:", f"fedrank run {protocol} --data my-letor-folder"
    if protocol in _CENTRAL:
        return "learn without collecting the clicks:", f"fedrank run foltr-es --data {data}"
    if run.privacy is None or run.privacy.epsilon(Unit.USER) > sections.MEANINGFUL:
        enough = devices if devices is not None and devices >= _LEAST_PLANNED else 20_000
        command = f"fedrank privacy plan --data {data} --devices {enough}"
        return "see what is learnt at ε = 1 of a user’s whole life:", command
    if protocol != "foltr-es" or run.model is None or not learnt:
        return "", ""
    features = run.model["n_features"]
    return "train it on real devices:", f"fedrank hub serve hub --n-features {features} --devices {devices or 20000}"


def _taking_part(run: Run) -> int | None:
    """Number of devices that a run asks at least once, or None if its settings do not say."""
    clients, rounds, population = (run.setting(name) for name in ("clients", "rounds", "population"))
    if not isinstance(clients, int):
        return None
    if isinstance(population, int) and isinstance(rounds, int):
        return min(population, clients * rounds)
    return clients


SHOWN = RankingShown()
