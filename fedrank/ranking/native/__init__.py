"""Rounds of this wing's protocols on a CPU without JAX, by importing them; see :mod:`fedrank.core.native`."""

from fedrank.ranking.native import central as central
from fedrank.ranking.native import foltr_es as foltr_es
from fedrank.ranking.native import foltr_pdgd as foltr_pdgd
from fedrank.ranking.native import pdgd_variants as pdgd_variants
