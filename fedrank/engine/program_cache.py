"""Compiled programs that are kept from run to run, so that only the first run on a machine compiles.

JAX's own persistent cache, in the user's cache folder, one folder for each kind of processor: a program that was
compiled for another one may not run here. Whoever has chosen a folder (``JAX_COMPILATION_CACHE_DIR``) keeps it, and
``JAX_ENABLE_COMPILATION_CACHE=0`` keeps nothing.
"""

from __future__ import annotations

import hashlib
import platform
from pathlib import Path


def keep_programs() -> Path | None:
    """Keep what is compiled from now on; returns the folder, None if nothing is kept or JAX has one already."""
    import jax
    import platformdirs

    if jax.config.jax_compilation_cache_dir is not None or not jax.config.jax_enable_compilation_cache:  # type: ignore[attr-defined]
        return None
    folder = Path(platformdirs.user_cache_dir("fedrank", appauthor=False)) / "programs" / _processor()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:  # a home that cannot be written to
        return None
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    return folder


def _processor() -> str:
    """Hash of what programs depend on, 12 hexadecimal digits: machine, and its processor's features if known."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    told = next((line for line in lines if line.startswith(("flags", "Features"))), "")
    return hashlib.sha256(f"{platform.machine()} {platform.processor()} {told}".encode()).hexdigest()[:12]
