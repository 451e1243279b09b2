"""
Search each other's texts
=========================

Four companies hand out noisy sketches of their documents, search everybody's, and train a common ranker. Texts are
made up by a program.
"""

import fedrank

result = fedrank.run("silo-sketch", rounds=20, seeds=1)
print(result.final)

# %%
# The baselines stand in the same table: BM25 at home and over everybody's sketches. Whole documents are not protected:
# what insiders can read of them, ``fedrank attack sketch`` measures.

result
