"""What crosses in a first look: sums over rows, models of arms and folds, AUC differences.

Numbers are IEEE doubles, little-endian, eight bytes each. Axes: ``silos`` are arms, one a silo, that of the target
being the target alone; ``models`` are folds of the target's rows; ``parameters`` and ``cells`` are numbers of a model.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Integer, UInt8

from fedrank.core.messages import Array, field, message, u1, u4


def packed(values: Float[np.ndarray, "*axes"]) -> UInt8[np.ndarray, "*axes bytes"]:
    """Doubles as bytes."""
    return np.ascontiguousarray(values, "<f8")[..., None].view(np.uint8)


def unpacked(octets: Integer[np.ndarray, "*axes bytes"]) -> Float[np.ndarray, "*axes"]:
    """The inverse of :func:`packed`."""
    return np.ascontiguousarray(np.asarray(octets).astype(np.uint8)).view("<f8")[..., 0].astype(float)


@message(kind=1)
class Begin:
    """Server to silos: a first look begins."""

    target: Array = field(u4, "number of the silo that asks", largest="largest_silo")


@message(kind=2)
class Totals:
    """Silo to server: counts, totals and squares of its columns, by fold for the target, and its own model.

    Squares are around the silo's own means, so that no digits are lost, and are brought to common means by the server.
    """

    totals: Array = field(u1["models", "cells":"thrice", "bytes":8], "values of a column, their sum, and squares")
    model: Array = field(u1["parameters", "bytes":8], "coefficients of the silo's own model, in the columns' units")


@message(kind=3)
class Models:
    """Server to silos: a model of each arm and fold, and what its columns are standardised by."""

    means: Array = field(u1["silos", "models", "cells":"columns", "bytes":8], "means of columns")
    deviations: Array = field(u1["silos", "models", "cells":"columns", "bytes":8], "deviations of columns")
    weights: Array = field(u1["silos", "models", "parameters", "bytes":8], "coefficients of standardised columns")


@message(kind=4)
class Derivatives:
    """Silo to server: log-likelihood, gradient and information at the models, summed over its rows."""

    sums: Array = field(u1["silos", "models", "cells":"numbers", "bytes":8], "sums over the silo's rows")


@message(kind=5)
class Shown:
    """Server to the target: the models of all arms, and each silo's own."""

    means: Array = field(u1["silos", "models", "cells":"columns", "bytes":8], "means of columns")
    deviations: Array = field(u1["silos", "models", "cells":"columns", "bytes":8], "deviations of columns")
    weights: Array = field(u1["silos", "models", "parameters", "bytes":8], "coefficients of standardised columns")
    own: Array = field(u1["silos", "parameters", "bytes":8], "each silo's own model, in the columns' units")


@message(kind=6)
class Judged:
    """Target to server: what each arm's models are worth on its rows."""

    gains: Array = field(u1["silos", "bytes":8], "AUC of the arm minus that of the target alone")
    errors: Array = field(u1["silos", "bytes":8], "standard errors of these")
    scores: Array = field(u1["silos", "bytes":8], "AUC of each silo's own model as it is")
    score_errors: Array = field(u1["silos", "bytes":8], "standard errors of these")
