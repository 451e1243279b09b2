"""Builds what is released, and empty environments of other Pythons to install it into."""

import functools
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

#: Settings of the tests that a user's environment does not have.
_OF_TESTS = ("PYTHONPATH", "VIRTUAL_ENV", "XLA_FLAGS", "JAX_NUMPY_RANK_PROMOTION", "PYTHONDONTWRITEBYTECODE")


def build(project: Path, out: Path) -> Path:
    """Build a source distribution, and a wheel from nothing but that distribution.

    Args:
        project: Folder with a ``pyproject.toml`` that hatchling builds.
        out: Folder for both files and the unpacked source distribution.

    Returns:
        The wheel; the source distribution lies unpacked beside it.
    """
    _hatchling(project, "sdist", out)
    (archive,) = out.glob("*.tar.gz")
    with tarfile.open(archive) as packed:
        packed.extractall(out, filter="data")
    return build_wheel(out / archive.name.removesuffix(".tar.gz"), out)


def build_wheel(project: Path, out: Path) -> Path:
    """Build a wheel; arguments as :func:`build`."""
    _hatchling(project, "wheel", out)
    (wheel,) = out.glob("*.whl")
    return wheel


def _hatchling(project: Path, target: str, out: Path) -> None:
    command = [sys.executable, "-m", "hatchling", "build", "--target", target, "--directory", str(out)]
    done = subprocess.run(command, cwd=project, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr


@functools.cache
def interpreters() -> dict[str, Path]:
    """Pythons of this machine that fedrank supports, by version such as ``"3.13"``, oldest first.

    They are looked for on ``PATH``, among pyenv's, and in ``FEDRANK_PYTHONS`` (paths of interpreters).
    """
    named = filter(None, os.environ.get("FEDRANK_PYTHONS", "").split(os.pathsep))
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"), "versions")
    folders = (Path(folder) for folder in os.environ.get("PATH", "").split(os.pathsep) if folder)
    paths = [Path(sys.executable), *map(Path, named)]
    paths += [found for folder in (*folders, *pyenv.glob("*/bin")) for found in sorted(folder.glob("python3.*"))]
    found: dict[tuple[int, int], Path] = {}
    for path in paths:
        if re.fullmatch(r"python(3(\.\d+)?)?", path.name) and (version := _version(path)) >= (3, 11):
            found.setdefault(version, path)
    return {f"{major}.{minor}": found[major, minor] for major, minor in sorted(found)}


def _version(python: Path) -> tuple[int, int]:
    """The version of an interpreter that can make environments; (0, 0) of anything else."""
    program = "import sys, venv, ensurepip; print(*sys.version_info[:2])"
    try:
        done = subprocess.run([python, "-I", "-c", program], capture_output=True, text=True, timeout=20)
        major, minor = map(int, done.stdout.split())
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return 0, 0
    return major, minor


def chosen_python(which: str) -> tuple[str, Path]:
    """The version and the path of the ``"oldest"`` or the ``"newest"`` Python of this machine.

    A test that asks for the newest is skipped where the oldest is the only one.
    """
    known = list(interpreters().items())
    if which == "newest" and len(known) == 1:
        pytest.skip("this machine has one Python only")
    return known[0 if which == "oldest" else -1]


@dataclass
class Ran:
    """A command and how it ended.

    Attributes:
        command: As it was typed.
        seconds: Wall-clock time.
        status: Exit status; None if it was not run.
        note: Why it was not run, or what else there is to say.
    """

    command: str
    seconds: float = 0.0
    status: int | None = None
    note: str = ""


@dataclass
class Environment:
    """An environment outside the clone with a wheel in it.

    Args:
        python: The interpreter to make it of.
        home: Folder for the environment and the working folder.
        table: Where its tables are kept up: this path with the suffixes ``.json`` and ``.md``.
    """

    python: Path
    home: Path
    table: Path
    sizes: dict[str, int] = field(default_factory=dict)
    ran: list[Ran] = field(default_factory=list)

    def __post_init__(self):
        self.work = self.home / "work"
        self.work.mkdir(parents=True)
        subprocess.run([self.python, "-m", "venv", self.home / "venv"], check=True, timeout=120)
        self.bin = self.home / "venv" / "bin"
        self.empty = size(self.packages)

    @property
    def packages(self) -> Path:
        """Its folder of installed packages."""
        (folder,) = self.home.glob("venv/lib/python*/site-packages")
        return folder

    @property
    def variables(self) -> dict[str, str]:
        """Variables of the processes in it: those of this process without what is set for tests."""
        kept = {name: value for name, value in os.environ.items() if name not in _OF_TESTS}
        return {**kept, "PATH": f"{self.bin}{os.pathsep}{os.environ.get('PATH', '')}", "COLUMNS": "80"}

    def install(self, what: str, name: str, *flags: str) -> int:
        """Install a requirement and record what the environment then takes, without pip itself.

        Args:
            what: A wheel's path, with extras or without.
            name: What the table calls the installation.
            *flags: Flags for pip.

        Returns:
            Megabytes (10⁶ bytes) on disk.
        """
        pip = [self.bin / "python", "-m", "pip", "install", "-q", "--disable-pip-version-check", *flags, what]
        done = subprocess.run(pip, cwd=self.work, env=self.variables, capture_output=True, text=True, timeout=1800)
        assert done.returncode == 0, done.stderr[-4000:]
        self.sizes[name] = size(self.packages) - self.empty
        self.write()
        return self.sizes[name]

    def run(self, command: str, arguments: list[str], timeout: float = 3600) -> Ran:
        """Run a command in the working folder and record how it ended.

        Args:
            command: What the table shows.
            arguments: The program, looked for in this environment first, and its arguments.
            timeout: Seconds after which it has failed.
        """
        start = time.monotonic()
        program = self.bin / arguments[0]
        argv = [str(program) if program.exists() else arguments[0], *arguments[1:]]
        log = self.work / "last.log"
        with log.open("w", encoding="utf-8") as out:
            try:
                status = subprocess.run(
                    argv, cwd=self.work, env=self.variables, stdout=out, stderr=subprocess.STDOUT, timeout=timeout
                ).returncode
            except subprocess.TimeoutExpired:
                status = 124
        text = log.read_text(encoding="utf-8", errors="replace")
        note = "" if status == 0 else text.strip()[-600:]
        if not_run := len(re.findall(r": not run\. ", text)):
            note = f"{not_run} studies were not run: their data sets are not on this machine"
        self.ran.append(Ran(command, round(time.monotonic() - start, 1), status, note))
        self.write()
        return self.ran[-1]

    def skip(self, command: str, why: str) -> None:
        """Record a command that is not run."""
        self.ran.append(Ran(command, note=why))
        self.write()

    def write(self) -> None:
        """Write the tables, after each command, so that a stopped test leaves what it saw."""
        out = self.table
        out.parent.mkdir(parents=True, exist_ok=True)
        version = ".".join(map(str, _version(self.python)))
        record = {"python": version, "megabytes": self.sizes, "commands": [asdict(ran) for ran in self.ran]}
        out.with_name(f"{out.name}.json").write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
        lines = [f"# Python {version}", "", "| installed | MB |", "| --- | --- |"]
        lines += [f"| {name} | {megabytes} |" for name, megabytes in self.sizes.items()]
        lines += ["", "| command | seconds | exit status | note |", "| --- | --- | --- | --- |"]
        for ran in self.ran:
            status = "not run" if ran.status is None else str(ran.status)
            note = " ".join(ran.note.split()).replace("|", "\\|")
            lines.append(f"| `{ran.command.replace('|', chr(92) + '|')}` | {ran.seconds} | {status} | {note} |")
        out.with_name(f"{out.name}.md").write_text("\n".join(lines) + "\n", encoding="utf-8")

    def remove(self) -> None:
        """Delete it: an environment takes a gigabyte."""
        shutil.rmtree(self.home)


def size(folder: Path) -> int:
    """Megabytes (10⁶ bytes) of the files below a folder."""
    return round(sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) / 1e6)
