"""What all tests share: checked shapes and types, a strict JAX on the CPU, and the real data set where there is one.

This file is read before any test module, so before ``fedrank`` and ``jax`` are imported: settings made here hold for
the whole run, in every worker process.
"""

import ctypes
import gc
import importlib
import inspect
import os
import sys
import typing
from pathlib import Path

import jaxtyping
import pytest

ROOT = Path(__file__).resolve().parents[1]

sys.path.insert(0, str(ROOT / "tests" / "support"))  # helpers that several test folders share

import lazy_checks  # noqa: E402

# Imports, syntax trees and programs that JAX traces are many objects that stay: looking for circles among them after
# every 700 new ones takes two thirds of the time to parse a file.
gc.set_threshold(100_000, 20, 50)

os.environ.setdefault("JAX_PLATFORMS", "cpu")
# Tests keep no programs in the user's cache folder.
if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
    os.environ.setdefault("JAX_ENABLE_COMPILATION_CACHE", "0")
# With FEDRANK_TEST_FULL_XLA=1 programs are compiled as users compile them.
if not os.environ.get("FEDRANK_TEST_FULL_XLA"):
    import quick_xla

    if quick_xla.FLAGS not in os.environ.get("XLA_FLAGS", ""):
        os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {quick_xla.FLAGS}".strip()
# Arrays of different ranks do not broadcast by accident: a missing axis is an error, not a wrong number.
os.environ.setdefault("JAX_NUMPY_RANK_PROMOTION", "raise")


def _checked_modules() -> list[str]:
    """The modules whose annotations are checked at every call: all but packages, and one that asks Numba for types.

    A package's own file holds a docstring; naming it would take in everything below it.
    """
    zoo, flower = ROOT / "zoo", ROOT / "flower"
    names = [path.relative_to(ROOT).with_suffix("").parts for path in sorted((ROOT / "fedrank").rglob("*.py"))]
    names += [path.relative_to(zoo).with_suffix("").parts for path in sorted(zoo.glob("*/*/*.py"))]
    names += [path.relative_to(flower).with_suffix("").parts for path in sorted(flower.glob("*/*.py"))]
    names += [("fedrank_zoo", "value_attacks"), ("fedrank_zoo", "weight_attacks")]
    return [".".join(name) for name in names if name[-1] != "__init__"]


def _unwrapped_by_numba():
    """Have Numba compile a function's source, through the wrapper that a check of annotations is.

    What calls a kernel is checked; the kernel itself is not.
    """
    compiled = importlib.import_module("fedrank.core.compiled")
    for name in ("njit", "intrinsic"):
        setattr(compiled, name, _of_source(getattr(compiled, name)))


def _of_source(decorator):
    def decorate(function=None, **settings):
        if function is None:
            return lambda given: decorator(**settings)(inspect.unwrap(given))
        return decorator(inspect.unwrap(function), **settings)

    return decorate


def _import_what_devices_run():
    """Import the modules that import jaxtyping for type checkers only, because a device has NumPy only.

    They are told that a type checker reads them, so that their annotations can be checked like all others.
    """
    # What they import in turn must not be told so.
    for module in ("numpy", "jax", "fedrank.core.arrays", "fedrank.core.errors", "fedrank.core.registry"):
        importlib.import_module(module)
    typing.TYPE_CHECKING = True
    for module in (
        "core.rng",
        "metrics.online",
        "privacy.accounts.randomised_response",
        "privacy.quantise",
        "privacy.piecewise",
        "privacy.randomised_response",
        "privacy.noise.discrete",
        "ranking.on_device",
        "deploy.device.trial",
    ):
        importlib.import_module(f"fedrank.{module}")
    importlib.import_module("fedrank_zoo.fleet.device")
    typing.TYPE_CHECKING = False


def pytest_configure(config):
    if not config.getoption("numprocesses", None):  # a process that tests, not the one that hands tests out
        jaxtyping.jaxtyped = lazy_checks.jaxtyped
        jaxtyping.install_import_hook(_checked_modules(), "lazy_checks.beartyped")
        _unwrapped_by_numba()
        _import_what_devices_run()


@pytest.hookimpl(tryfirst=True)  # before pytest chooses by marks
def pytest_collection_modifyitems(items):
    from slow_list import listed_tests

    for mark in ("slow", "minutes"):
        listed = set(listed_tests(mark))
        for item in items:
            test = item.nodeid.partition("[")[0]
            if listed & {item.nodeid, test, test.partition("::")[0]}:
                item.add_marker(mark)


def pytest_collection_finish():
    """What imports and collection left stays for good: the garbage collector need not look at it again and again."""
    gc.collect()
    gc.freeze()


def pytest_sessionfinish():
    """Pytest looks for garbage five times at the end: what is left after once need not be looked at again."""
    gc.collect()
    gc.freeze()


#: Megabytes that a process may hold when a file of tests ends, before it lets compiled programs go.
_MOST_MEGABYTES = 1000


def pytest_runtest_teardown(item, nextitem):
    """Let programs of JAX go where they hold much memory: other files seldom run the same."""
    if nextitem is not None and nextitem.path == item.path:
        return
    pages = Path("/proc/self/statm")  # on Linux alone
    if "jax" in sys.modules and pages.exists() and _resident_megabytes(pages) > _MOST_MEGABYTES:
        sys.modules["jax"].clear_caches()
        gc.collect()
        if hasattr(libc := ctypes.CDLL(None), "malloc_trim"):
            libc.malloc_trim(0)


def _resident_megabytes(pages):
    return int(pages.read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


@pytest.fixture(scope="session")
def mq2008() -> Path:
    """The folder of LETOR 4.0 MQ2008's parts S1, S2, … as files; needs the environment variable FEDRANK_DATA."""
    root = os.environ.get("FEDRANK_DATA")
    if not root:
        pytest.skip("MQ2008 is needed: set FEDRANK_DATA to the folder that holds the real data sets")
    for folder in (Path(root, "ltr", "mq2008"), Path(root, "mq2008")):
        if any(folder.glob("S1.txt*")):
            return folder
    pytest.skip(f"MQ2008 is needed: no mq2008/S1.txt* in FEDRANK_DATA={root}")
