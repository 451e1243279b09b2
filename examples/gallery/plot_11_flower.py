"""
The same run over Flower's messages
===================================

Organisations run protocols on Flower (``flwr run apps/foltr-es``). Here two nodes answer in this process, through the
very messages that Flower carries, and the model is the simulator's.
"""

import tempfile
from pathlib import Path

import numpy as np

import fedrank
from fedrank_flower.rounds import LocalNetwork
from fedrank_flower.server_app import serve

folder = Path(tempfile.mkdtemp())
table = {"protocol": "foltr-es", "clients": 20, "privacy-p": 0.9, "num-server-rounds": 5, "checkpoint-dir": str(folder)}
serve(table, LocalNetwork(table))
print(sorted(path.name for path in folder.iterdir()))

# %%
# Nodes draw from the run's seed here, so that the simulator must come to the same model. At a real node the operating
# system's random numbers are used.

simulated = fedrank.train("foltr-es", clients=20, rounds=5, privacy__p=0.9).model()
carried = fedrank.load(folder)
difference = np.abs(carried.tensors["weight"] - simulated.tensors["weight"]).max()
print("largest difference of a weight:", difference)
