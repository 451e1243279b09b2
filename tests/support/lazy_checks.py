"""Checks of annotations that are made when a function is called first, and once for each form of what it gets.

Tests put :func:`jaxtyped` in the place of ``jaxtyping.jaxtyped``, which evaluates all annotations of a function, and
writes two functions, when a module is imported: half of the time that importing fedrank takes. Functions without arrays
in their annotations are checked by beartype alone, once a call; jaxtyping checks parameters twice.

A check takes a tenth of a millisecond, and the checks of a function that is made anew at every call of another five.
Whether annotations hold follows from types, shapes and dtypes of arguments and result, their *form*: a form that has
passed is not checked again. Where more than that matters every call is checked.
"""

import dataclasses
import functools
import inspect
from collections.abc import Collection
from typing import Any, get_args

from beartype import BeartypeConf, beartype
from jaxtyping import AbstractArray, PyTree, TypeCheckError
from jaxtyping import jaxtyped as checked_by_jaxtyping
from jaxtyping._decorator import _destring_annotation

#: As for every type checker, an int will do where a float is asked for. What is refused is a TypeError, as in
#: jaxtyping: code that parses what others send catches it.
_CONF = BeartypeConf(is_pep484_tower=True, violation_type=TypeCheckError)

#: Words in annotations that ask for more than a form: values of arguments, all leaves of a tree.
_NEEDS_VALUES = ("{", "Literal[", "PyTree[", "Annotated[")

#: Forms that have passed, by the source of a function: one that stands in another is made again and again.
_PASSED: dict[tuple, dict[tuple, set]] = {}


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
    checked = passed = None

    @functools.wraps(function)
    def call(*values, **named):
        nonlocal checked, passed
        if passed is None:
            passed = _passed_forms(function)
        try:
            form = tuple(map(_form, values)), tuple((name, _form(value)) for name, value in named.items())
        except _AnyForm:
            form = None
        results = passed.get(form) if form is not None and passed is not _EVERY_CALL else None
        if results is not None:
            result = function(*values, **named)
            try:
                known = _form(result) in results
            except _AnyForm:
                known = False
            if not known:  # the same function with the result that there is
                _with_checks(_returning(function, result), typechecker)(*values, **named)
                passed = _EVERY_CALL
            return result
        if checked is None:
            checked = _with_checks(function, typechecker)
        result = checked(*values, **named)
        if form is not None and passed is not _EVERY_CALL:
            try:
                passed.setdefault(form, set()).add(_form(result))
            except _AnyForm:
                passed = _EVERY_CALL
        return result

    call.has_lazy_checks = True
    return call


#: In the place of forms: every call of this function is checked.
_EVERY_CALL: dict = {}


def _passed_forms(function):
    """The forms of arguments that have passed, each with its forms of results; :data:`_EVERY_CALL` for none at all."""
    if inspect.iscoroutinefunction(function):
        return _EVERY_CALL
    names = function.__module__, function.__qualname__
    source = function.__code__, *names, *map(str, function.__annotations__.values())
    if source not in _PASSED:
        hints = repr(list(_hints(function).values()))
        _PASSED[source] = _EVERY_CALL if any(word in hints for word in _NEEDS_VALUES) else {}
    return _PASSED[source]


class _AnyForm(Exception):
    """A value whose type and shape do not say whether annotations hold."""


def _form(value):
    kind = type(value)
    how = _KINDS.get(kind)
    if how is None:
        how = _KINDS[kind] = _kind_of(kind)
    if how == "type":
        return kind
    if how == "array":
        return kind, value.shape, value.dtype
    if how == "tuple" and len(value) <= _MOST_ITEMS:
        return kind, tuple(map(_form, value))
    if how == "dict" and len(value) <= _MOST_ITEMS:
        return kind, tuple((_form(key), _form(item)) for key, item in value.items())
    if how == "class":
        return kind, value
    raise _AnyForm


_KINDS: dict[type, str] = {}

#: Items of a collection that belong to its form; of more than these each call is checked.
_MOST_ITEMS = 16


def _kind_of(kind):
    if (hasattr(kind, "dtype") and hasattr(kind, "shape")) or hasattr(kind, "aval"):  # also what JAX traces
        return "array"
    if issubclass(kind, type):
        return "class"
    if issubclass(kind, tuple | list):
        return "tuple"
    if issubclass(kind, dict):
        return "dict"
    return "other" if issubclass(kind, Collection) and not issubclass(kind, str | bytes) else "type"


def _returning(function, result):
    @functools.wraps(function)
    def replayed(*values, **named):
        return result

    return replayed


def _hints(function):
    return {
        name: _destring_annotation(hint, function.__globals__)
        for name, hint in inspect.get_annotations(function).items()
    }


def _with_checks(function, typechecker):
    """The function checked by jaxtyping if its annotations have arrays, else by beartype alone."""
    hints = _hints(inspect.unwrap(function))
    if any(map(_has_arrays, hints.values())):
        return checked_by_jaxtyping(function, typechecker=typechecker)
    function.__annotations__ = hints
    return typechecker(function)


def _has_arrays(hint: Any) -> bool:
    if inspect.isclass(hint) and issubclass(hint, AbstractArray | PyTree):
        return True
    return any(map(_has_arrays, hint if isinstance(hint, list) else get_args(hint)))
