"""Where JAX is told to keep compiled programs."""

from pathlib import Path

import pytest

from fedrank.core.programs import keep_programs_of_commands


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def test_programs_are_kept_in_the_cache_folder(home):
    environ = {}
    keep_programs_of_commands(environ)
    folder = Path(environ["JAX_COMPILATION_CACHE_DIR"])
    assert folder.is_dir() and home in folder.parents
    assert float(environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"]) < 1


def test_what_the_user_says_stays(home):
    environ = {"JAX_COMPILATION_CACHE_DIR": ""}
    keep_programs_of_commands(environ)
    assert environ == {"JAX_COMPILATION_CACHE_DIR": ""}


def test_where_nothing_can_be_written_nothing_is_kept(home, monkeypatch):
    def refuse(*args, **kwargs):
        raise PermissionError("read-only file system")

    monkeypatch.setattr(Path, "mkdir", refuse)
    environ = {}
    keep_programs_of_commands(environ)
    assert environ == {}
