"""Programs that JAX compiled are kept on disk, so that the next command need not compile them."""

from __future__ import annotations

import hashlib
import os
import platform
from collections.abc import MutableMapping
from pathlib import Path

_FOLDER, _SECONDS = "JAX_COMPILATION_CACHE_DIR", "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"


def keep_programs(environ: MutableMapping[str, str] = os.environ) -> None:
    """Tell JAX where to keep compiled programs, before it is imported.

    What the user set in JAX's own variables stays. Where the cache folder cannot be written to, nothing is kept.

    Args:
        environ: Environment variables, changed.
    """
    if _FOLDER in environ:
        return
    import platformdirs

    folder = Path(platformdirs.user_cache_dir("fedrank", appauthor=False)) / "programs" / _processor()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return
    if os.access(folder, os.W_OK):
        environ[_FOLDER] = str(folder)
        environ.setdefault(_SECONDS, "0.2")


def _processor() -> str:
    """A name of the instructions that the processor has: programs compiled for others may not run on it."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            flags = next((line for line in file if line.lower().startswith(("flags", "features"))), "")
    except OSError:
        flags = ""
    return hashlib.sha256((flags or platform.processor() or platform.machine()).encode()).hexdigest()[:16]
