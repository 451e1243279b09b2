"""Run the cases with the code of a checkout and write what came out; see the package's docstring for the commands."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from .cases import CASES, Case
from .digest import Digest, digest

#: Settings of the environment that would change numbers or read another machine's compiled programs.
UNSET = ("XLA_FLAGS", "JAX_COMPILATION_CACHE_DIR", "JAX_NUMPY_RANK_PROMOTION", "JAX_ENABLE_X64", "FEDRANK_THREADS")

#: Flags with which programs compile several times as fast; numbers differ from others' in their last digits.
QUICK = "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"

REPOSITORY = Path(__file__).resolve().parents[3]


def select(names: Sequence[str] = (), real: bool = True) -> list[Case]:
    """Cases by name, all of them without names.

    Args:
        names: Names of cases.
        real: Whether cases that need real data are among all.

    Raises:
        SystemExit: A name is unknown.
    """
    known = {case.name: case for case in CASES}
    if unknown := [name for name in names if name not in known]:
        raise SystemExit(f"no case {', '.join(unknown)}; there are: {' '.join(known)}")
    return [known[name] for name in names] if names else [case for case in CASES if real or not case.real]


def record(
    cases: Sequence[Case],
    *,
    root: Path = REPOSITORY,
    python: str = sys.executable,
    cache: Path | None = None,
    keep: Path | None = None,
    optimised: bool = False,
    quiet: bool = False,
) -> dict[str, Digest]:
    """Run cases in one process of their own, in a fresh folder, and return what each left.

    Args:
        cases: Which; those whose folders they read are run before them.
        root: Checkout whose ``fedrank`` runs.
        python: Interpreter with what fedrank needs.
        cache: Folder for compiled programs; without it none are kept.
        keep: Folder for the runs; by default a temporary one that is removed.
        optimised: Compile as a run does, in place of fast with :data:`QUICK`.
        quiet: No line for each case on standard error.

    Raises:
        SystemExit: The process ended with an error.
    """
    known = {case.name: case for case in CASES}
    wanted = {case.name for case in cases} | {name for case in cases for name in case.needs}
    ordered = [case for case in known.values() if case.name in wanted]
    with tempfile.TemporaryDirectory(prefix="golden-") as temporary:
        work = (keep or Path(temporary)).resolve()
        run_cases(ordered, work, environment(root, cache, optimised), root=root, python=python, quiet=quiet)
        return {case.name: digest(work / case.name, case.files, case.prints) for case in cases}


def run_cases(
    cases: Sequence[Case],
    work: Path,
    env: Mapping[str, str],
    *,
    root: Path = REPOSITORY,
    python: str = sys.executable,
    quiet: bool = False,
    pages: bool = True,
) -> list[str]:
    """Run cases, in their order, in one process; each leaves a folder in ``work``.

    Args:
        cases: Which.
        work: Folder for the runs.
        env: The environment of the process.
        root: Checkout whose ``fedrank`` runs.
        python: Interpreter with what fedrank needs.
        quiet: No line for each case on standard error.
        pages: Whether runs draw their pages, which takes longer than a tiny run.

    Returns:
        Names of the cases of which a command failed.

    Raises:
        CalledProcessError: The process ended with an error, or by a signal.
    """
    for case in cases:
        (work / case.name).mkdir(parents=True)
        for name, text in case.files.items():
            path = work / case.name / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(_placed(text, case.name), encoding="utf-8")
    commands = [{"name": c.name, "commands": [_words(command, c.name) for command in c.commands]} for c in cases]
    subprocess.run(
        [python, "-P", str(Path(__file__).with_name("worker.py"))],
        input=json.dumps({"root": str(root.resolve()), "cases": commands, "pages": pages}),
        text=True,
        check=True,
        cwd=work,
        env=dict(env),
        stdout=subprocess.DEVNULL if quiet else sys.stderr,
    )
    done = {case.name: json.loads((work / case.name / "status.json").read_text()) for case in cases}
    return [name for name, commands in done.items() if any(one["status"] for one in commands)]


def _placed(text: str, name: str) -> str:
    return text.replace('"@/', f'"{name}/')


def _words(command: str, name: str) -> list[str]:
    """A command line as words, with folders for ``@``, ``@/FILE`` and ``@NAME``."""
    words = []
    for word in command.split():
        if word == "@":
            word = f"{name}/run"
        elif word.startswith("@/"):
            word = name + word[1:]
        elif word.startswith("@"):
            word = f"{word[1:]}/run"
        words.append(word)
    return words


def environment(root: Path, cache: Path | None, optimised: bool) -> dict[str, str]:
    env = {name: value for name, value in os.environ.items() if name not in UNSET}
    paths = [str(root.resolve()), str(root.resolve() / "zoo"), *filter(None, [env.get("PYTHONPATH")])]
    env |= {"PYTHONPATH": os.pathsep.join(paths), "JAX_PLATFORMS": "cpu"}
    if not optimised:
        env["XLA_FLAGS"] = QUICK
    if cache is not None:
        env |= {"JAX_COMPILATION_CACHE_DIR": str(cache.resolve()), "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}
        env |= {"JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1"}
    return env


def to_json(recording: dict[str, Digest]) -> str:
    """A line for each kind of each case, so that a change is a small difference of the file."""
    cases = []
    for name, kinds in recording.items():
        lines = [
            f"  {json.dumps(kind)}: {json.dumps(items, ensure_ascii=False, separators=(',', ':'))}"
            for kind, items in kinds.items()
        ]
        cases.append(f" {json.dumps(name)}: {{\n" + ",\n".join(lines) + "\n }")
    return "{\n" + ",\n".join(cases) + "\n}\n"


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.golden.runs.record", description=__doc__)
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--out", type=Path, help="the recording to write")
    where.add_argument("--update", type=Path, help="a recording in which these cases are replaced")
    where.add_argument("--list", action="store_true", help="print the cases' command lines")
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="these cases")
    parser.add_argument("--no-real", action="store_true", help="without the cases that need real data")
    parser.add_argument("--root", type=Path, default=REPOSITORY, help="checkout whose fedrank runs")
    parser.add_argument("--python", default=sys.executable, help="interpreter with what fedrank needs")
    parser.add_argument("--cache", type=Path, help="folder for compiled programs")
    parser.add_argument("--optimised", action="store_true", help="compile as a run does; for recordings made alike")
    parser.add_argument("--keep", type=Path, help="folder for the runs, instead of a temporary one")
    given = parser.parse_args(arguments)
    cases = select(given.only, real=not given.no_real)
    if given.list:
        for case in cases:
            print(case.name, *(f"    fedrank {command}" for command in case.commands), sep="\n")
        return
    recording = record(
        cases, root=given.root, python=given.python, cache=given.cache, keep=given.keep, optimised=given.optimised
    )
    if given.update:
        recording = json.loads(given.update.read_text(encoding="utf-8")) | recording
    (given.out or given.update).write_text(to_json(recording), encoding="utf-8")


if __name__ == "__main__":
    main()
