"""What a served search gains by an encoder, and by learning from clicks on its lists.

    FEDRANK_DATA=FOLDER python -m benchmarks.served_search [--kept FOLDER] [--out FILE] [--only NAME]
    FEDRANK_DATA=FOLDER python -m benchmarks.served_search --encoder wordllama --no-clicks --first 400

Each collection is cut by topic among four owners, anew for each seed; in a pair, each collection is an owner. Owners
search with the statistics that they summed with noise (ε = 1 a document), as they do when they are served. The weight
of the encoder's cosine beside BM25 is fixed; which weight the other collections would choose is in the table. Users
click on the lists that they are shown; the residual ranker learns by FOLtR-ES with randomised response, ε = 1 a search.
Five folds of queries: a query is judged by weights that were learnt from the others. Intervals are of paired
differences over queries, after the mean over seeds, for another seed makes no new queries. Vectors and finished cells
are kept in a folder and not made again.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import tempfile
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from scipy import stats

import fedrank
from fedrank.data import load
from fedrank.deploy.search.federation import Hit, _lying_encoders, base_and_features
from fedrank.texts.data.corpus import corpus_of
from fedrank.texts.data.reader import TextReader
from fedrank.texts.data.silos import cut
from fedrank.texts.served.analyser import english
from fedrank.texts.served.documents import Document, Words
from fedrank.texts.served.encoder import MINILM, load_encoder
from fedrank.texts.served.engines.tantivy import TantivyEngine
from fedrank.texts.served.envelopes import Tickets
from fedrank.texts.served.owner import COSINE, NAMES, Owner, OwnerSettings
from fedrank.texts.served.statistics import StatisticsTerms

COLLECTIONS = ("adi", "cisi", "cranfield", "vaswani")
PAIRS = (("adi", "cisi"), ("cranfield", "cisi"), ("adi", "cranfield"))
SEEDS, FOLDS, OWNERS = range(300, 308), 5, 4
#: Hits that each owner gives, and of the list that is judged.
HITS, DEPTH = 20, 10
#: Settings of the learning: 40,000 searches with a list.
LEARNING: dict[str, Any] = {"clients": 200, "interactions": 4, "rounds": 50, "sigma": 1.0}
LEARNING_RATE = 0.03
#: Randomised response with ε = 1 a search, 4 a message: MaxRR of ten ranks has eleven values.
P, USER = math.e / (math.e + 10), "informational"
#: Weights of the cosine that are tried.
WEIGHTS = (0.5, 1.0, 2.0, 4.0, 8.0)


class Text(NamedTuple):
    """A query: as typed, and the grades of relevant documents."""

    words: str
    grades: dict[str, int]


class List(NamedTuple):
    """A list as it was served, in the order of the scores, and the grades of all relevant documents."""

    scores: np.ndarray
    features: np.ndarray
    grades: np.ndarray
    ideal: list[int]
    owner: np.ndarray
    ideal_by_owner: list[list[int]]


class Kept:
    """An encoder whose vectors are kept in a folder, text by text."""

    def __init__(self, folder: Path, name: str):
        self._encoder = load_encoder(name)
        self.size, self.digest = self._encoder.size, self._encoder.digest
        self._file = folder / f"{self.digest}.npz"
        self._known: dict[str, np.ndarray] = {}
        self._changed = False
        if self._file.exists():
            with np.load(self._file) as kept:
                self._known = dict(zip(kept["texts"].tolist(), kept["vectors"], strict=True))

    def encode(self, texts: list[str]) -> np.ndarray:
        """Vectors of texts."""
        new = [text for text in texts if text not in self._known]
        if new:
            self._known.update(zip(new, self._encoder.encode(new), strict=True))
            self._changed = True
        return np.stack([self._known[text] for text in texts])

    def keep(self) -> None:
        """Write all vectors to the folder, if there are new ones."""
        if not self._changed:
            return
        self._file.parent.mkdir(parents=True, exist_ok=True)
        np.savez(self._file, texts=np.array(list(self._known)), vectors=np.stack(list(self._known.values())))


def documents_of(name: str) -> tuple[list[Document], list[Text], Any]:
    texts = load(name, TextReader())
    corpus = corpus_of(texts)
    documents = [
        Document(f"{name}-{number}", title, body)
        for number, (title, body) in enumerate(zip(texts.titles, texts.bodies, strict=True))
    ]
    queries = []
    for number, words in enumerate(texts.queries):
        here = corpus.judged_queries == number
        judged = zip(corpus.judged_documents[here].tolist(), corpus.grades[here].tolist(), strict=True)
        grades = {f"{name}-{document}": int(grade) for document, grade in judged if grade > 0}
        if grades:
            queries.append(Text(words, grades))
    return documents, queries, corpus


def world(name: str, seed: int) -> tuple[list[list[Document]], list[Text]]:
    """Documents of each owner, and the queries."""
    if "+" in name:
        both = [documents_of(part) for part in name.split("+")]
        return [documents for documents, _, _ in both], [query for _, queries, _ in both for query in queries]
    documents, queries, corpus = documents_of(name)
    places = cut(corpus, OWNERS, "topic", seed).documents
    return [[documents[place] for place in own] for own in places], queries


def noise(rng: np.random.Generator) -> Any:
    """Rounded Gaussian noise that can be repeated; owners that are served draw it from the operating system."""
    return lambda deviation, size: np.rint(rng.normal(0, deviation, size)).astype(np.int64)


@contextlib.contextmanager
def served(owners: list[list[Document]], encoder: Kept, seed: int) -> Iterator[list[Owner]]:
    """Owners with their indexes and the statistics that they summed."""
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        made = []
        for number, documents in enumerate(owners):
            engine = TantivyEngine(Path(folder) / str(number), encoder)  # type: ignore[arg-type]
            stack.callback(engine.close)
            engine.add(documents)
            key, tickets = X25519PrivateKey.generate(), Tickets(bytes(32))
            made.append(Owner(engine, key, tickets, None, OwnerSettings(), None, encoder))  # type: ignore[arg-type]
        terms, rng = StatisticsTerms(len(owners)), np.random.default_rng([seed, 1])
        vectors: list[np.ndarray] = [terms.vector(list[Words](one.engine.words()), noise(rng)) for one in made]
        table = terms.table(sum(vectors[1:], start=vectors[0]))
        for one in made:
            one.table = table
        yield made


def lists_of(owners: list[Owner], queries: list[Text]) -> list[List]:
    """Each query's list, merged from all owners' answers."""
    where = {}
    for number, one in enumerate(owners):
        for query in queries:
            where.update({id: number for id in query.grades if one.engine.get(id) is not None})
    made = []
    for query in queries:
        words, hits = english().cut_query(query.words), []
        for number, one in enumerate(owners):
            hits += [(hit.score, hit.features, hit.id, number) for hit in one.search(words, HITS, query.words)]
        hits.sort(key=lambda hit: -hit[0])
        scores = np.array([hit[0] for hit in hits])
        features = np.array([hit[1] for hit in hits]).reshape(len(hits), len(NAMES))
        own = [
            sorted((grade for id, grade in query.grades.items() if where.get(id) == number), reverse=True)
            for number in range(len(owners))
        ]
        grades = np.array([query.grades.get(hit[2], 0) for hit in hits], np.int64)
        ideal = sorted(query.grades.values(), reverse=True)
        made.append(List(scores, features, grades, ideal, np.array([hit[3] for hit in hits], np.int64), own))
    return made


def ndcg(grades: np.ndarray, ideal: list[int], scores: np.ndarray) -> float:
    """nDCG(dcg='exp-log2')@10 with all relevant documents in the ideal list, found or not; gains 2^grade − 1."""
    weights = 1 / np.log2(np.arange(2, DEPTH + 2))
    best = grades[np.argsort(-scores, kind="stable")][:DEPTH]
    most = np.array(ideal[:DEPTH], np.float64)
    return float((2.0**best - 1) @ weights[: len(best)] / ((2.0**most - 1) @ weights[: len(most)]))


def base(one: List, cosine: float, here: np.ndarray | None = None) -> np.ndarray:
    """Base scores of a list, or of a part of it."""
    part = slice(None) if here is None else here
    scores, numbers = one.scores[part].tolist(), one.features[part].tolist()
    hits = [
        Hit(str(owner), 0.0, "", "", tuple(row)) for owner, row in zip(one.owner[part].tolist(), numbers, strict=True)
    ]
    lying = _lying_encoders(hits)  # as a federation leaves them out
    return base_and_features(scores, numbers, [hit.owner not in lying for hit in hits], cosine)[0]


class Way(NamedTuple):
    """How weights are learnt."""

    cosine: float = COSINE
    columns: tuple[int, ...] = tuple(range(len(NAMES)))
    rounds: int = LEARNING["rounds"]
    p: float = P
    learning_rate: float = LEARNING_RATE


def learn(lists: list[List], seed: int, user: str, way: Way) -> np.ndarray:
    """Weights from clicks on these lists; only those of the way's columns differ from 0."""
    lists, columns = [one for one in lists if len(one.scores)], list(way.columns)
    x = np.concatenate([np.column_stack([base(one, way.cosine), one.features[:, columns]]) for one in lists])
    # Users of a click model know grades 0, 1 and 2; where a collection has one grade, it is the best.
    top = max(int(one.grades.max()) for one in lists)
    y = np.concatenate([np.minimum(one.grades, 2) * (2 if top == 1 else 1) for one in lists])
    q = np.repeat(np.arange(len(lists)), [len(one.scores) for one in lists])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", fedrank_warning())
        made = fedrank.train(
            "foltr-es",
            (x.astype(np.float32), y, q),
            ranker="residual",
            clicks=user,
            normalise="none",
            evaluation__baselines=(),
            privacy__p=way.p,
            seed=seed,
            server__learning_rate=way.learning_rate,
            **LEARNING | {"rounds": way.rounds},
        )
    out = np.zeros(len(NAMES))
    out[columns] = np.asarray(made.model().weights)  # type: ignore[attr-defined]
    return out


def fedrank_warning() -> type[Warning]:
    from fedrank.core.errors import FedrankWarning

    return FedrankWarning


def fused(one: List) -> np.ndarray:
    """Reciprocal rank fusion of score and cosine (Cormack, Clarke & Büttcher 2009), k = 60."""
    ranks = [np.argsort(np.argsort(-part, kind="stable"), kind="stable") for part in (one.scores, one.features[:, 0])]
    return sum((1 / (61 + rank) for rank in ranks), start=np.zeros(len(one.scores)))


def cell(name: str, seed: int, encoder: Kept, user: str, ways: dict[str, Way], known: dict[str, Any]) -> dict[str, Any]:
    """nDCG(dcg='exp-log2')@10 of each query, for all rows of a collection and a seed; known rows are not made again."""
    owners, queries = world(name, seed)
    with served(owners, encoder, seed) as made:
        lists = lists_of(made, queries)
    rows: dict[str, Any] = {
        "BM25": [ndcg(one.grades, one.ideal, one.scores) for one in lists],
        "cosine": [ndcg(one.grades, one.ideal, one.features[:, 0]) for one in lists],
        "rank fusion": [ndcg(one.grades, one.ideal, fused(one)) for one in lists],
    }
    for weight in WEIGHTS:
        rows[f"BM25 + {weight:g} cosine"] = [ndcg(one.grades, one.ideal, base(one, weight)) for one in lists]
    fold = np.random.default_rng([seed, 2]).permutation(len(lists)) % FOLDS
    for label, way in ways.items():
        if label in known:
            continue
        values, own = np.zeros(len(lists)), np.full((3, len(lists)), np.nan)
        for number in range(FOLDS):
            train = [one for one, other in zip(lists, fold, strict=True) if other != number]
            weights = learn(train, seed * FOLDS + number, user, way)
            for place in np.flatnonzero(fold == number):
                one = lists[place]
                values[place] = ndcg(one.grades, one.ideal, base(one, way.cosine) + one.features @ weights)
                parts = [own_of(one, who, weights) for who in range(len(owners)) if one.ideal_by_owner[who]]
                own[:, place] = np.mean(parts, axis=0) if parts else math.nan
        rows[label] = values.tolist()
        if label == "learnt":
            rows |= {f"own documents: {row}": part.tolist() for row, part in zip(OWN, own, strict=True)}
    return rows | known


WAYS = {
    "learnt without encoder": Way(cosine=0.0, columns=(1,)),
    "learnt from BM25": Way(cosine=0.0, learning_rate=0.1),
    "learnt without privacy": Way(p=1.0),
    "learnt": Way(),
}
OWN = ("BM25", f"BM25 + {COSINE:g} cosine", "learnt")


def own_of(one: List, who: int, weights: np.ndarray) -> tuple[float, float, float]:
    """nDCG(dcg='exp-log2')@10 of an owner's search of its own documents: BM25, the cosine, what was learnt."""
    here, ideal = one.owner == who, one.ideal_by_owner[who]
    if not here.any():
        return 0.0, 0.0, 0.0
    grades, hybrid = one.grades[here], base(one, COSINE, here)
    scores = (one.scores[here], hybrid, hybrid + one.features[here] @ weights)
    first, second, third = (ndcg(grades, ideal, some) for some in scores)
    return first, second, third


def chosen_elsewhere(table: dict[str, Any]) -> dict[str, float]:
    """The weight of the cosine that has the best mean gain on all collections that share no documents with one."""
    out = {}
    for name in table:
        others = [one for one in table if "+" not in one and one not in name.split("+")]
        if others:
            out[name] = max(
                WEIGHTS, key=lambda weight: np.mean([table[one][f"BM25 + {weight:g} cosine"]["gain"] for one in others])
            )
    return out


def interval(gain: np.ndarray) -> dict[str, float]:
    """Mean over queries and half of its 95 % interval."""
    half = stats.t.ppf(0.975, len(gain) - 1) * gain.std(ddof=1) / math.sqrt(len(gain))
    return {"gain": round(float(gain.mean()), 4), "half": round(float(half), 4)}


def summary(cells: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Means over seeds and queries, and paired differences to BM25 with 95 % intervals over queries."""
    out: dict[str, Any] = {}
    for name in dict.fromkeys(key.split(" ")[0] for key in cells):
        seeds = [cell for key, cell in cells.items() if key.split(" ")[0] == name]
        table: dict[str, Any] = {"seeds": len(seeds), "queries": len(seeds[0]["BM25"])}
        for row in [row for row in seeds[0] if all(row in seed for seed in seeds)]:
            against = "own documents: BM25" if row.startswith("own") else "BM25"
            values = np.array([seed[row] for seed in seeds], np.float64)
            gain = np.nanmean(values - np.array([seed[against] for seed in seeds], np.float64), axis=0)
            gain = gain[np.isfinite(gain)]
            if row == "learnt":
                more = values - np.array([seed[f"BM25 + {COSINE:g} cosine"] for seed in seeds], np.float64)
                table["learnt, against the fixed weight"] = interval(more.mean(axis=0))
            by_seed = np.nanmean(values - np.array([seed[against] for seed in seeds], np.float64), axis=1)
            table[row] = {
                "nDCG(dcg='exp-log2')@10": round(float(np.nanmean(values)), 4),
                **interval(gain),
                "worst seed": round(float(by_seed.min()), 4),
            }
        out[name] = table
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kept", type=Path, default=Path(tempfile.gettempdir()) / "fedrank-served-search")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/served_search.json"))
    parser.add_argument("--only", default="")
    parser.add_argument("--seeds", type=int, default=len(SEEDS))
    parser.add_argument("--first", type=int, default=SEEDS[0], help="the first seed")
    parser.add_argument("--encoder", default=MINILM)
    parser.add_argument("--no-clicks", action="store_true", help="learn nothing from clicks")
    parser.add_argument("--user", default=USER)
    chosen = parser.parse_args()
    chosen.kept.mkdir(parents=True, exist_ok=True)
    encoder, ways = Kept(chosen.kept, chosen.encoder), {} if chosen.no_clicks else WAYS
    finished = chosen.kept / (f"cells{'' if chosen.encoder == MINILM else '-' + encoder.digest}.json")
    cells = json.loads(finished.read_text()) if finished.exists() else {}
    for name in [*COLLECTIONS, *("+".join(pair) for pair in PAIRS)]:
        if chosen.only and name != chosen.only:
            continue
        for seed in range(chosen.first, chosen.first + chosen.seeds):
            key = f"{name} {seed} {chosen.user}"
            if {*ways, "BM25"} <= cells.get(key, {}).keys():
                continue
            began = time.perf_counter()
            cells[key] = cell(name, seed, encoder, chosen.user, ways, cells.get(key, {}))
            encoder.keep()
            cells[key] = {
                row: [None if value is None or math.isnan(value) else round(value, 4) for value in values]
                for row, values in cells[key].items()
            }
            print(f"{key}: {time.perf_counter() - began:.0f} s", flush=True)
            finished.write_text(json.dumps(cells))
    about = (
        {}
        if chosen.no_clicks
        else {**LEARNING, "p": P, "searches": LEARNING["clients"] * LEARNING["interactions"] * LEARNING["rounds"]}
    )
    table = summary(cells)
    result = {"settings": about, "weight chosen elsewhere": chosen_elsewhere(table), "summary": table}
    chosen.out.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(table, indent=1))


if __name__ == "__main__":
    main()
