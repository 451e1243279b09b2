"""
Whose models help mine
======================

Four silos made up by a program: one is like the target, one complements it, one is of no use, one harms. Each sends
its model; the target tries whom to average with, and says who helped, with an interval.
"""

import fedrank

result = fedrank.run("bandit-fedavg", rounds=6, seeds=3, target="hospital-A", train=60)
print(result.final.where(split="test").select(["measure", "learnt", "learnt ±", "target alone"]))

# %%
# Your own table: a row for each patient, a column with the silo, one with the label::
#
#     fedrank.train("bandit-fedavg", frame, silo="hospital", label="ill", target="south")
#
# The silo's model after averaging with those whom the rule chose, beside training alone and averaging with everybody.

result
