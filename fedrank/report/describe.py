"""A run in words: what must be said beside its numbers, what its parties are called, how numbers are written."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import polars as pl

from fedrank.report.load import Run
from fedrank.report.statistics import LEVEL, Estimate, Interval
from fedrank.texts.sketch.account import PAPER_ATTACK

#: Splits in the order in which they are shown.
SPLITS = ("online", "total", "train", "vali", "test")

#: How splits are called.
SPLIT_NAMES = {"online": "online", "total": "sum", "train": "train", "vali": "validation", "test": "test"}

#: Settings shown first, in this order, and how they are called.
SETTINGS = {
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
    "silos.target": "target",
    "silos.train": "training rows of a silo, or their share",
    "silos.inverted": "silo with inverted labels",
    "silos.exclude": "silos left out",
    "bandit.rule": "decision rule",
    "bandit.arms": "arms",
    "network.widths": "hidden layers of the network",
    "network.norm": "normalisation",
    "network.crossing": "what of a model crosses",
    "network.epochs": "epochs of a round",
    "texts.silos": "silos that one collection is cut into",
    "texts.cut": "how it is cut",
    "sketch.mode": "how silos see each other's documents",
    "sketch.epsilon": "ε of an occurrence, or of an answer",
    "training.loss": "loss",
    "training.beta": "weight β of cross pairs",
    "world.preset": "users",
    "world.platforms": "platforms K",
    "world.candidates": "candidates N of a platform",
    "world.slate": "items n of a slate",
    "slates.mode": "mode, which the defaults follow",
    "slates.feedback": "who has clicks and engagement",
    "slates.discount": "discount γ",
}

#: Names, or first parts of the names, of settings that concern silos with tables only, silos with texts only, platforms
#: only, and devices or learning to rank only: a configuration has all, and a reader is shown those that the run used.
PLATFORM_SETTINGS = ("world", "slates", "sharing", "evaluation.episodes")
SILO_SETTINGS = ("silos", "network", "bandit", "personal")
TEXT_SETTINGS = ("texts", "sketch", "training", "i_know")
DEVICE_SETTINGS = (
    "fold", "normalise", "holdout", "clicks", "ranker", "hidden", "clients", "interactions", "budget", "reward",
    "reward_values", "ties", "sigma", "antithetic", "as_published", "share", "privacy", "attack",
)  # fmt: skip
_NOT_OF_TEXTS = (
    *(key for key in DEVICE_SETTINGS if key != "privacy"), *SILO_SETTINGS, "privacy.p", "privacy.mechanism",
    "privacy.epsilon", "privacy.clip", "privacy.clip_norm", "topics", "labels_per_client", "candidates", "radius",
    "batch", "aggregate", "devices.users", "devices.amounts", "devices.late", "devices.delay", "evaluation.users",
    "evaluation.tie_orders", "compute.kernels",
)  # fmt: skip

_NOT_OF_PLATFORMS = (
    *(key for key in DEVICE_SETTINGS if key != "privacy"), *SILO_SETTINGS, *TEXT_SETTINGS, "data", "data_seed",
    "privacy.p", "privacy.mechanism", "privacy.epsilon", "privacy.clip", "privacy.clip_norm", "topics",
    "labels_per_client", "candidates", "radius", "batch", "aggregate", "devices", "evaluation.measures",
    "evaluation.users", "evaluation.tie_orders", "compute.kernels",
)  # fmt: skip
_FEDERATED_ONLY = (
    "sharing", "privacy", "slates.others", "slates.regress", "slates.head", "slates.head_widths",
    "slates.online_others", "slates.moving_targets",
)  # fmt: skip

#: A caveat on figures; pages and terminals have the sentences that say whose AUC, and why.
UNDEFINED = "Some AUCs are undefined, see the notes"

#: With fewer seeds than this an interval over them is wide and rests on its assumptions.
FEW_SEEDS = 5


def party(run: Run) -> tuple[str, str]:
    """What a party of this run is called, one and several: a device, or the one service of a central learner."""
    if run.between_silos:
        return ("silo", "silos")
    if run.slates is not None:
        return ("platform", "platforms")
    protocol = str(run.setting("protocol", ""))
    if protocol in ("pdgd", "dbgd", "mgd"):
        return ("service", "services")
    return ("device", "devices") if protocol.startswith("foltr") else ("party", "parties")


def whose(run: Run) -> str:
    """Whose values the run's measures are: of users with a click model, or of the silos it is personalised for."""
    if run.texts is not None:
        return f"{len(run.texts.silos)} silos"
    if run.slates is not None:
        return run.slates.users_in_words
    if run.silos is None:
        return f"{run.setting('clicks')} users"
    targets = run.silos.targets
    return f"target {targets[0]}" if len(targets) == 1 else f"{len(targets)} targets"


def digits(*runs: Run) -> int:
    """Decimals of measures: engagement is about a thousand, other measures are about one."""
    return 1 if runs and all(run.slates is not None for run in runs) else 4


def qualified(run: Run, split: str, measure: str) -> str:
    """A measure's name with whose it is, for a table in which that differs from run to run."""
    if run.slates is not None:
        return f"{measure}, {whose(run)}"
    if run.silos is None:
        return f"{measure} of {whose(run)}" if split == "online" else measure
    targets = run.silos.targets
    return f"{measure} ({targets[0]})" if len(targets) == 1 and not measure.endswith(")") else measure


def of_all_silos(run: Run, measure: str) -> bool:
    """Whether a measure is of the run as a whole: not of one silo with texts, nor of a method it is compared with."""
    if run.texts is None:
        return True
    ends = (*(f" ({name})" for name in run.texts.names), *(f", {name}" for name in run.texts.compared))
    return not measure.endswith(ends)


def asked_seeds(run: Run) -> int | None:
    """How many seeds the configuration asks for: ``seeds`` may be a number or a list."""
    asked = run.setting("seeds")
    return len(asked) if isinstance(asked, list) else asked if isinstance(asked, int) else None


def done_rounds(run: Run) -> int:
    """Rounds that every seed has done."""
    if run.finished and run.between_silos:  # a number that is undefined has no row; not every round is evaluated
        return int(run.setting("rounds", 0))
    if run.between_silos:  # a round whose increment is undefined was done, too
        return min(run.metrics.filter(run.metrics["seed"] == s)["round"].max() for s in run.seeds)  # type: ignore[type-var]
    if run.slates is not None:  # values are by evaluation and by user
        asked = int(run.setting("rounds", 0))
        ends = run.metrics.group_by("seed").agg(pl.col("round").max())["round"]
        return asked if run.finished else int(ends.min())  # type: ignore[arg-type]
    online = run.metrics.filter(run.metrics["split"] == "online")
    frame = run.metrics if online.is_empty() else online
    return min(rounds.n_unique() for rounds in (frame.filter(frame["seed"] == s)["round"] for s in run.seeds))


def generated(run: Run) -> bool:
    """Whether the data was generated rather than collected."""
    if run.slates is not None:
        return True  # the world makes users up
    if (run.silos is not None and run.silos.generated) or (run.texts is not None and run.texts.generated):
        return True
    if run.environment.get("generated") is not None:
        return bool(run.environment["generated"])
    name = run.setting("data.name", run.setting("data"))
    return bool(run.setting("data.generated")) or str(name).startswith("generated")


def caveats(run: Run) -> list[str]:
    """What a reader of any number of this run must know; each is said on the figures too."""
    out = []
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
    if generated(run):
        out.append("Generated data: no real collection" if run.slates is None else "Generated users: no real people")
    out.extend(_silo_caveats(run))
    out.extend(_text_caveats(run))
    if run.slates is not None:
        out.extend(run.slates.caveats)
        out.extend([f"Few seeds: {len(run.seeds)}"] if len(run.seeds) < FEW_SEEDS else [])
    asked = run.setting("rounds") or (run.privacy or {}).get("rounds")
    done = done_rounds(run)
    short = isinstance(asked, int) and done < asked
    if not run.finished:
        out.append(
            f"Unfinished: {done:,} of {asked:,} rounds so far" if short else f"Unfinished: {done:,} rounds so far"
        )
    elif short:
        out.append(f"Cut short: {done:,} of {asked:,} rounds")
    wanted, have = asked_seeds(run), len(run.seeds)
    if wanted is not None and have < wanted:
        out.append(f"Fewer seeds than asked for: {have} of {wanted}")
    known = () if run.silos is None else run.silos.undefined  # said once, by UNDEFINED
    out.extend(str(note) for note in run.environment.get("notes") or () if note not in known)
    return out


def _silo_caveats(run: Run) -> list[str]:
    if run.silos is None:
        return []
    out = []
    if turned := run.setting("silos.inverted"):
        out.append(f"The labels of {turned} are inverted on purpose")
    if one_class := run.silos.one_class:
        are = "have" if len(one_class) > 1 else "has"
        out.append(f"{in_words(one_class)} {are} rows of one label only")
    if run.silos.undefined:
        out.append(UNDEFINED)
    if len(run.seeds) < FEW_SEEDS:
        out.append(f"Few seeds: {len(run.seeds)}")
    return out


#: What must be said wherever a number of an unprotected run is shown, by mode.
UNPROTECTED = {
    "paper": "Mode paper: does not protect the document owner from the querier "
    f"(an attack is right in {PAPER_ATTACK.accuracy:.0%} of {PAPER_ATTACK.trials:,} trials, where "
    f"ε = {PAPER_ATTACK.epsilon:g} allows {PAPER_ATTACK.allowed:.1%})".replace("%", " %"),
    "plain": "Mode plain: no noise, nothing protects the documents",
}


def _text_caveats(run: Run) -> list[str]:
    if run.texts is None:
        return []
    out = [UNPROTECTED[run.texts.mode]] if run.texts.mode in UNPROTECTED else []
    if run.setting("sketch.as_published"):
        out.append("Features as printed")
    if len(run.seeds) < FEW_SEEDS:
        out.append(f"Few seeds: {len(run.seeds)}")
    return out


def unused_settings(run: Run) -> tuple[str, ...]:
    """Names, or first parts of names, of the settings that mean nothing to this run's protocol."""
    if run.texts is not None:
        return (*_NOT_OF_TEXTS, *PLATFORM_SETTINGS)
    if run.slates is not None:
        return (*_NOT_OF_PLATFORMS, *(() if run.slates.federated else _FEDERATED_ONLY))
    return (*(SILO_SETTINGS if run.silos is None else DEVICE_SETTINGS), *TEXT_SETTINGS, *PLATFORM_SETTINGS)


def in_words(names: Iterable[str]) -> str:
    """Names in a sentence.

    >>> in_words(["a"]), in_words(["a", "b"]), in_words("abc")
    ('a', 'a and b', 'a, b and c')
    """
    *some, last = names
    return f"{', '.join(some)} and {last}" if some else last


def seeds_in_words(n: int) -> str:
    """How the spread is shown: ``"Mean of 5 seeds, band: 95 % interval"``."""
    return "One seed: no interval" if n == 1 else f"Mean of {n} seeds; band: {LEVEL:.0%} interval".replace("%", " %")


def flat(config: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Settings with dotted keys, in the order of the file."""
    for key, value in config.items():
        if isinstance(value, Mapping):
            yield from flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def headline(run: Run) -> str:
    """The run in one line: protocol, data, users, ranker."""
    data = run.setting("data.name", run.setting("data"))
    if run.silos is not None:
        parts = [run.setting("protocol"), data, whose(run), run.silos.rule]
        return " · ".join(str(p) for p in parts if p and not isinstance(p, Mapping))
    if run.texts is not None:
        epsilon = run.setting("sketch.epsilon")
        mode = run.texts.mode if epsilon is None else f"{run.texts.mode}, ε = {number(epsilon)}"
        return " · ".join((str(run.setting("protocol")), str(data), whose(run), mode))
    if run.slates is not None:
        return " · ".join((str(run.setting("protocol")), run.slates.users_in_words, run.slates.feedback_in_words))
    fold = run.setting("data.fold", run.setting("fold"))
    ranker = run.setting("ranker.name", run.setting("ranker"))
    clicks = ", ".join(map(str, run.setting("devices.users") or ())) or run.setting("clicks")
    parts = [
        run.setting("protocol"),
        data if fold is None or not isinstance(data, str) else f"{data}, fold {fold}",
        clicks and f"{clicks} users",
        ranker and f"{ranker} ranker",
    ]
    return " · ".join(str(p) for p in parts if p and not isinstance(p, Mapping))


def order_measures(measures: Iterable[str]) -> list[str]:
    """Measures by importance: expected reward first, then nDCG, then the best model so far, then others by name."""
    return sorted(
        set(measures), key=lambda m: (not m.startswith("expected"), not m.startswith("nDCG"), "best so far" not in m, m)
    )


def number(value: Any) -> str:
    """Any value of a configuration or a table, for a reader.

    >>> number(2000000), number(0.001), number([1, 2]), number(True), number(float("inf"))
    ('2,000,000', '0.001', '1, 2', 'yes', '∞')
    """
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return "∞" if value == math.inf else f"{value:,.4g}" if abs(value) < 1e5 else f"{value:,.0f}"
    if isinstance(value, list | tuple):
        return ", ".join(number(v) for v in value) or "–"
    return "–" if value is None else str(value)


def measured(value: float | Estimate | Interval | None, *, signed: bool = False, digits: int = 4) -> str:
    """A measure's value with so many decimals, and its interval if it has one.

    >>> measured(Estimate(0.71234, 0.0041, 5)), measured(Estimate(0.0123, None, 1), signed=True), measured(None)
    ('0.7123 ± 0.0041', '+0.0123', '–')
    >>> measured(Interval(-0.02, -0.05, 0.0), signed=True), measured(Interval(0.7, 0.65, 0.72))
    ('−0.0200 (−0.0500 to +0.0000)', '0.7000 (0.6500 to 0.7200)')
    """
    if value is None:
        return "–"
    if isinstance(value, Interval):
        known = (v for v in (value.mean, value.low, value.high) if v is not None)
        mean, *ends = (measured(v, signed=signed, digits=digits) for v in known)
        return f"{mean} ({' to '.join(ends)})" if len(ends) == 2 else mean
    mean, half = (value.mean, value.half) if isinstance(value, Estimate) else (value, None)
    text = f"{mean:+.{digits}f}" if signed else f"{mean:.{digits}f}"
    text = text.replace("-", "−")
    return text if half is None else f"{text} ± {half:.{digits}f}"


def size(count: float) -> str:
    """Bytes in decimal units.

    >>> size(9), size(1), size(4_500_000), size(96_500)
    ('9 bytes', '1 byte', '4.5 MB', '96.5 kB')
    """
    if count < 1000:
        return f"{number(count)} byte{'' if count == 1 else 's'}"
    for unit, factor in (("kB", 1e3), ("MB", 1e6), ("GB", 1e9), ("TB", 1e12)):
        if count < factor * 999.5 or unit == "TB":
            break
    return f"{count / factor:.3g} {unit}"
