"""
Slates for the whole stay
=========================

Two platforms share their users; A sees clicks and engagement, B neither. In the world ``tension`` greed costs: what is
clicked most today, "chocolate", spoils the user for both platforms tomorrow.

Platforms serve 200 users to find out what these like. Then each sends five sums over all of them, once: A of engagement
and of what it observes of satisfaction, B of the latter alone. Each plans whole stays by the four numbers that come of
the sums.
"""

import fedrank

# %%
# Three runs with other users each, under a promise of user-level differential privacy: ε = 2 for a user's whole stay.

result = fedrank.run("planned-slates", world__preset="tension", seeds=3, sharing__epsilon=2.0)
print(result.final.select(["platform", "engagement of a user", "difference to random"]))

# %%
# What fresh users bring, between the fixed policies and the best that is possible for one who knows the user.

result
