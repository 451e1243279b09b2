"""Which deliberate faults the tests notice: ``python -m tests.mutants.run [--area A] [--only ID] [--list]``.

Each mutant of ``mutants.toml`` is applied to a copy of the working tree, never to the tree itself,
and the tests named with it run there in a process of their own. A mutant is *killed* if one of them fails or they take
too long, and has *survived* if all of them pass. Before anything is changed the same tests have to pass.

The score of an area is the share of its mutants that were killed; those marked as equivalent do not count. The exit
status is 1 if the score of all areas together is below :data:`OVERALL`, or that of an area in :data:`WHOLE` below 1.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import queue
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LIST = Path(__file__).with_name("mutants.toml")

#: Smallest score of all areas together.
OVERALL = 0.95
#: Areas in which every mutant has to be killed.
WHOLE = ("secure-sum", "store", "hub", "device", "privacy", "tokens")

#: Processor seconds after which a mutant's tests count as failed, for one that loops for ever. How busy the machine is
#: makes no difference to them. A mutant that waits for ever is given up after so many seconds by the clock.
MOST_WORK, MOST_TIME = 200, 1800
#: What a copy of the working tree does without.
_NOT_COPIED = shutil.ignore_patterns(
    ".*", "__pycache__", "_build", "runs", "dist", "build", "*.egg-info", "node_modules"
)


@dataclass(frozen=True)
class Mutant:
    """One deliberate fault; attributes as the head of ``mutants.toml`` says."""

    id: str
    area: str
    file: str
    old: str
    new: str
    why: str
    tests: tuple[str, ...]
    equivalent: str = ""

    def applied(self, text: str) -> str:
        """The file's text with the fault in it.

        Raises:
            ValueError: The text does not hold ``old`` exactly once.
        """
        if (times := text.count(self.old)) != 1:
            raise ValueError(f"{self.id}: {self.file} must hold its text once, holds it {times} times")
        return text.replace(self.old, self.new)


@dataclass(frozen=True)
class Outcome:
    """What became of a mutant: ``"killed"``, ``"survived"``, ``"equivalent"`` or ``"broken"`` (no test could run)."""

    mutant: Mutant
    state: str
    seconds: float = 0.0
    by: str = ""


def mutants(path: Path = LIST) -> list[Mutant]:
    """All mutants of the list, in its order."""
    found = tomllib.loads(path.read_text(encoding="utf-8"))["mutant"]
    return [Mutant(**{**one, "tests": tuple(one["tests"])}) for one in found]


class Copy:
    """A copy of the working tree in which one mutant at a time is tested.

    Args:
        folder: Where; must not exist.
        cache: Compiled JAX programs, shared by all copies.
    """

    def __init__(self, folder: Path, cache: Path):
        self.folder = folder
        shutil.copytree(ROOT, folder, ignore=_NOT_COPIED, symlinks=True)
        self._environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(map(str, (folder, folder / "zoo", folder / "flower"))),
            "PYTHONDONTWRITEBYTECODE": "",  # importing takes longer than most of these tests
            "JAX_PLATFORMS": "cpu",
            "JAX_COMPILATION_CACHE_DIR": str(cache),
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0.1",
            "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
        }
        self._stamp = time.time()

    def run(self, tests: Sequence[str], kernels: str, most: int = 1) -> tuple[int | None, str]:
        """Run tests until one fails.

        Args:
            tests: Arguments of pytest.
            kernels: Name of the folder with Numba's compiled kernels. A kernel's cache does not notice that a function
                it calls has changed, so that a mutant of a kernel needs a folder of its own.
            most: How many times the usual limits may be used.

        Returns:
            Exit status of pytest, None after too long, and what it printed.
        """
        limited = ["sh", "-c", f'ulimit -t {most * MOST_WORK}; exec "$@"', "sh"]
        command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:xdist", "-p", "no:cacheprovider", *tests]
        environment = {**self._environment, "NUMBA_CACHE_DIR": str(self.folder / ".numba" / kernels)}
        try:
            done = subprocess.run(
                limited + command,
                cwd=self.folder,
                env=environment,
                capture_output=True,
                text=True,
                timeout=most * MOST_TIME,
            )
        except subprocess.TimeoutExpired:
            return None, ""
        return (done.returncode if done.returncode >= 0 else None), done.stdout + done.stderr

    def test(self, mutant: Mutant) -> Outcome:
        """Apply a mutant, run its tests, take it back."""
        path, began = self.folder / mutant.file, time.monotonic()
        text, status = path.read_text(encoding="utf-8"), path.stat()
        path.write_text(mutant.applied(text), encoding="utf-8")
        self._stamp += 10.0  # compiled files are told from stale ones by a time in whole seconds and a size
        os.utime(path, (self._stamp, self._stamp))
        try:
            code, said = self.run(mutant.tests, mutant.id if "numba" in text else "shared")
        finally:
            path.write_text(text, encoding="utf-8")
            os.utime(path, (status.st_atime, status.st_mtime))
        failed = re.search(r"^(?:FAILED|ERROR) (\S+)", said, re.MULTILINE)
        state = {0: "survived", 1: "killed", None: "killed"}.get(code, "broken")
        by = "took too long" if code is None else failed[1] if failed else "" if code == 0 else said[-2000:]
        return Outcome(mutant, state, time.monotonic() - began, by)


def outcomes(chosen: Sequence[Mutant], jobs: int, folder: Path) -> Iterable[Outcome]:
    """Test mutants in so many copies at once; their outcomes as they come.

    Raises:
        RuntimeError: The tests do not pass without a mutant.
    """
    copies = [Copy(folder / f"copy{n}", folder / "xla") for n in range(jobs)]
    tests = list(dict.fromkeys(test for mutant in chosen for test in mutant.tests))
    shares = [tests[n::jobs] for n in range(jobs)]
    before: queue.SimpleQueue[tuple[int | None, str]] = queue.SimpleQueue()
    after: queue.SimpleQueue[Outcome] = queue.SimpleQueue()
    todo: queue.SimpleQueue[Mutant] = queue.SimpleQueue()
    for mutant in chosen:
        todo.put(mutant)

    def healthy(copy: Copy, share: list[str]) -> None:
        before.put(copy.run(share, "shared", most=20) if share else (0, ""))

    def work(copy: Copy) -> None:
        while True:
            try:
                mutant = todo.get_nowait()
            except queue.Empty:
                return
            try:
                after.put(copy.test(mutant))
            except (ValueError, OSError) as error:  # its line has changed, or its file has gone
                after.put(Outcome(mutant, "broken", by=str(error)))

    for copy, share in zip(copies, shares, strict=True):
        threading.Thread(target=healthy, args=(copy, share), daemon=True).start()
    for _ in copies:
        code, said = before.get()
        if code != 0:
            raise RuntimeError(f"these tests do not pass without a mutant:\n{said[-4000:] or 'they took too long'}")
    for copy in copies:
        threading.Thread(target=work, args=(copy,), daemon=True).start()
    for _ in chosen:
        yield after.get()


def score(found: Iterable[Outcome]) -> float:
    """The share of mutants that were killed, of those that could be."""
    states = [outcome.state for outcome in found if outcome.state != "equivalent"]
    return states.count("killed") / len(states) if states else 1.0


def table(found: Sequence[Outcome]) -> str:
    """Counts and scores by area, and everything that was not killed."""
    areas = list(dict.fromkeys(outcome.mutant.area for outcome in found))
    lines = [f"{'area':<14}{'mutants':>8}{'killed':>8}{'survived':>10}{'equivalent':>12}{'score':>8}"]
    for area in [*areas, None]:
        those = [outcome for outcome in found if area in (None, outcome.mutant.area)]
        count = [sum(o.state == state for o in those) for state in ("killed", "survived", "equivalent", "broken")]
        lines.append(
            f"{area or 'all':<14}{len(those):>8}{count[0]:>8}{count[1] + count[3]:>10}{count[2]:>12}"
            f"{100 * score(those):>7.0f}%"
        )
    for outcome in found:
        if outcome.state in ("survived", "broken"):
            lines += ["", f"{outcome.state}: {outcome.mutant.id} in {outcome.mutant.file}", f"  {outcome.mutant.why}"]
            lines += [f"  {line}" for line in outcome.by.splitlines()[-8:]]
    return "\n".join(lines)


def passes(found: Sequence[Outcome]) -> bool:
    """Whether the scores are what they have to be."""
    whole = all(score(o for o in found if o.mutant.area == area) == 1.0 for area in WHOLE)
    return whole and score(found) >= OVERALL


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; its exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants.run", description=__doc__.split("\n", 1)[0])
    parser.add_argument("--area", help="only the mutants of this area")
    parser.add_argument("--only", action="append", metavar="ID", help="only this mutant; may be repeated")
    parser.add_argument("--list", action="store_true", help="list the mutants and run nothing")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="copies that are tested at once")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the outcomes there too")
    given = parser.parse_args(arguments)
    chosen = [m for m in mutants() if given.area in (None, m.area) and (given.only is None or m.id in given.only)]
    if not chosen:
        parser.error("there is no such mutant; --list shows all")
    if given.list:
        for mutant in chosen:
            print(f"{mutant.area:<14}{mutant.id:<42}{mutant.why}")
        return 0
    found = [Outcome(m, "equivalent", by=m.equivalent) for m in chosen if m.equivalent]
    rest = [m for m in chosen if not m.equivalent]
    with tempfile.TemporaryDirectory(prefix="fedrank-mutants-") as folder:
        try:
            for outcome in outcomes(rest, max(1, min(given.jobs, len(rest))), Path(folder)):
                found.append(outcome)
                killer = outcome.by if outcome.state == "killed" else ""
                print(f"{outcome.state:<10}{outcome.seconds:>6.1f} s  {outcome.mutant.id:<42}{killer}", flush=True)
        except RuntimeError as error:
            print(error, file=sys.stderr)
            return 2
    order = {mutant.id: place for place, mutant in enumerate(chosen)}
    found.sort(key=lambda outcome: order[outcome.mutant.id])
    print("\n" + table(found))
    if given.json:
        given.json.write_text(json.dumps([dataclasses.asdict(outcome) for outcome in found], indent=1))
    return 0 if passes(found) else 1


if __name__ == "__main__":
    sys.exit(main())
