"""
Keep a model, and hand it on
============================

A model's file holds everything that scoring needs. ONNX is for other languages and runtimes.
"""

import numpy as np
import onnxruntime

import fedrank

model = fedrank.train("foltr-es", ranker="mlp", clients=200, rounds=20).model()
print(model.save("ranker.safetensors"), model.to_onnx("ranker.onnx"))

# %%
# The loaded model gives the same scores to the last bit; the ONNX runtime to rounding.

features = np.random.default_rng(0).random((6, 46), dtype=np.float32)
again = fedrank.load("ranker.safetensors").score(features)
runtime = onnxruntime.InferenceSession("ranker.onnx").run(None, {"features": features})[0]
print("equal:", np.array_equal(again, model.score(features)))
print("largest difference of ONNX:", np.abs(runtime - again).max())
print("ranking:", model.rank(features))

# %%
# Where it comes from travels with it.

for name in ("protocol", "data", "seed", "rounds"):
    print(f"{name:10}{model.about[name]}")
print(len(model.about["settings"]), "settings, such as clients =", model.about["settings"]["clients"])
