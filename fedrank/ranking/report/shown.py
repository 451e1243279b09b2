"""Contents of the page of a run that learns to rank, on devices or at one service."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import ClassVar

from typing_extensions import override

from fedrank.engine.study import Paper, Study
from fedrank.report import describe, sentences
from fedrank.report.curves import CurvesShown, leading_measure
from fedrank.report.opening import Number, Opening
from fedrank.report.run import Run
from fedrank.report.statistics import final_values, first_values, mean_interval

#: Protocols in which one service learns from everything.
_CENTRAL = ("pdgd", "dbgd", "mgd")


class RankingShown(CurvesShown):
    """Curves of the users' reward and of offline measures, beside rankers trained on labels."""

    party = ("device", "devices")
    learnt = "learnt from clicks"
    where: ClassVar[Mapping[str, str]] = {
        "test": "on queries it has not seen",
        "vali": "on validation queries",
        "train": "on the queries it learnt from",
        "online": "in the users’ own sessions",
    }
    replicates = ("fold", "data_seed")
    setting_names: ClassVar[Mapping[str, str]] = {
        "protocol": "protocol",
        "data.name": "data",
        "data": "data",
        "data.fold": "fold",
        "fold": "fold",
        "clicks": "users (click model)",
        "ranker": "ranker",
        "ties": "ties",
        "reward": "reward",
        "clients": "devices",
        "interactions": "interactions",
        "rounds": "rounds",
        "seeds": "seeds",
        "sigma": "perturbation σ",
        "presentation.name": "lists that are shown",
        "learning_rate": "learning rate",
        "server.learning_rate": "learning rate of the server",
        "privacy.p": "probability of a true report p",
    }

    @override
    def parties_of(self, run: Run) -> tuple[str, str]:
        return ("service", "services") if run.setting("protocol") in _CENTRAL else self.party

    @override
    def opening_of(self, run: Run) -> Opening:
        leading = leading_measure(run)
        one, many = self.parties_of(run)
        central = run.setting("protocol") in _CENTRAL
        number = _taking_part(run)
        who = f"one {one}" if central else many if number is None else f"{number:,} {many}"
        title = f"{_capital(who)} {'learns' if central else 'learn'} to rank from clicks: {self.data_words(run)}"
        if leading is None:
            return Opening(title, f"Nothing has been measured yet.{sentences.closing(run)}", self.costs(run))
        split, measure = leading
        final, start = final_values(run.metrics, split, measure), first_values(run.metrics, split, measure)
        reached, first = mean_interval(list(final.values())), mean_interval(list(start.values()))
        short = measure_words(measure)
        gain = mean_interval([final[seed] - start[seed] for seed in final])
        parts = [sentences.against(gain, first.mean, "the one it started as")]
        numbers = [
            Number(
                f"{short} {self.where[split]}", describe.format_value(reached.mean, digits=3), sentences.spread(reached)
            )
        ]
        known = [one for one in run.baselines if (split, measure) in one.values]
        if known:  # the strongest: what a sceptic would choose
            best = max(known, key=lambda one: one.values[split, measure])
            mark = best.values[split, measure]
            difference = reached.minus(mark)
            parts.append(sentences.against(difference, mark, "one trained on relevance labels"))
            note = (
                f"± {difference.half:.3f}, {sentences.interval_words(difference)}"
                if difference.half is not None
                else "one seed"
            )
            numbers.append(
                Number(f"Against {best.name}, trained on labels", sentences.format_difference(difference.mean), note)
            )
        sentence = (
            f"From clicks alone, {who} taught a ranker that, {self.where[split]}, is {describe.in_words(parts)}."
            f"{sentences.closing(run)}"
        )
        return Opening(title, sentence, (*numbers, *self.costs(run)), *self.opening_chart(run))

    @override
    def costs(self, run: Run) -> tuple[Number, ...]:
        return () if run.setting("protocol") in _CENTRAL else super().costs(run)

    @override
    def crossed_title(self, run: Run) -> str | None:
        return "What crossed" if run.setting("protocol") in _CENTRAL else None

    @override
    def nothing_crossed(self, run: Run) -> list[str]:
        return []

    @override
    def ledger_words(self, run: Run) -> list[str] | None:
        if run.setting("protocol") in _CENTRAL:
            return ["Nothing crosses: one service has everything. What its users send to it is not counted here."]
        return None

    @override
    def baseline_label(self, name: str) -> str:
        return name if name == "own rankers" else f"{name} (labels)"

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
        if run.metrics["measure"].str.ends_with("(own rankers)").any():
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
        return ["data", "fold", "holdout", *(["data_seed"] if drawn else [])]

    @override
    def baselines_depend_on(self, run: Run) -> list[str]:
        return ["data", "fold", "data_seed", "holdout", "normalise", "clicks"]

    @override
    def study_notes(self, paper: Paper, study: Study) -> list[str]:
        return ["All queries count unless a measure says (judged): those with a relevant document."]


def measure_words(measure: str) -> str:
    """A measure without what the page says of its users.

    >>> measure_words("expected MaxRR (navigational)"), measure_words("nDCG@10 (judged)")
    ('MaxRR', 'nDCG@10 (judged)')
    """
    return re.sub(r"^expected (.*) \(.*\)$", r"\1", measure)


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _taking_part(run: Run) -> int | None:
    """Number of devices that a run asks at least once, or None if its settings do not say."""
    clients, rounds, population = (run.setting(name) for name in ("clients", "rounds", "population"))
    if not isinstance(clients, int):
        return None
    if isinstance(population, int) and isinstance(rounds, int):
        return min(population, clients * rounds)
    return clients


SHOWN = RankingShown()
