"""Numba's decorators: kernels import them from here, so that tests of annotations can put others in their place."""

from typing import Any

from numba import extending
from numba import njit as njit
from numba import prange as prange

#: It takes the typing context away from the function's arguments, which a type checker does not see.
intrinsic: Any = extending.intrinsic
