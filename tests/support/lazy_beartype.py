"""Checks of annotations that are made when a function is called first: most functions of a process never are."""

from beartype import BeartypeConf, beartype

#: As for every type checker, an int will do where a float is asked for.
_CONF = BeartypeConf(is_pep484_tower=True)


def beartyped(function):
    """The function, checked by beartype. Its check is written at the first call, which takes a millisecond."""
    checked = None

    def call(*values, **named):
        nonlocal checked
        if checked is None:
            checked = beartype(function, conf=_CONF)
        return checked(*values, **named)

    return call
