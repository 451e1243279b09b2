"""
A ranker from clicks
====================

Two hundred simulated devices rank in each of forty rounds, new ones every time; their users click, and each sends six
bytes, once. The server's ranker gets better. Queries and clicks are made up by a program.
"""

import fedrank

result = fedrank.run("foltr-es", clients=200, rounds=40, seeds=2, evaluation__every=10)

# %%
# The final values beside a ranker that was trained on relevance labels. An interval is about seeds.

test = result.final.where(split="test")
print(test.select(["measure", "learnt", "learnt ±", "MSE (labels)"]))

# %%
# What left a device, and what is promised about it: an ε of all that a user does.

sent = {(entry.sender, entry.message): entry.bytes_each for entry in result.ledger}
print(sent)
for promise in result.privacy.promises:
    print(f"{promise.unit}: ε = {promise.epsilon:.1f} ({promise.basis})")

# %%
# In a notebook a result shows itself: what it comes to in a sentence, how well the ranker does on queries that it was
# not trained on while users click, and the values after the last round. The dashed line is the ranker from labels.

result
