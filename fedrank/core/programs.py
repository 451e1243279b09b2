"""Compiled programs of JAX: where they are kept from run to run, and how many a process keeps.

JAX's own persistent cache, in the user's cache folder, one folder for each kind of processor: a program that was
compiled for another one may not run here. Whoever has chosen a folder (``JAX_COMPILATION_CACHE_DIR``) keeps it, and
``JAX_ENABLE_COMPILATION_CACHE=0`` keeps nothing.

Each program keeps a few regions of memory mapped, and Linux lets a process have 65,530 regions
(``vm.max_map_count``). Beyond that a compilation ends with "Cannot allocate memory", and the process with it, however
much memory is free.
"""

from __future__ import annotations

import hashlib
import os
import platform
from collections.abc import MutableMapping
from pathlib import Path

from fedrank.core.lazy import is_installed

#: Regions of memory at which programs are let go: half of what Linux allows by default.
MOST_REGIONS = 32_000
_REGIONS = Path("/proc/self/maps")
_FOLDER, _SECONDS = "JAX_COMPILATION_CACHE_DIR", "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"


def keep_programs() -> Path | None:
    """Keep what is compiled from now on; returns the folder, None if nothing is kept or JAX has one already."""
    if not is_installed("jax"):
        return None
    import jax

    if jax.config.jax_compilation_cache_dir is not None or not jax.config.jax_enable_compilation_cache:  # type: ignore[attr-defined]
        return None
    if (folder := _folder()) is not None:
        jax.config.update("jax_compilation_cache_dir", str(folder))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
        jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    return folder


def keep_programs_of_commands(environ: MutableMapping[str, str] = os.environ) -> None:
    """Tell JAX where to keep compiled programs, before it is imported.

    What the user set in JAX's own variables stays. Where the cache folder cannot be written to, nothing is kept.

    Args:
        environ: Environment variables, changed.
    """
    if _FOLDER not in environ and (folder := _folder()) is not None:
        environ[_FOLDER] = str(folder)
        environ.setdefault(_SECONDS, "0.2")


def _folder() -> Path | None:
    """The folder for programs that run on this processor; None where it cannot be written to."""
    import platformdirs

    folder = Path(platformdirs.user_cache_dir("fedrank", appauthor=False)) / "programs" / _processor()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return None
    return folder if os.access(folder, os.W_OK) else None


def _processor() -> str:
    """A name of the instructions that the processor has: programs compiled for others may not run on it."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            flags = next((line for line in file if line.lower().startswith(("flags", "features"))), "")
    except OSError:
        flags = ""
    return hashlib.sha256((flags or platform.processor() or platform.machine()).encode()).hexdigest()[:16]


def release_programs(most: int = MOST_REGIONS) -> bool:
    """Let all compiled programs go if they hold too many regions of memory; those still needed are compiled again.

    Args:
        most: Regions that this process may have.

    Returns:
        True if they were let go. False if regions cannot be counted, as on systems other than Linux.
    """
    try:
        with _REGIONS.open("rb") as lines:
            regions = sum(1 for _ in lines)
    except OSError:
        return False
    if regions <= most or not is_installed("jax"):
        return False
    import jax

    jax.clear_caches()
    return True
