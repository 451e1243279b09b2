"""Whether the bytes of a report could come from an honest device, checked without arrays."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from typing import Any

from fedrank.core.messages import WIRE_VERSION, Layout
from fedrank.deploy.terms import Terms


def terms_check(terms: Terms) -> Callable[[bytes], str | None]:
    """The check of the messages that devices may send under some terms, as of :func:`report_check`."""
    reply = report_check(terms.reply)
    if terms.check is None:
        return reply
    check = report_check(terms.check)
    return lambda message: check(message) if terms.is_check(message) else reply(message)


def report_check(layout: Layout[Any]) -> Callable[[bytes], str | None]:
    """A check of messages as by :meth:`fedrank.core.messages.Layout.decode`, in a microsecond and without arrays.

    Args:
        layout: Layout of the message.

    Returns:
        A function of bytes: None for a message that an honest device could send, ``"malformed"`` for another length,
        version or kind, ``"out-of-range"`` for a number beyond its field's largest or not finite.
    """
    head, size = WIRE_VERSION << 5 | layout.kind, layout.nbytes
    whole: list[tuple[int, int, int]] = []  # start, stop, largest
    single: list[int] = []  # starts of floats
    at = 1
    for field in layout.fields:
        width = field.nbytes // math.prod(field.shape) if field.nbytes else 1
        for start in range(at, at + field.nbytes, width):
            if field.dtype == "f4":
                single.append(start)
            elif field.largest is not None:
                whole.append((start, start + width, field.largest))
        at += field.nbytes

    def check(message: bytes) -> str | None:
        if len(message) != size or message[0] != head:
            return "malformed"
        for start, stop, largest in whole:
            if int.from_bytes(message[start:stop], "little") > largest:
                return "out-of-range"
        for start in single:
            if not math.isfinite(struct.unpack_from("<f", message, start)[0]):
                return "out-of-range"
        return None

    return check
