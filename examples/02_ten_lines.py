"""From your data to your model, and to a ranking, in ten lines; run it with ``python examples/02_ten_lines.py``."""

import numpy as np

import fedrank

random = np.random.default_rng(0)
features = random.random((480, 5))  # 60 queries with 8 documents each, 5 features
labels = np.round(2 * features[:, 0]).astype(int)  # users like the first feature, and the server is never told
query_ids = np.repeat(np.arange(60), 8)

result = fedrank.train("foltr-es", (features, labels, query_ids), clients=500, rounds=50)
model = fedrank.load(result.model().save("ranker.safetensors"))
print("documents of a new query, best first:", model.rank(random.random((8, 5))))
print(
    "nDCG(dcg='exp-log2')@10:",
    round(model.evaluate((features, labels, query_ids))["train"]["nDCG(dcg='exp-log2')@10"], 3),
)
