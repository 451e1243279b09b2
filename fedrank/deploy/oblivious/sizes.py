"""Lengths to which encapsulated messages are padded, so that their sizes do not say what they are."""

from __future__ import annotations

#: Every request inside an encapsulated one has so many bytes: the largest is a report with its token.
REQUEST_LENGTH = 1024
#: Answers are padded to a multiple of this; the largest but models, two issuer's keys, takes one.
_UNIT = 2048
#: What an answer has beside its body, at most.
_HEAD = 256
#: Up to so many bytes of a model, all answers are as long as one with a model.
_LARGEST = 16_384


def response_length(length: int, model: int) -> int:
    """The length to which an answer is padded.

    Args:
        length: Bytes of the answer.
        model: Bytes of a model message of the hub.
    """
    least = _multiple(model + _HEAD) if model <= _LARGEST else _UNIT
    return max(_multiple(length), least)


def _multiple(length: int) -> int:
    return -(-length // _UNIT) * _UNIT
