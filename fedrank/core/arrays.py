"""Types in signatures: arrays of JAX or NumPy, and nested structures of them."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import numpy as np

if TYPE_CHECKING:
    import jax
    from jaxtyping import Integer

    #: An array of JAX, also while it is traced.
    JaxArray: TypeAlias = jax.Array
    #: An array of JAX (also while it is traced) or of NumPy.
    AnyArray: TypeAlias = jax.Array | np.ndarray
    #: A whole number, known when a program is compiled or computed by it.
    AnyInt: TypeAlias = int | Integer[AnyArray, ""]
else:
    # A device has NumPy only, not even jaxtyping, and importing JAX takes a second: whether something is an array of
    # JAX is asked of the module once it is there.
    class _OfJax(type):
        def __instancecheck__(cls, value: object) -> bool:
            jax = sys.modules.get("jax")
            return jax is not None and isinstance(value, jax.Array)

    class _OfEither(_OfJax):
        def __instancecheck__(cls, value: object) -> bool:
            return isinstance(value, np.ndarray | np.generic) or super().__instancecheck__(value)

    class JaxArray(metaclass=_OfJax):
        """An array of JAX, also while it is traced."""

    class AnyArray(metaclass=_OfEither):
        """An array of JAX (also while it is traced) or of NumPy."""

    AnyInt = int | AnyArray


#: A nested structure (tuples, dictionaries, messages, registered dataclasses) whose leaves are arrays. Static types
#: cannot say more; this is ``jaxtyping.PyTree`` without an import of JAX.
PyTree: TypeAlias = Any

#: The kind of array that a function takes and returns, JAX's or NumPy's.
ArrayT = TypeVar("ArrayT", bound=AnyArray)


def module_of(*arrays: Any) -> ModuleType:
    """``jax.numpy`` where one of the arrays is JAX's, else ``numpy``: for functions that are written once for both."""
    if not any(isinstance(array, JaxArray) for array in arrays):
        return np
    import jax.numpy

    return jax.numpy


def take(table: Any, index: Any) -> Any:
    """Entries of a table's last axis at the places, from 0, of the last axis of an index; leading axes broadcast."""
    if table.ndim == 1:
        return table[index]
    xp = module_of(table, index)
    lead = np.broadcast_shapes(table.shape[:-1], index.shape[:-1])
    if xp is np and table.shape[:-1] == lead == index.shape[:-1]:  # a third of the time of take_along_axis
        starts = np.arange(0, table.size, table.shape[-1]).reshape(*lead, 1)
        return np.ravel(table).take(index + starts)
    tables, places = (xp.broadcast_to(array, (*lead, array.shape[-1])) for array in (table, index))
    return xp.take_along_axis(tables, places, axis=-1)
