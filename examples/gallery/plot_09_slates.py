"""
Slates for the whole stay
=========================

Two platforms share their users; only one sees feedback. They learn together what to show; ten times as many rounds
are needed before it shows. The world is RecSim's "Choc and Kale", where chocolate is clicked more and kale is better
for a user's satisfaction.
"""

import fedrank

result = fedrank.run("vertical-slate", rounds=610, seeds=2, evaluation__every=610)
print(result.final)

result
