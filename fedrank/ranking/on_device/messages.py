"""Messages of :mod:`fedrank.ranking.foltr_es`, to the byte; a device reads and writes them with NumPy alone.

A reply has 9 bytes for MaxRR with B = 4 and antithetic halves, 6 with one privatised number; 6 to 13 in all settings.
A check of the model has the bytes of a reply, and another kind.
"""

from __future__ import annotations

from fedrank.core.messages import Array, f4, field, i4, message, u1, u2, u3, u4

_SEED = "seed of the random perturbation that was tried; says nothing about anyone"


@message(kind=1)
class Request:
    """Server to devices: the model to start from."""

    round: Array = field(u4, "number of the round")
    weights: Array = field(f4["parameters"], "the ranker to start from")


@message(kind=2)
class Reply:
    """Device to server, antithetic: what two opposite perturbations were worth, in units of 1/scale of the metric."""

    seed: Array = field(u4, _SEED)
    plus: Array = field(
        u2 | u3, "sum of the privatised metric values with the perturbation added", largest="largest_sum"
    )
    minus: Array = field(
        u2 | u3, "sum of the privatised metric values with the perturbation subtracted", largest="largest_sum"
    )


@message(kind=3)
class PlainReply:
    """Device to server without antithetic halves: what a perturbation was worth, in units of 1/scale of the metric."""

    seed: Array = field(u4, _SEED)
    plus: Array = field(
        u2 | u3, "sum of the privatised metric values with the perturbation added", largest="largest_sum"
    )


@message(kind=4)
class NoisyReply:
    """Device to server, antithetic, with noise on the sums instead of randomised values; any integer may come."""

    seed: Array = field(u4, _SEED)
    plus: Array = field(i4, "sum of the metric values with the perturbation added, and noise")
    minus: Array = field(i4, "sum of the metric values with the perturbation subtracted, and noise")


@message(kind=5)
class PrivateReply:
    """Device to server, antithetic: one number about the whole message, the privatised difference of its halves."""

    seed: Array = field(u4, _SEED)
    report: Array = field(
        u1, "privatised difference of the halves, as the number of a report", largest="largest_report"
    )


_PAIR = "first four bytes of the hash of the model that the newest was compared with; says nothing about anyone"


@message(kind=6)
class Check:
    """Device to server: what the newest model was worth and what the best one so far, as :class:`Reply` says it."""

    pair: Array = field(u4, _PAIR)
    plus: Array = field(u2 | u3, "sum of the privatised metric values with the newest model", largest="largest_sum")
    minus: Array = field(u2 | u3, "sum of the privatised metric values with the best model", largest="largest_sum")


@message(kind=7)
class PrivateCheck:
    """Device to server: newest model less the best one so far, one privatised number as in :class:`PrivateReply`."""

    pair: Array = field(u4, _PAIR)
    report: Array = field(
        u1, "privatised difference of the two models, as the number of a report", largest="largest_report"
    )
