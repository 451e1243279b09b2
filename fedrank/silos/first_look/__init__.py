"""Before the first round: who helps and who harms the target, and whose labels look inverted, as messages.

The verdicts of :mod:`fedrank.silos.sceptic.verdicts`, from sums that cross instead of rows. Each other silo is an arm,
and so is the target alone; of each arm there is a model for every fold of the target's rows::

    totals     server asks; silos send counts and totals of their columns, and their own model      → means
    squares    server sends means; silos send squares around them                                   → deviations
    newton …   server sends β of every arm and fold; a silo sends derivatives for its arm, the target for all of
               them, its own penalty included; β ← β + H⁻¹g                                          a few times
    judge      server sends the models to the target alone; it sends AUC differences with their errors

Everything crosses as double precision, and a verdict is that of the rows at one place. Which rows are in which fold
stays at the target, and so do all scores. A setup of a run (:attr:`fedrank.core.protocol.Protocol.setup`): it runs in a
simulator and over Flower.
"""

from fedrank.silos.first_look.protocol import FirstLook, Looked

__all__ = ["FirstLook", "Looked"]
