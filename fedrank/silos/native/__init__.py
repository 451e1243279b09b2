"""Rounds of silos without JAX: importing the package registers them, for :func:`fedrank.core.native.native_rounds`.

:mod:`~fedrank.silos.native.training` trains the networks of many silos at once. What the server does is not written
again: it is the exchanges' own ``ask`` and ``tell``, with arrays of NumPy (:mod:`~fedrank.silos.native.rounds`).
"""

from fedrank.silos.native import bandit as bandit
from fedrank.silos.native import personalised as personalised
