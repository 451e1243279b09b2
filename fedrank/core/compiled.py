"""Numba's decorators: kernels import them from here, so that tests of annotations can put others in their place."""

from collections.abc import Callable
from typing import Any

from numba import extending
from numba import njit as njit
from numba import prange as prange
from numba.core import event

#: It takes the typing context away from the function's arguments, which a type checker does not see.
intrinsic: Any = extending.intrinsic


class OnCompilation(event.Listener):
    """Calls a function once, when Numba begins to compile what no earlier process left in its cache.

    ``with OnCompilation(tell): …`` listens while the block runs.

    Args:
        tell: The function, without arguments.
    """

    def __init__(self, tell: Callable[[], None]):
        self._tell: Callable[[], None] | None = tell

    def on_start(self, event: Any) -> None:
        """Call the function, the first time."""
        if self._tell is not None:
            tell, self._tell = self._tell, None
            tell()

    def on_end(self, event: Any) -> None:
        """Nothing: how long it took is not asked."""

    def __enter__(self) -> None:
        event.register("numba:compile", self)

    def __exit__(self, *_: object) -> None:
        event.unregister("numba:compile", self)
