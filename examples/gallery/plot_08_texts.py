"""
Search each other's texts
=========================

Four companies hand out noisy sketches of their documents, search everybody's, and train a common ranker. Texts are
made up by a program.
"""

import fedrank

result = fedrank.run("silo-sketch", rounds=20, seeds=1)
print(result.final.select("method", "nDCG@10", "ERR", "MAP"))

# %%
# That table is about a silo's own documents, where there is little to gain. The chart is about searching everybody's:
# there plain BM25 over sketches is ahead of any search at home, and training adds to it. Whole documents are not
# protected: what insiders can read of them, ``fedrank attack sketch`` measures.

result
