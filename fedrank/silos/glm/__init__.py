"""Generalised linear models of silos' rows, equal to the fit of all rows together.

The log-likelihood of all rows is a sum over silos, and so are its derivatives. One round of Newton's method::

    server   sends β                                                                     Coefficients
    silos    l_k(β) = Σ log p(y|x, β),  g_k = Σ ∂l/∂β,  H_k = −Σ ∂²l/∂β∂β'  of own rows     Sums
    server   β ← β + (Σ H_k + Λ)⁻¹ (Σ g_k − Λ(β − β₀)),  halved until Σ l_k − penalty does not fall

The sums are what a secure sum gives (:mod:`fedrank.privacy.secure_sum`), so that the server needs no silo's own; the
covariance of β is (Σ H_k)⁻¹. The result is that of the rows at one place, up to rounding in the last round: a linear
model takes one round, a logistic one four to eight. Before the first round columns are brought to mean 0 and deviation
1 by moments that are sums as well (:mod:`fedrank.silos.glm.sums`); coefficients are given back in the columns' own
units.

What the sums say: of two silos each learns the other's by subtraction, and the moments of few rows say much about
these rows. A sum protects silos from the server, not rows from whoever sees the sum.

Luo et al., *ODAL* (JAMIA 2020) and *COLA-GLM* (2024) do the same for one round and for tables of counts. Firth's
penalty (Biometrika 1993), for labels that a column separates, takes one sum more a round.
"""

from fedrank.silos.glm.federated import FederatedFit, fit_silos
from fedrank.silos.glm.newton import Fit, Newton, ridge

__all__ = ["FederatedFit", "Fit", "Newton", "fit_silos", "ridge"]
