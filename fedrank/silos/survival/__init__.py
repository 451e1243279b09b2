"""Survival of silos' rows, equal to the analysis of all rows together: Cox's model, Kaplan-Meier curves, log-rank.

All of it rests on sums over silos at the times at which any row had an event, which the silos agree on first::

    silos    the times of events of their rows                                (all silos learn when events happened)
    server   sends β
    silos    at each such time, of their rows still at risk:  Σ w, Σ w x, Σ w x x'  with w = exp(xβ), and the same of
             the rows that have the event there
    server   derivatives of the partial likelihood with Efron's ties, and a step of Newton's method

The sums may be secure sums (:mod:`fedrank.silos.glm.sums`). With strata, each silo has its own baseline hazard and
only the derivatives are summed. Lu et al., *WebDISCO* (JAMIA 2015), is the first federated Cox model of this kind.
"""

from fedrank.silos.survival.cox import CoxFit, Followed, fit_cox
from fedrank.silos.survival.curves import Curve, curves, logrank

__all__ = ["CoxFit", "Curve", "Followed", "curves", "fit_cox", "logrank"]
