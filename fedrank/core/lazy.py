"""JAX and optax, imported when something of them is first used: importing them costs half a second and 100 MB.

An extra brings them; :func:`require_jax` says so before any work.

A run whose rounds need no JAX (:mod:`fedrank.core.native`) never imports it. Modules that such a run imports take
``jax``, ``jnp`` and ``optax`` from here. Programs are compiled by :func:`jit`, and pytrees registered by
:func:`dataclass_of_arrays` and :func:`static`, which wait as well. :func:`on_cpu` asks for JAX's device
without importing JAX where that is possible.

Other packages that an extra brings are loaded at their first use too, and one error names them where they are missing.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeVar

from fedrank.core.errors import MissingExtraError


def is_installed(package: str) -> bool:
    """True if a package can be imported; it is not imported."""
    return find_spec(package) is not None


def require(extra: str, why: str, *packages: str) -> None:
    """Check for all packages of an extra before work begins that needs them later.

    Args:
        extra: The extra of fedrank that brings them.
        why: What needs them, the beginning of a sentence: ``"A page"``.
        *packages: Their names in an import.

    Raises:
        MissingExtraError: One of them is not installed.
    """
    for package in packages:
        if not is_installed(package):
            raise MissingExtraError(package, extra, why)


class OptionalModule(ModuleType):
    """A module that is imported when one of its names is first asked for.

    Args:
        package: Its name in an import.
        extra: The extra of fedrank that brings it.
        why: What needs it, the beginning of a sentence.

    Raises:
        MissingExtraError: From asking for a name where the package is not installed.
    """

    def __init__(self, package: str, extra: str, why: str):
        super().__init__(package)
        self.__dict__["_needed"] = (extra, why)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # what inspects modules asks for these, and needs no package
            raise AttributeError(name)
        require(*self.__dict__["_needed"], self.__name__.partition(".")[0])
        return getattr(import_module(self.__name__), name)


Class = TypeVar("Class", bound=type)

#: Classes that become pytrees once JAX is there, and the function of ``jax.tree_util`` that makes them one.
_waiting: list[tuple[str, type]] = []


class LazyModule(OptionalModule):
    """JAX or a part of it, imported when one of its names is first asked for; the extra ``jax`` brings it."""

    def __init__(self, package: str):
        super().__init__(package, "jax", "This")

    def __getattr__(self, name: str) -> Any:
        value = super().__getattr__(name)
        register_waiting()
        setattr(self, name, value)
        return value


if TYPE_CHECKING:
    import jax as jax
    import jax.numpy as jnp
    import optax as optax
else:
    jax, jnp, optax = LazyModule("jax"), LazyModule("jax.numpy"), LazyModule("optax")


def register_waiting() -> None:
    """Make pytrees of the classes that wait for it, if JAX has been imported."""
    module = sys.modules.get("jax.tree_util")
    while _waiting and module is not None and hasattr(module, "register_static"):
        how, cls = _waiting.pop()
        getattr(module, how)(cls)


def dataclass_of_arrays(cls: Class) -> Class:
    """``jax.tree_util.register_dataclass``, at once or when JAX is imported."""
    _waiting.append(("register_dataclass", cls))
    register_waiting()
    return cls


def static(cls: Class) -> Class:
    """``jax.tree_util.register_static``, at once or when JAX is imported."""
    _waiting.append(("register_static", cls))
    register_waiting()
    return cls


#: Less optimisation, for programs that compute little: half the time to compile, and as fast (measured for rounds and
#: evaluations of slates with 10 and 100 candidates on two cores).
_LESS = {"xla_backend_optimization_level": 1}
#: All of a program as one piece: its parts are compiled one after another, in a tenth less processor time.
_WHOLE = {"xla_cpu_parallel_codegen_split_count": 1}
#: The same with the older code generator for loops, in JAX that has both: two thirds of that time, and as fast.
_LEAST = {**_LESS, **_WHOLE, "xla_cpu_use_fusion_emitters": False}
#: Less optimisation, and vectors of 512 bits where a processor has them, for programs of networks, whose products are
#: not compiled anyway: as fast as with all optimisation, and activations a sixth faster (AVX-512, networks of 32 and 64
#: units). Other processors take the vectors that they have.
_WIDE = {**_LESS, **_WHOLE, "xla_cpu_prefer_vector_width": 512}


def jit(function: Callable[..., Any], *, quick: bool = False, wide: bool = False, **options: Any) -> Callable[..., Any]:
    """``jax.jit`` of a function, made when it is first called.

    Args:
        function: The function.
        quick: It computes little, so that it is compiled with less optimisation.
        wide: It computes networks mostly, so that it is compiled with less optimisation for the widest vectors.
        options: Of ``jax.jit``.
    """

    @functools.cache
    def made() -> Callable[..., Any]:
        if quick or wide:
            options["compiler_options"] = _compiler_options(wide=not quick)
        return jax.jit(function, **options)

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        return made()(*args, **kwargs)

    return call


@functools.cache
def _compiler_options(wide: bool) -> dict[str, Any]:
    """Options of the compiler, as this JAX has them; none where a GPU computes.

    A level of optimisation is of all of XLA, and the compiler for GPUs supports none below its own.

    Args:
        wide: For programs that gain from wide vectors; else for those that compute little.
    """
    if jax.default_backend() != "cpu":
        return {}
    wanted = _WIDE if wide else _LEAST
    return wanted if _compiles(**wanted) else _LESS


def _compiles(**options: Any) -> bool:
    """True if this JAX accepts the compiler options: another version may have removed them, or not have them yet."""
    try:
        jax.jit(lambda: 0, compiler_options=options).lower().compile()
    except jax.errors.JaxRuntimeError:
        return False
    return True


@functools.cache
def on_cpu() -> bool:
    """True if JAX computes on the CPU here, as it always does without a plug-in of JAX for an accelerator.

    Without JAX, NumPy computes on the CPU.
    """
    if not is_installed("jax"):
        return True
    platforms = os.environ.get("JAX_PLATFORMS", "")
    if "jax" not in sys.modules:
        if platforms == "cpu":
            return True
        from importlib.metadata import entry_points  # it imports fifty modules, which most commands do without

        known = find_spec("jax_plugins") or find_spec("libtpu") or entry_points(group="jax_plugins")
        if not platforms and not known:
            return True
    import jax

    return jax.default_backend() == "cpu"


def is_loaded() -> bool:
    """True once JAX has been imported."""
    return sys.modules.get("jax") is not None


def require_jax(why: str) -> None:
    """Check for JAX before work begins that needs it later.

    Args:
        why: What needs it, the beginning of a sentence: ``"A critic"``.

    Raises:
        MissingExtraError: JAX or optax is not installed.
    """
    require("jax", why, "jax", "optax")


def device_kind() -> str:
    """JAX's name for the kind of device that it computes on."""
    if on_cpu():
        return "cpu"
    import jax

    return jax.devices()[0].device_kind
