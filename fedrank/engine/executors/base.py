"""The interface of those who compute independent pieces of work, and the one who does it here, piece after piece.

A piece of work is a function, which can be found by its module's name, of one argument that can be pickled. It is
computed once, or again from its beginning where the process that computed it died; it must not matter how often it was
begun. Results come as they are ready, in any order.
"""

from __future__ import annotations

import abc
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from typing_extensions import override

from fedrank.core.errors import FedrankError, RunError

#: How often a piece is begun again after the process that computed it died.
RETRIES = 3


@dataclass(frozen=True)
class Failure:
    """The error that a piece of work raised; exceptions themselves need not survive the way between processes.

    Attributes:
        text: The error as a user reads it.
        trace: Where it was raised; empty for errors that fedrank raises on purpose.
        stopped: Whether it was Ctrl-C.
    """

    text: str
    trace: str = ""
    stopped: bool = False


def run_job(job: tuple[Callable[[Any], Any], Any]) -> Any:
    """The result of a function for its argument, or a :class:`Failure`."""
    function, argument = job
    try:
        return function(argument)
    except FedrankError as error:
        return Failure(str(error))
    except KeyboardInterrupt as stop:
        return Failure(str(stop), stopped=True)
    except Exception as error:  # whatever it is must be told where the work was asked for
        return Failure(f"{type(error).__name__}: {error}", traceback.format_exc())


def unwrap_result(result: Any) -> Any:
    """The result that :func:`run_job` returned, unless it is a failure.

    Raises:
        RunError: The piece of work failed; says how.
        KeyboardInterrupt: It was stopped.
    """
    if not isinstance(result, Failure):
        return result
    if result.stopped:
        raise KeyboardInterrupt(result.text)
    raise RunError(result.text + (f"\n{result.trace}" if result.trace else ""))


class Executor(abc.ABC):
    """Computes pieces of work; to be used in a ``with`` statement, which lets go of processes at its end.

    Attributes:
        shares_files: Whether every piece sees the files of this machine, under the same paths.
    """

    shares_files: bool

    @abc.abstractmethod
    def results(self, function: Callable[[Any], Any], arguments: Sequence[Any]) -> Iterator[tuple[int, Any]]:
        """The place of each argument and the function's result for it, as they are ready.

        Args:
            function: A function of a module.
            arguments: One for each piece of work.

        Raises:
            RunError: A piece failed, or the process that computed it died again and again.
        """

    def close(self) -> None:  # noqa: B027 - those without processes have nothing to let go of
        """Let go of processes, and of a cluster that was started for this."""

    def __enter__(self) -> Executor:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


class Here(Executor):
    """In this process, one piece after the other: they share compiled programs and data."""

    shares_files = True

    @override
    def results(self, function: Callable[[Any], Any], arguments: Sequence[Any]) -> Iterator[tuple[int, Any]]:
        for place, argument in enumerate(arguments):
            yield place, function(argument)


def repeated_death_error(what: str) -> RunError:
    """The error of work whose processes died again and again."""
    return RunError(
        f"{what} died {RETRIES + 1} times in a row while they computed the same work. If one crashed, its trace stands "
        "above; most often memory ran out: take fewer workers, or smaller runs. What is done is kept: the same command "
        "goes on."
    )
