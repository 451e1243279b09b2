"""``fedrank slates evaluate``: what another policy would have earned, from what platforms logged."""

from __future__ import annotations

import re
from dataclasses import asdict
from pathlib import Path
from typing import Any

from fedrank.cli.terminal import AsJson, Names, Switch, headline, print_json, table
from fedrank.cli.terminal import say as print_parts
from fedrank.core.errors import ConfigError
from fedrank.report.claims import Comparison, Ends, Named, Sentence, say
from fedrank.report.statistics import Interval

#: Share of a policy's choices that may be missing in a log before that is said.
_UNSEEN = 0.01


def evaluate(
    *logs: Path,
    policy: Names = ("uniform", "best-10", "thompson"),
    learn: float = 0.5,
    seed: int = 0,
    example: Switch = False,
    as_json: AsJson = False,
) -> None:
    """Estimate what policies would have earned where others filled the slates, and how sure that is.

    A log is a table of commas in the form of the Open Bandit Dataset: item_id, click, propensity_score (the probability
    with which the platform showed this item there) and, where there are, position, timestamp, and both slate_id and
    pscore_cascade (the probability of this item and those above it). Each file is a platform, and all show the same
    items. This command reads all of them in one place; where each platform keeps its log, only sums over slates would
    leave it.

    sips weighs whole slates by inverse propensity, rips and cdr (doubly robust, with a model of clicks) let clicks
    depend on the items above, and ips, snips and dr on the item alone; they differ only where there are slates. All
    with 95 % intervals, which mean nothing with fewer than about ten clicks behind them.

    Args:
        logs: Files, plain or packed, or folders of them.
        policy: uniform; best-N, the N items with the highest click rate at each position; thompson, Thompson sampling
            by clicks; or a file with the columns item_id, position and probability.
        learn: Share of each log, the first in time, that best-N and thompson learn from; policies are judged on the
            rest. Without a policy that learns, all of it is judged.
        seed: Of the draws of thompson.
        example: First write two small made-up logs to the folder.
    """
    from fedrank_zoo.slate_logs.estimates import Estimate, counts, judge, read_logs, write_logs

    if not 0.0 < learn < 1.0:
        raise ConfigError(f"learn must be between 0 and 1, got {learn}.")
    if not policy:
        raise ConfigError("policy must name at least one: uniform, best-N, thompson, or a file.")
    if example:
        if len(logs) != 1 or (logs[0].exists() and any(logs[0].iterdir())):
            raise ConfigError("the made-up logs are written to one new folder; give its name.")
        write_logs(logs[0])
    platforms = read_logs(logs)
    learns = any(_learns(name) for name in policy)
    cuts = [round(len(log) * learn) if learns else 0 for log in platforms]
    if learns and not all(0 < cut < len(log) for cut, log in zip(cuts, platforms, strict=True)):
        raise ConfigError(f"learn = {learn} leaves no slate to learn from, or none to judge.")
    judged = [log.part(cut, len(log)) for cut, log in zip(cuts, platforms, strict=True)]
    counted = counts(log.part(0, cut) for cut, log in zip(cuts, platforms, strict=True)) if learns else None
    results = []
    for name in policy:
        each, together = judge(judged, _policy(name, counted, platforms[0], seed))
        named = [(log.name, one) for log, one in zip(judged, each, strict=True)]
        results.append((name, [*named, ("all", together)] if len(named) > 1 else named))
    sentence = _policies_sentence(results)
    if as_json:
        found = [{"policy": name, "platform": one[0], **_plain(one[1])} for name, named in results for one in named]
        print_json({"sentence": str(sentence), "learnt_from_slates": sum(cuts), "generated": example, "results": found})
        return
    print_parts(headline(sentence))
    whole = any(log.whole() for log in platforms)
    shown = ("ips", "rips", "sips", "cdr") if whole else ("ips", "snips", "dr")
    for name, named in results:
        drawn = table("platform", "logged", *shown, "clicks", numbers=("logged", "clicks"), title=Path(name).name)
        for platform, one in named:
            cells = (_with_ends(one.estimates[which]) for which in shown)
            drawn.add_row(platform, _with_ends(Estimate(one.logged.value)), *cells, f"{one.effective_clicks:.0f}")
        print_parts(drawn, f"{_verdict([one for _, one in named])}\n")
    print(
        f"Of 1,000 items shown, with 95 % intervals; {sum(map(len, judged)):,} {'slates' if whole else 'rows'} judged"
        + (f", {sum(cuts):,} earlier ones learnt from." if learns else ".")
    )
    print("clicks: as many would tell as much, had the policy itself earned them.")
    if example:
        print("Made up: the numbers say nothing about real users.")


def _learns(name: str) -> bool:
    return name == "thompson" or re.fullmatch(r"best-\d+", name) is not None


def _policy(name: str, counted: Any, log: Any, seed: int) -> Any:
    from fedrank_zoo.slate_logs.estimates import best, mean_rewards, read_policy, thompson, uniform

    if name == "uniform":
        return uniform(len(log.item_ids), len(log.position_ids))
    if name == "thompson":
        return thompson(counted, seed)
    if _learns(name):
        return best(mean_rewards(counted), int(name.removeprefix("best-")))
    return read_policy(name, log.item_ids, log.position_ids)


def _plain(one: Any) -> dict[str, Any]:
    facts = asdict(one)
    return {**facts.pop("estimates"), **facts}


def _with_ends(one: Any) -> str:
    """An estimate of 1,000 items shown, with its interval where it has one."""
    value, low, high = (None if part is None else 1000 * part for part in (one.value, one.low, one.high))
    digits = 0 if (high or value or 0.0) >= 100 else 1
    ends = "" if low is None or high is None else f" ({low:.{digits}f}, {high:.{digits}f})"
    return f"{value:.{digits + (digits and 1)}f}{ends}"


def _compare_clicks(judgements: list[Any]) -> Comparison:
    """The clicks of 1,000 items that a policy shows, compared with those of what was shown.

    Args:
        judgements: At each platform, and last at all of them.
    """
    from fedrank_zoo.slate_logs.estimates import FEW

    gain, few = judgements[-1].gain, min(each.effective_clicks for each in judgements) < FEW
    ends = (None, None) if few or gain.low is None else (1000 * gain.low, 1000 * gain.high)
    found = Interval(1000 * gain.value, *ends)
    return Comparison(found, "what was shown", ways=("above", "below"), than="", digits=1, unit="clicks")


def _policies_sentence(results: list[tuple[str, list[tuple[str, Any]]]]) -> Sentence:
    """Every policy compared with what was shown, as a sentence; ``results`` by policy and platform."""
    said = say("By clicks of 1,000 items: ")
    for i, (name, named) in enumerate(results):
        compared = _compare_clicks([one for _, one in named])
        said += say("; " if i else "", Named(Path(name).name), " is ", compared)
    return say(said, ".")


def _verdict(judgements: list[Any]) -> str:
    """A policy compared with what was shown, and what makes the comparison doubtful, as a sentence.

    Args:
        judgements: At each platform, and last at all of them.
    """
    from fedrank_zoo.slate_logs.estimates import FEW

    one, compared = judgements[-1], _compare_clicks(judgements)
    said = [str(say("Clicks of 1,000 items: ", compared, Ends(compared)))]
    if (fewest := min(each.effective_clicks for each in judgements)) < FEW:
        said.append(f"{fewest:.0f} clicks at a platform, an interval needs {FEW:.0f}")
    if one.unseen > _UNSEEN:
        said.append(
            f"{one.unseen:.0%} of what it shows was never shown at that position: only the model guesses what it earns"
        )
    elif any(_is_off(each.weight) for each in judgements):
        said.append(
            "the mean weight is not 1: the log hardly shows what the policy does, or other chances than it says"
        )
    return "; ".join(said) + "."


def _is_off(weight: Any) -> bool:
    """True if a mean weight is further from 1 than twice its interval, which chance hardly ever does."""
    return weight.high is not None and abs(weight.value - 1.0) > 2 * (weight.high - weight.value)
