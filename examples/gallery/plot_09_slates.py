"""
Slates for the whole stay
=========================

Two platforms share their users; only one sees feedback. They learn together what to show; ten times as many rounds
are needed before it shows. The world is RecSim's "Choc and Kale", where chocolate is clicked more and kale is better
for a user's satisfaction.
"""

import fedrank

# %%
# Ten users, one after the other, twice: too few to learn from, enough to see how it is done.

result = fedrank.run("vertical-slate", rounds=610, seeds=2, evaluation__every=610)
print(result.final.select("platform", "engagement of a user", "difference to random"))

# %%
# What fresh users bring with the learnt networks, between random slates and the best that is possible. Chocolate all
# the time is the best here: in this world thinking ahead gains nothing.

result
