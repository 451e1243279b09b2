"""The leakage report of platforms: what attackers learn from their messages, mode by mode, with intervals over seeds.

Networks of FedSlate are trained for some users first, and messages are recorded from the first batch on. Platforms that
send sums are attacked in :mod:`fedrank_zoo.slate_attacks.sums`. Nothing here depends on how good the slates are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fedrank.metrics.returns import mean_interval
from fedrank.privacy.calibration import laplace_scale
from fedrank.slates.config import SlatesRun
from fedrank.slates.fedslate import FedSlate
from fedrank.slates.fedslate.settings import FederatedSlates, Sharing
from fedrank.slates.world.satisfaction import preset
from fedrank_zoo.fedslate_2024 import FedSlate2024
from fedrank_zoo.fedslate_2024.settings import PublishedSlates
from fedrank_zoo.slate_attacks.leak import Accuracy, Leak, accuracy, leak_of
from fedrank_zoo.slate_attacks.leakage import (
    Records,
    clicked_items,
    coordinator_engagement,
    coordinator_targets,
    evidence,
    platform_accuracy,
    record,
    values_accuracy,
)
from fedrank_zoo.slate_attacks.settings import SUMS, SlateAttack
from fedrank_zoo.slate_attacks.sums import attack_sums, sums_protocol

#: Largest engagement where noise is added to it; a round's is about 15, and above this once in 250 times.
LARGEST_ENGAGEMENT = 100.0
#: Most users of one compiled program, which bounds the memory.
_USERS_AT_ONCE = 10
#: Number of the platform whose engagement is attacked; the last platform attacks it.
_VICTIM = 0

_MEANS = {
    ("platform", "own"): "what it knows itself, no message",
    ("platform", "targets"): "ups and downs of targets, without other data",
    ("platform", "linear"): "all messages, linear, fitted on other users",
    ("platform", "non-linear"): "all messages, non-linear, fitted on other users",
    ("coordinator", "click"): "where the gradient is not 0",
    ("coordinator", "known"): "targets, candidates known",
    ("coordinator", "unknown"): "targets, candidates unknown",
    ("coordinator", "gradient"): "gradients alone",
    ("values", "own"): "what it knows itself, no message",
    ("values", "sent"): "the federated values it is sent",
}


def leakage_protocol(mode: str, rounds: int, attack: SlateAttack = SlateAttack()) -> FedSlate:  # noqa: B008 - frozen
    """A protocol to attack.

    Args:
        mode: One of :data:`~fedrank_zoo.slate_attacks.settings.MODES`.
        rounds: Rounds of the run: ε falls over the first third, learning begins after a tenth, and platforms forget
            nothing.
        attack: Sizes of the world and the networks, and noise on values.

    Raises:
        ConfigError: Numbers out of range.
    """
    published, platforms = mode == "published", attack.platforms
    world = preset(
        "recsim",
        candidates=attack.candidates,
        slate=attack.slate,
        platforms=platforms,
        time_budget=61 * platforms if attack.time_budget is None else attack.time_budget,
        fresh=not published,
    )
    given: dict[str, Any] = dict(
        feedback="all" if mode in ("extended", "team") else "first",
        batch=attack.batch,
        memory=max(rounds, attack.batch + 1),
        burn_in=max(attack.batch + 1, rounds // 10),
        copy_every=100,
        explore=0.1,
        decay=0.05 ** (3 / rounds),
        floor=0.05,
        objective="team" if mode == "team" else "own",
        local_widths=attack.local_widths,
        head_widths=attack.federated_widths,
    )
    if published:
        method: FedSlate = FedSlate2024(PublishedSlates(snap=0.0, **given))
    else:
        sharing = Sharing(clip=attack.clip, epsilon=attack.epsilon) if mode == "noisy-values" else Sharing()
        method = FedSlate(FederatedSlates(**given), learning_rate=1e-3, sharing=sharing)
    return method.resolved(SlatesRun(rounds=rounds)).bind(world)


def attack_slates(
    settings: SlateAttack = SlateAttack(),  # noqa: B008 - frozen
    said: Callable[[str], None] = lambda line: None,
) -> list[Leak]:
    """Train protocols, record their messages, and attack them.

    Args:
        settings: The modes, the runs, and the noise of the modes that have noise. ε of a vector of values is that of
            discrete Gaussian noise at δ = 10⁻⁶, ε of one engagement that of Laplace noise.
        said: Called with a line of progress.

    Returns:
        What each attacker finds, mode by mode.

    Raises:
        ConfigError: Sizes that do not fit each other, or a setting of a protocol that is not allowed.
    """
    s = settings
    # What is not allowed is said before networks are trained for minutes.
    sums = {
        f"{mode}, {'no noise' if one is None else f'ε = {one:g}'}": (
            mode,
            sums_protocol(mode, s, one),
            sums_protocol(mode, s, one, trial=True),
        )
        for mode in s.modes
        if mode in SUMS
        for one in (None, *s.release_epsilons)
    }
    found: list[Leak] = []
    numbers = np.arange(s.seed, s.seed + s.seeds)
    plain: Records | None = None
    for mode in s.modes:
        if mode in SUMS:
            for name, (of, protocol, tested) in sums.items():
                found += attack_sums(name, protocol, tested, s, said) if of == mode else []
            continue
        said(f"{mode}: {s.seeds} seeds")
        if mode == "noisy-targets" and plain is not None:
            records = plain
        else:
            rounds = s.episodes * leakage_protocol(mode, 10**4, s).world.rounds_per_episode
            protocol = leakage_protocol(mode, rounds, s)
            at_once = max(d for d in range(1, _USERS_AT_ONCE + 1) if s.episodes % d == 0)
            records = record(protocol, numbers, rounds, rounds // s.episodes * at_once)
            plain = records if mode in ("corrected", "noisy-targets") else plain
        if mode == "noisy-targets":
            found += [leak for one in s.target_epsilons for leak in noisy_targets(records, one, s.seed)]
        else:
            found += leaks(records, f"{mode}, ε = {s.epsilon:g}" if mode == "noisy-values" else mode)
    return found


def leaks(records: Records, mode: str) -> list[Leak]:
    """Findings of coordinator and platforms from one mode's messages."""
    episode, last = records.episode, records.protocol.slates.platforms - 1
    found = [*_coordinator(records, mode)]
    guesses = [platform_accuracy(evidence(records, seed, last, _VICTIM), episode) for seed in range(records.seeds)]
    for means in guesses[0]:
        found.append(
            leak_of(mode, "platform B", "engagement", _MEANS["platform", means], [one[means] for one in guesses])
        )
    values = [values_accuracy(records, seed, _VICTIM, last) for seed in range(records.seeds)]
    for means in values[0]:
        found.append(
            leak_of(
                mode, "platform A", "Q-values as B sent them", _MEANS["values", means], [one[means] for one in values]
            )
        )
    return found


def noisy_targets(records: Records, epsilon: float, seed: int = 0) -> list[Leak]:
    """A platform's finding from targets whose engagement had Laplace noise.

    Engagement is cut to [0, 100] and gets noise of scale 100/ε, before a target is made of it: ε is that of one
    engagement. Noise is drawn either once for each transition and kept, or anew for every batch, which then costs ε.

    Args:
        records: A run without such noise. What would have been learnt with it is not simulated.
        epsilon: ε.
        seed: Of the noise.
    """
    s = records.protocol.slates
    scale = laplace_scale(epsilon, LARGEST_ENGAGEMENT)
    out: dict[str, list[Accuracy]] = {"once": [], "every time": []}
    for place in range(records.seeds):
        rng = np.random.default_rng([seed, place])
        truth = records.engagement(_VICTIM)[place]
        drawn = records.transitions[:, place]
        cut = (np.minimum(truth, LARGEST_ENGAGEMENT) - truth)[drawn]
        noises = {"once": rng.laplace(0, scale, truth.shape)[drawn], "every time": rng.laplace(0, scale, drawn.shape)}
        for when, noise in noises.items():
            found = evidence(records, place, s.platforms - 1, _VICTIM, extra=(cut + noise) / s.reward_scale)
            out[when].append(platform_accuracy(found, records.episode)["linear"])
    means = _MEANS["platform", "linear"]
    return [
        leak_of(f"noisy-targets, ε = {epsilon:g}, noise drawn {when}", "platform B", "engagement", means, each)
        for when, each in out.items()
    ]


def _coordinator(records: Records, mode: str) -> list[Leak]:
    rows = np.arange(records.seeds)[None, :, None]
    items = records.secrets.item[rows, _VICTIM, records.transitions]
    truth = records.engagement(_VICTIM)[rows, records.transitions]
    right = (clicked_items(records.gradient[:, :, _VICTIM]) == items).mean((0, 2))
    candidates = records.protocol.slates.world.candidates
    blind = [np.bincount(items[:, seed].ravel() + 1, minlength=candidates + 1).max() for seed in range(records.seeds)]
    out = [
        Leak(
            mode,
            "coordinator",
            "clicks",
            _MEANS["coordinator", "click"],
            {"exact": mean_interval(right), "blind": mean_interval(np.array(blind) / items[:, 0].size)},
        )
    ]
    for means, known in (("known", True), ("unknown", False)):
        guess = coordinator_engagement(records, _VICTIM, candidates_known=known)
        each = [accuracy(truth[:, seed].ravel(), guess[:, seed].ravel()) for seed in range(records.seeds)]
        out.append(leak_of(mode, "coordinator", "engagement", _MEANS["coordinator", means], each))
    targets, _ = coordinator_targets(records, _VICTIM)
    told = records.told[:, :, _VICTIM].astype(np.float64)
    each = [accuracy(told[:, seed].ravel(), targets[:, seed].ravel()) for seed in range(records.seeds)]
    return [*out, leak_of(mode, "coordinator", "targets", _MEANS["coordinator", "gradient"], each)]
