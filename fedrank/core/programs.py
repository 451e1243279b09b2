"""Compiled programs of JAX in a process that makes many of them, such as a study of hundreds of runs.

Each program keeps a few regions of memory mapped, and Linux lets a process have 65,530 regions
(``vm.max_map_count``). Beyond that a compilation ends with "Cannot allocate memory", and the process with it, however
much memory is free.
"""

from __future__ import annotations

from pathlib import Path

#: Regions of memory at which programs are let go: half of what Linux allows by default.
MOST_REGIONS = 32_000
_REGIONS = Path("/proc/self/maps")


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
    if regions <= most:
        return False
    import jax

    jax.clear_caches()
    return True
