"""
What privacy costs
==================

With probability p an interaction's reward is sent as it is, otherwise another of its values. Less p means less ε, and
a ranker that learns more slowly. ε of one interaction, of a message, and of a user who takes part in every round: the
last is the one that a user would ask about.
"""

import textwrap

import fedrank

rows = []
for p in (1.0, 0.9, 0.5, 0.25):
    result = fedrank.train("foltr-es", clients=300, rounds=40, privacy__p=p)
    test = result.final.where(split="test", measure="nDCG(dcg='exp-log2')@10")
    row = {"p": p, "nDCG(dcg='exp-log2')@10": test["learnt"].item()}
    for promise in result.privacy.promises:
        if promise.unit in ("interaction", "message", "user") and promise.basis != "privacy loss distribution":
            row[f"ε, {promise.unit}"] = round(promise.epsilon, 1)
    rows.append(row)
print(fedrank.Frame.of_dicts(rows))

# %%
# One seed of a small run: the order of such numbers is noise before it is a finding. What no ε is about:

for sentence in result.privacy.not_covered:
    print(textwrap.fill(sentence, 80, initial_indent="- ", subsequent_indent="  "))
