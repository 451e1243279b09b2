"""What runs of devices, or of one service, that learn to rank show."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from typing_extensions import override

from fedrank.engine.study import Paper, Study
from fedrank.report.curves import CurvesShown
from fedrank.report.run import Run

#: Protocols in which one service learns from everything.
_CENTRAL = ("pdgd", "dbgd", "mgd")


class RankingShown(CurvesShown):
    """Curves of the users' reward and of offline measures, beside rankers trained on labels."""

    party = ("device", "devices")
    learnt = "learnt from clicks"
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
        "antithetic": "antithetic perturbations",
        "learning_rate": "learning rate",
        "privacy.p": "probability of a true report p",
        "as_published": "random numbers as in the published code",
    }

    @override
    def parties_of(self, run: Run) -> tuple[str, str]:
        return ("service", "services") if run.setting("protocol") in _CENTRAL else self.party

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
        return f"{name} (labels)"

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
        if run.setting("as_published"):
            out.append(
                "As published: users share the perturbation's random numbers, which biases the gradient"
                if run.setting("protocol") == "foltr-es"
                else "As published: noise that protects no device from the server"
            )
        if share := run.setting("attack.share"):
            out.append(f"{share:.0%} of the devices lie: {run.setting('attack.kind')}".replace("%", " %", 1))
        if dealt := run.setting("devices.users"):
            out.append(f"Devices have different users: {', '.join(map(str, dealt))}")
        kinds = {"topic": "devices have queries of one topic", "labels": "devices see documents of few grades"}
        if kind := kinds.get(str(run.setting("share"))):
            out.append(kind.capitalize())
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
    def baselines_depend_on(self, run: Run) -> list[str]:
        return ["data", "fold", "data_seed", "holdout", "normalise", "clicks"]

    @override
    def study_notes(self, paper: Paper, study: Study) -> list[str]:
        return ["All queries count unless a measure says (judged): those with a relevant document."]


SHOWN = RankingShown()
