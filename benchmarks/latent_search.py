"""What a latent semantic space of a federation's own documents would add to a served search, at best.

    FEDRANK_DATA=FOLDER python -m benchmarks.latent_search [--out FILE] [--seeds N]

Owners could fit a latent semantic space (truncated singular value decomposition of tf-idf) from sums over their
documents, without an encoder that somebody else trained. This measures the most that such a fit can give: the space is
made of all owners' documents at one place, without noise, and takes the encoder's place beside BM25. Collections,
owners, statistics, lists and intervals are those of :mod:`benchmarks.served_search`, whose table has the rows of the
encoder.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.preprocessing import normalize

from benchmarks.served_search import COLLECTIONS, SEEDS, WEIGHTS, base, lists_of, ndcg, served, summary, world
from fedrank.texts.data.corpus import tokenise

#: Dimensions of the space, where there are as many documents.
SIZE = 100


class Latent:
    """A latent semantic space, with what :class:`fedrank.texts.served.encoder.Encoder` has for an index.

    Args:
        texts: Texts that it is fitted to.
    """

    def __init__(self, texts: list[str]):
        words: dict[str, Any] = {"analyzer": lambda text: tokenise([text])[0], "sublinear_tf": True}
        self._words = TfidfVectorizer(**words)
        counts = self._words.fit_transform(texts)
        self.size, self.digest = min(SIZE, *(side - 1 for side in np.shape(counts))), "latent"
        self._svd = TruncatedSVD(self.size, random_state=0).fit(counts)

    def encode(self, texts: list[str]) -> np.ndarray:
        """Vectors of length one, float32 [texts, size]."""
        return np.asarray(normalize(self._svd.transform(self._words.transform(texts))), np.float32)


def cell(name: str, seed: int) -> dict[str, list[float]]:
    """nDCG(dcg='exp-log2')@10 of each query, by row."""
    owners, queries = world(name, seed)
    latent = Latent([f"{one.title} {one.body}" for documents in owners for one in documents])
    with served(owners, latent, seed) as made:  # type: ignore[arg-type]
        lists = lists_of(made, queries)
    rows = {"BM25": [ndcg(one.grades, one.ideal, one.scores) for one in lists]}
    for weight in WEIGHTS:
        rows[f"BM25 + {weight:g} latent cosine"] = [ndcg(one.grades, one.ideal, base(one, weight)) for one in lists]
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/latent_search.json"))
    parser.add_argument("--seeds", type=int, default=len(SEEDS))
    chosen = parser.parse_args()
    cells = {}
    for name in COLLECTIONS:
        for seed in SEEDS[: chosen.seeds]:
            cells[f"{name} {seed}"] = cell(name, seed)
            print(f"{name} {seed}", flush=True)
    table = summary(cells)
    chosen.out.write_text(json.dumps({"dimensions": SIZE, "summary": table}, indent=1) + "\n")
    print(json.dumps(table, indent=1))


if __name__ == "__main__":
    main()
