"""Pieces of work for executors, which other processes find by this module's name."""

import os
import signal
import time
from pathlib import Path

from fedrank.core.errors import UnknownNameError


def square(number):
    return number * number


def square_of_about(about):
    return {"square": about["number"] ** 2, "process": os.getpid()}


def refuse(number):
    raise UnknownNameError("number", str(number), ["one", "two"])  # an error that cannot be pickled as it is


def break_down(number):
    return 1 // number


def die_once(job):
    """The square of a number; the process that begins on the marked one first is killed while it works."""
    number, marker = job
    if number == 3:
        try:
            Path(marker).touch(exist_ok=False)
        except FileExistsError:
            return number * number
        os.kill(os.getpid(), signal.SIGKILL)
    return number * number


def die_always(number):
    os.kill(os.getpid(), signal.SIGKILL)


def slow_square_of_about(about):
    """The square, and a line in a file for each time that somebody begins on it."""
    with open(about["log"], "a", encoding="utf-8") as log:
        log.write(f"{about['number']}\n")
    time.sleep(about["seconds"])
    return {"square": about["number"] ** 2}
