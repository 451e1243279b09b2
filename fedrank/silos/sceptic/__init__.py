"""Simple baselines for one silo, beside what averaging offers, from all of its rows and one division.

Whoever answers for a silo's data asks whether a federation is worth it at all. The ways to a model that stand beside
each other (:mod:`fedrank.silos.sceptic.ways`): the silo alone, with a logistic model and with boosted trees; one
average of all silos' coefficients; federated averaging of the same model; the model that all rows at one place would
give, which sums give as well (:mod:`fedrank.silos.glm`); the others' models as they are; and what pulls the silo's own
model towards the others' as far as its rows ask for it.

Whatever is chosen, a penalty or a way, is chosen by cross-validation inside the rows that train; all rows of the silo
are scored by models that have not seen them (cross-fitting), and AUC and its differences have DeLong's errors.
"""
