"""Checks of annotations that are made when a function is called first: most functions of a process never are.

Tests put :func:`jaxtyped` in the place of ``jaxtyping.jaxtyped``, which evaluates all annotations of a function, and
writes two functions, when a module is imported: half of the time that importing fedrank takes. Functions without arrays
in their annotations are checked by beartype alone, once a call; jaxtyping checks parameters twice.
"""

import dataclasses
import functools
import inspect
from typing import Any, get_args

from beartype import BeartypeConf, beartype
from jaxtyping import AbstractArray, PyTree, TypeCheckError
from jaxtyping import jaxtyped as checked_by_jaxtyping
from jaxtyping._decorator import _destring_annotation

#: As for every type checker, an int will do where a float is asked for. What is refused is a TypeError, as in
#: jaxtyping: code that parses what others send catches it.
_CONF = BeartypeConf(is_pep484_tower=True, violation_type=TypeCheckError)


def beartyped(function):
    """The function, checked by beartype."""
    return beartype(function, conf=_CONF)


def jaxtyped(*, typechecker):
    """A decorator of functions, descriptors and dataclasses, as ``jaxtyping.jaxtyped`` is one."""
    return functools.partial(_checked, typechecker=typechecker)


def _checked(given, typechecker):
    again = jaxtyped(typechecker=typechecker)
    if inspect.isclass(given):
        if dataclasses.is_dataclass(given) and not hasattr(given.__init__, "has_lazy_checks"):
            given.__init__ = again(given.__init__)
        return given
    if isinstance(given, classmethod | staticmethod):
        return type(given)(again(given.__func__))
    if isinstance(given, property):
        return property(*(part and again(part) for part in (given.fget, given.fset, given.fdel)))
    return _checked_function(given, typechecker) if getattr(given, "__annotations__", None) else given


def _checked_function(function, typechecker):
    checked = None

    @functools.wraps(function)
    def call(*values, **named):
        nonlocal checked
        if checked is None:
            checked = _with_checks(function, typechecker)
        return checked(*values, **named)

    call.has_lazy_checks = True
    return call


def _with_checks(function, typechecker):
    """The function checked by jaxtyping if its annotations have arrays, else by beartype alone."""
    hints = {
        name: _destring_annotation(hint, function.__globals__)
        for name, hint in inspect.get_annotations(function).items()
    }
    if any(map(_has_arrays, hints.values())):
        return checked_by_jaxtyping(function, typechecker=typechecker)
    function.__annotations__ = hints
    return typechecker(function)


def _has_arrays(hint: Any) -> bool:
    if inspect.isclass(hint) and issubclass(hint, AbstractArray | PyTree):
        return True
    return any(map(_has_arrays, hint if isinstance(hint, list) else get_args(hint)))
