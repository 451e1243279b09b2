"""Sentences about a hub for whoever starts it: what its settings promise, and what speaks against them."""

from __future__ import annotations

import math
from pathlib import Path

from fedrank.deploy.hub.keys import OPERATOR_FILE
from fedrank.deploy.hub.settings import NO_LOG, PIECEWISE_EPSILON, HubSettings
from fedrank.deploy.hub.status import JOINT, clock
from fedrank.privacy.caps import LIFETIME_EPSILON, MOST_EPSILON, MOST_SEARCH_EPSILON


def why_unfair(settings: HubSettings) -> str:
    """A warning if the hub is a trial, or the first reports fill a round; empty if neither is so.

    Wherever the hub listens: a proxy may be in front, on this machine too, and the hub need not be told of it.
    """
    if settings.trial:
        return (
            "a trial, for devices of one machine without people in front of them: for people make a hub in another "
            "folder, without --trial"
        )
    if settings.round_seconds or settings.collect:
        return ""
    return (
        "round_seconds is 0: the first reports fill a round, so that whoever is fastest decides; set it to what a slow "
        "device needs"
    )


def why_reset(home: Path) -> str:
    """A warning while the operator's key lies in a hub's folder; empty if it does not."""
    file = home / OPERATOR_FILE
    if not file.exists():
        return ""
    return f"{file}: a copy of this folder can put the hub back and change its log's key; move the file elsewhere"


def why_alone(home: Path, settings: HubSettings) -> str:
    """A warning if no other disk has the heads of the log before devices see them; empty if one has, or of a trial.

    A database is asked while the hub runs: :class:`~fedrank.deploy.hub.publishing.PublicLog` says so.
    """
    if settings.trial or settings.database or settings.log == NO_LOG:
        return ""
    if settings.copy_to:
        copy = Path(settings.copy_to)
        if not copy.exists() or copy.stat().st_dev != home.stat().st_dev:
            return ""
        return f"copy_to: {copy} is on the file system of {home}: both are lost together; give a folder on another disk"
    return (
        "copy_to is not set: if this disk is lost, devices go on only where the operator signs that the hub was put "
        "back; give a folder on another disk"
    )


def pace(settings: HubSettings) -> str:
    """A sentence on rounds: how many, how long, and of how many reports."""
    number = f"{settings.rounds:,}, each" if settings.rounds else "without end, each"
    shortest, longest = (clock(seconds).replace(JOINT, " ") for seconds in (settings.round_seconds, settings.deadline))
    if settings.round_seconds == settings.deadline:
        open_for = f"open for {shortest}"
    else:
        open_for = f"open until {settings.cohort:,} reports have come"
        open_for += f", at least {shortest}" if settings.round_seconds else ""
        open_for += f", at most {longest}" if settings.deadline else ""
    first = "; in the first tokens are sold, and nothing is learnt" if settings.tokens else ""
    return f"{number} {open_for}, of {settings.interactions:,} searches a report{first}"


def why_silent(settings: HubSettings) -> str:
    """The reason why devices whose app says nothing about ε send nothing to this hub; empty if they report."""
    terms = settings.terms()
    search, message = terms.epsilon_interaction, terms.epsilon_message
    if search <= MOST_SEARCH_EPSILON and message <= MOST_EPSILON:
        return ""
    return (
        f"devices with default settings will not report: a message has ε = {message:.3g} and a search {search:.3g}, "
        f"they allow {MOST_EPSILON:g} and {MOST_SEARCH_EPSILON:g}. For people, make a hub in another folder with the "
        f"default mechanism (ε = {PIECEWISE_EPSILON:g}), or with --p or --epsilon that give less; for a trial, have "
        "the app allow more (most_epsilon, most_search_epsilon)"
    )


def why_void(settings: HubSettings) -> str:
    """A warning if the devices that fill a cohort are too few for the tokens of an epoch to count; empty if not."""
    part = settings.due * (1 - settings.checks)
    devices = math.ceil(settings.cohort / part) if part else math.inf
    if not settings.tokens or devices >= settings.least_sales:
        return ""
    return (
        f"a cohort of {settings.cohort:,} is for about {devices:,} devices, and an epoch that sells fewer than "
        f"least_sales = {settings.least_sales:,} tokens is void: no device reports in it"
    )


def linking(settings: HubSettings) -> str:
    """A sentence on who can put the reports of a device together."""
    if not settings.tokens:
        return "this hub keeps a history of each device (no --tokens, no relay)"
    if not settings.batch:
        return "reports show blind tokens; their network addresses are not hidden (no --batch, no relay)"
    return (
        f"reports show blind tokens and come through a relay, {settings.batch} together; start one elsewhere: "
        f"fedrank hub relay URL --batch {settings.batch}"
    )


def promise(settings: HubSettings) -> str:
    """A sentence on what the terms promise, and on who reports under them."""
    terms = settings.terms()
    search, message, life = terms.epsilon_interaction, terms.epsilon_message, terms.epsilon_life
    promised = f"ε = {search:.3g} of a search, {message:.3g} of a message, "
    promised += "no limit to all of a device's messages" if math.isinf(life) else f"{life:.3g} of all of a device's"
    if why_silent(settings) or life <= LIFETIME_EPSILON:
        return promised
    return f"{promised}; devices end at {LIFETIME_EPSILON:g} by default"
