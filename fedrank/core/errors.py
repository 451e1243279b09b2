"""Every exception that fedrank raises on purpose.

::

    FedrankError
    ├── ConfigError (ValueError)          a setting is out of range or contradicts another
    │   └── UnknownNameError              no entry of that name; says which one was probably meant
    ├── DataError (ValueError)            a file or an array cannot be used as it is
    │   ├── FormatError                   a line of a file is malformed
    │   ├── ChecksumError                 a file is not the published one
    │   └── MissingDataError              a data set is not on this machine
    ├── WireError (ValueError)            bytes that are not the message they should be
    ├── RunError                          a run directory cannot be written, resumed or read
    ├── ModelError                        a model's file cannot be read, or the model cannot do what is asked
    ├── SecureSumError                    a secure sum stopped; nothing was revealed
    ├── MissingExtraError (ImportError)   an optional dependency is not installed
    └── AnswerError                       a party's answer failed; debug mode says whose and where

:class:`FedrankWarning` is the base of fedrank's warnings: nothing is refused, and the caller should know.

A message says what is wrong, where, what was found, and what to do about it.
"""

from __future__ import annotations

import contextlib
import difflib
import faulthandler
import os
from collections.abc import Callable, Iterable


class FedrankError(Exception):
    """Base of all errors a user can cause or repair."""

    def __reduce__(self) -> tuple[Callable[..., FedrankError], tuple[type, tuple, dict]]:
        return _made_again, (type(self), self.args, self.__dict__)  # from another process: with its words, as they are


def _made_again(cls: type[FedrankError], args: tuple, attributes: dict) -> FedrankError:
    error = cls.__new__(cls)
    error.args = args
    error.__dict__.update(attributes)
    return error


class FedrankWarning(UserWarning):
    """A warning that the request was carried out, but is probably not what was meant."""


class ConfigError(FedrankError, ValueError):
    """A setting is out of range, or two settings contradict each other."""


class NotNativeError(ConfigError):
    """Settings that need JAX; the message says which of them does, as the end of a sentence."""


# fmt: off
#: Names that ``fedrank-zoo`` adds, of commands their words with dots between: where it is missing, errors name it.
IN_ZOO = (
    "apfl", "app-attest", "async-pdgd", "clear-2021", "coltr", "dask", "data.clicks.fit", "dbgd", "ditto",
    "fang-krum", "fang-trimmed-mean", "fedbn", "fedfomo", "fedper-pdgd", "foltr-cma", "foltr-coltr",
    "foltr-es-2019", "foltr-nes", "foltr-pdgd-2021", "gamma-shares", "hub.witness", "ifca", "least-squares",
    "leave-one-out", "lie", "mdprank", "mgd", "mlflow", "optuna", "play-integrity", "privacy.attack.documents",
    "privacy.attack.links", "privacy.attack.records", "privacy.attack.sketch", "privacy.attack.slates",
    "privacy.mechanisms", "privacy.sketch", "published-halves", "published-one-sided", "random-metric", "rankguard",
    "ray", "reproduce.aol4foltr", "reproduce.leaderboard", "reverse-top-k", "scaled-inverse", "search.mcp",
    "server-noise", "silo-sketch-2021", "sketch-answers-as-printed", "slateq-2024", "slates.evaluate",
    "study-messages", "targeted-seeds", "tensorboard", "vertical-slate-2024", "webauthn",
)
# fmt: on
#: The sentence about such a name.
ZOO = "{!r} is of fedrank-zoo, a distribution beside this one: pip install fedrank-zoo (in a clone: -e zoo)."


class UnknownNameError(ConfigError):
    """A name that no registry entry has.

    Args:
        kind: What was looked up, such as ``"click model"``.
        name: The name that was asked for.
        known: The names that exist.
    """

    def __init__(self, kind: str, name: str, known: Iterable[str]):
        self.kind, self.name, self.known = kind, name, sorted(known)
        close = difflib.get_close_matches(str(name).lower(), [k.lower() for k in self.known], n=1, cutoff=0.5)
        hint = next((f" Did you mean {k!r}?" for k in self.known if close and k.lower() == close[0]), "")
        hint = f" {ZOO.format(name)}" if name in IN_ZOO and kind not in ("column", "silo") else hint
        super().__init__(f"There is no {kind} named {name!r}.{hint} Known: {', '.join(self.known) or 'none'}.")


class DataError(FedrankError, ValueError):
    """A file or an array cannot be used as it is.

    Args:
        message: What is wrong and what to do.
        path: The file, if there is one.
        line: 1-based line of ``path``, if one line is to blame.
    """

    def __init__(self, message: str, path: str | os.PathLike[str] | None = None, line: int | None = None):
        self.path, self.line = path, line
        where = "" if path is None else f"{os.fspath(path)}{'' if line is None else f':{line}'}: "
        super().__init__(where + message)


class FormatError(DataError):
    """A line of a file is malformed."""


class ChecksumError(DataError):
    """A file is not the published one: it was cut, edited or mixed up."""


class MissingDataError(DataError):
    """A data set is not on this machine and could not be fetched."""


class WireError(FedrankError, ValueError):
    """Bytes that are not the message they should be."""


class RunError(FedrankError):
    """A run directory cannot be written, resumed or read."""


class ModelError(FedrankError, ValueError):
    """A model's file cannot be read, or the model cannot do what is asked of it."""


class SecureSumError(FedrankError):
    """A secure sum stopped: too few parties are left, or a participant broke the rules. Nothing was revealed."""


class MissingExtraError(FedrankError, ImportError):
    """An optional dependency is not installed.

    Args:
        package: The module that is missing.
        extra: The extra of fedrank that brings it.
        why: What needs it.
    """

    def __init__(self, package: str, extra: str, why: str):
        super().__init__(f"{why} needs {package}, which is not installed. Install it: pip install 'fedrank[{extra}]'.")


class AnswerError(FedrankError):
    """A party's answer failed.

    Args:
        exchange: Name of the exchange.
        party: Number of the party.
        round_: Number of the round, from 0.
        cause: The exception that the answer raised.
        arguments: What the answer was called with, for inspection in a debugger.
    """

    def __init__(self, exchange: str, party: int, round_: int, cause: Exception, arguments: object = None):
        self.exchange, self.party, self.round, self.arguments = exchange, party, round_, arguments
        super().__init__(
            f"answer of exchange {exchange!r} failed at party {party} in round {round_}: "
            f"{type(cause).__name__}: {cause}. The call's arguments are in .arguments of this error."
        )


def report_crashes() -> None:
    """Have a crash of compiled code, such as a segmentation fault, print Python's trace to standard error."""
    with contextlib.suppress(AttributeError, OSError, ValueError):  # standard error is closed, or no file
        faulthandler.enable()
