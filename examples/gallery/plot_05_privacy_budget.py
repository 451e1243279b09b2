"""
What privacy costs
==================

A device takes part once, and privatises the one number that it sends. A smaller ε of all that a user does means more
noise, and a ranker that learns more slowly. Here 9,000 devices take part, with 64 searches each.
"""

import textwrap

import fedrank

rows = []
size = {"clients": 300, "rounds": 30, "interactions": 64, "server": {"learning_rate": 0.01}}
for epsilon in (4.0, 1.0, 0.25, 0.05):
    result = fedrank.train("foltr-es", privacy={"epsilon_user": epsilon}, **size)
    test = result.final.where(split="test", measure="nDCG(dcg='exp-log2')@10")
    rows.append({"ε, user": epsilon, "nDCG(dcg='exp-log2')@10": test["learnt"].item()})
without = fedrank.train("foltr-es", privacy={"p": 1.0}, presentation="interleaved", **size)
test = without.final.where(split="test", measure="nDCG(dcg='exp-log2')@10")
rows.append({"ε, user": float("inf"), "nDCG(dcg='exp-log2')@10": test["learnt"].item()})
print(fedrank.Frame.of_dicts(rows))

# %%
# One seed of a small run: the order of such numbers is noise before it is a finding. What no ε is about:

for sentence in result.privacy.not_covered:
    print(textwrap.fill(sentence, 80, initial_indent="- ", subsequent_indent="  "))
