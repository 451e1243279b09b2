"""Families of generalised linear models: what one silo computes of its rows, and what sums of it say.

Axes of arrays: ``rows`` of one silo, ``p`` columns, the intercept among them where there is one.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.special import expit

from fedrank.core.errors import UnknownNameError

#: Families by name, and what the label is.
FAMILIES = {"logistic": "0 or 1", "linear": "a number"}


class Sums(NamedTuple):
    """What one silo adds to the sum, or the sum over silos.

    Attributes:
        value: Log-likelihood; of a linear model −½ Σ (y − xβ)², its residual deviation being unknown.
        gradient: Its derivatives by β.
        information: Its negative second derivatives by β: positive semi-definite.
    """

    value: float
    gradient: Float[np.ndarray, " p"]
    information: Float[np.ndarray, "p p"]

    def __add__(self, other: Sums) -> Sums:  # type: ignore[override]
        return Sums(self.value + other.value, self.gradient + other.gradient, self.information + other.information)

    def flat(self) -> Float[np.ndarray, " numbers"]:
        """All numbers in one vector: the value, the gradient, the upper triangle of the information."""
        upper = np.triu_indices(len(self.gradient))
        return np.concatenate([[self.value], self.gradient, self.information[upper]])

    @classmethod
    def of(cls, flat: Float[np.ndarray, " numbers"], p: int) -> Sums:
        """The inverse of :meth:`flat`."""
        information = np.zeros((p, p))
        information[np.triu_indices(p)] = flat[1 + p :]
        return cls(float(flat[0]), flat[1 : 1 + p], information + np.triu(information, 1).T)


def check_family(name: str) -> None:
    """Refuse a family that there is not.

    Raises:
        UnknownNameError: Says which there are.
    """
    if name not in FAMILIES:
        raise UnknownNameError("family of a generalised linear model", name, tuple(FAMILIES))


def sums(
    family: str,
    beta: Float[np.ndarray, " p"],
    x: Float[np.ndarray, "rows p"],
    y: Float[np.ndarray, " rows"],
) -> Sums:
    """What one silo adds: the log-likelihood of its rows at β, and its derivatives.

    Args:
        family: One of :data:`FAMILIES`.
        beta: β.
        x: The silo's rows, a column of ones for the intercept.
        y: Its labels.
    """
    eta = x @ beta
    if family == "linear":
        rest = y - eta
        return Sums(-0.5 * float(rest @ rest), x.T @ rest, x.T @ x)
    mean = expit(eta)
    # log(1 + e^η) without overflow.
    value = float(y @ eta - np.logaddexp(0.0, eta).sum())
    return Sums(value, x.T @ (y - mean), (x * (mean * (1 - mean))[:, None]).T @ x)


def firth_gradient(
    beta: Float[np.ndarray, " p"],
    covariance: Float[np.ndarray, "p p"],
    x: Float[np.ndarray, "rows p"],
) -> Float[np.ndarray, " p"]:
    """What one silo adds to the derivatives of ½ log det(Σ H) of a logistic model (Firth 1993): Σ h (½ − μ) x.

    Args:
        beta: β.
        covariance: (Σ H)⁻¹ of all silos at β.
        x: The silo's rows.
    """
    mean = expit(x @ beta)
    leverage = mean * (1 - mean) * np.einsum("ij,jk,ik->i", x, covariance, x)
    return x.T @ (leverage * (0.5 - mean))
