"""Promises of every protocol about privacy, with its defaults and in each of its modes, side by side."""

from __future__ import annotations

import dataclasses
import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from fedrank.core.errors import FedrankWarning, MissingExtraError
from fedrank.core.privacy_report import PrivacyReport, Promise, Unit
from fedrank.core.trees import Json
from fedrank.engine.methods import PrivacyMode, method, method_names, task_of
from fedrank.engine.settings import from_dict

#: The mode of every protocol that has no mode without settings.
DEFAULTS = PrivacyMode("defaults", {})
#: Units from the one that says most about a person to the one that says least.
_ORDER = (
    Unit.USER, Unit.RUN, Unit.DOCUMENT, Unit.RECORD, Unit.ROUND, Unit.MESSAGE, Unit.VECTOR, Unit.HALF, Unit.INTERACTION
)  # fmt: skip


@dataclass(frozen=True)
class Promised:
    """A protocol in one of its modes.

    Attributes:
        protocol: Its name.
        mode: The mode.
        rounds: Rounds that the promises are about.
        report: What is promised.
    """

    protocol: str
    mode: PrivacyMode
    rounds: int
    report: PrivacyReport

    @property
    def first(self) -> Promise | None:
        """The first finite promise, for all that is sent, in the order of units ``_ORDER``; None: there is none."""
        bounded = [one for one in self.report.promises if math.isfinite(one.epsilon) and not one.scope]
        ranked = sorted(bounded, key=lambda one: _ORDER.index(one.unit) if one.unit in _ORDER else len(_ORDER))
        return next(iter(ranked), None)


def rounds_and_promise(protocol: str, settings: Mapping[str, Json] | None = None) -> tuple[int, PrivacyReport]:
    """The rounds of a run with these settings, and what it promises.

    The run is set up and not begun, on generated data unless the settings name other data.

    Args:
        protocol: Name of the protocol.
        settings: What differs from its defaults, in sections, as in a file.

    Raises:
        FedrankError: There is no such protocol, or the settings do not fit.
    """
    config = from_dict({"protocol": protocol, **(settings or {})}).resolved()
    config = dataclasses.replace(config, seeds=1)
    experiment = task_of(protocol).build(config)
    rounds = int(getattr(config, "rounds", 1))
    return rounds, experiment.protocol.account(rounds, config.delta)


def all_promised(protocols: Sequence[str] = ()) -> Iterator[Promised]:
    """Every protocol with its defaults and in each of its modes, one after another.

    Args:
        protocols: Names; empty: all that can be set up here, with a warning about those that need an extra.

    Raises:
        UnknownNameError: There is no such protocol.
    """
    for name in [method(name).name for name in protocols] or method_names():
        modes = method(name).modes
        for mode in modes if any(not one.settings for one in modes) else (DEFAULTS, *modes):
            try:
                found = rounds_and_promise(name, mode.settings)
            except MissingExtraError as error:
                if protocols:
                    raise
                warnings.warn(f"{name} is left out: {error}", FedrankWarning, stacklevel=2)
                break
            yield Promised(name, mode, *found)
