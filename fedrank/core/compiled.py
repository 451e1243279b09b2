"""Numba where it is installed; without it, kernels that say so when they are called.

A module of kernels imports ``njit``, ``prange`` and ``intrinsic`` from here, so that it can be imported without Numba.
Whoever chooses between a kernel and its reference in JAX asks :data:`COMPILES`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NoReturn

from fedrank.core.errors import MissingExtraError
from fedrank.core.optional import is_installed

#: Whether Numba is installed (extra ``fast``), so that kernels can be compiled.
COMPILES = is_installed("numba")


def _without_numba(function: Callable[..., Any] | None = None, **_: Any) -> Callable[..., Any]:
    """A decorator in place of ``numba.njit``: the function refuses to be called."""
    if function is None:
        return _without_numba

    @functools.wraps(function)
    def refuse(*_: Any, **__: Any) -> NoReturn:
        raise MissingExtraError("numba", "fast", f"The compiled kernel {function.__name__}")

    return refuse


if COMPILES:
    from numba import njit, prange
    from numba.extending import intrinsic
else:
    njit, prange, intrinsic = _without_numba, range, _without_numba
