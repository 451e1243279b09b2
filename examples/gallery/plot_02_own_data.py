"""
Your own data
=============

Arrays, data frames of polars or pandas, LETOR files and folders: whatever :func:`fedrank.load_data` takes. A frame
has a row for each document, a column that says the query, one with the label, and features.
"""

import numpy as np
import polars as pl

import fedrank

rng = np.random.default_rng(0)
n_queries, n_documents = 60, 8
price, rating, age = rng.random((3, n_queries * n_documents))
documents = pl.DataFrame(
    {
        "qid": np.repeat(np.arange(n_queries), n_documents),
        "label": np.round(2 * (0.7 * rating + 0.3 * (1 - price))).astype(int),
        "price": 10 * price,
        "rating": 5 * rating,
        "age": 100 * age,
    }
)

# %%
# A third of the queries is held out. Features that do not lie in [0, 1] are scaled within each query, and the model
# remembers that.

result = fedrank.train("foltr-es", documents, clients=200, rounds=60, holdout=0.33, evaluation__every=10)
model = result.model()
print(model)
for name, weight in zip(model.feature_names, model.tensors["weight"][0], strict=True):
    print(f"{name:8}{weight:+.3f}")

# %%
# The model finds the columns of a frame by their names.

one_query = documents.filter(pl.col("qid") == 3).drop("label", "qid")
print(one_query.with_columns(score=model.score(one_query)).sort("score", descending=True))

# %%
# What the ranker reaches on the queries that were held out, evaluated every ten rounds.

result
