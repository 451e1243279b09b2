"""Numba's decorators: kernels import them from here, so that tests of annotations can put others in their place."""

from numba import njit as njit
from numba import prange as prange
from numba.extending import intrinsic as intrinsic
