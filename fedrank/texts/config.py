"""Settings of runs in which silos train over each other's texts: ``[texts]``, ``[sketch]`` and ``[training]``."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Literal

from fedrank.core.errors import ConfigError
from fedrank.core.fields import setting

#: Protocols of organisations with texts.
TEXT_PROTOCOLS = ("silo-sketch",)
#: Rounds where none are given: Shi et al. 2021, Section 5.1, iterations of the collaborative training.
TEXT_ROUNDS = 2000
#: Step size of SGD; the papers name none.
TEXT_RATE = 0.05
#: Rounds between evaluations.
TEXT_EVERY = 100
#: What rankings are measured by; the papers' four, and average precision as everybody else has it.
TEXT_MEASURES = ("nDCG@10", "nDCG", "ERR", "MAP", "MAP-JOS")
#: What the federation is compared with.
TEXT_BASELINES = ("bm25", "local", "local-plus", "global", "exact", "pooled")
#: ε where none is given: of an occurrence for good; of one answer in paper mode, the ICDE paper's.
EPSILON, PAPER_EPSILON = 8.0, 0.5
#: Rows and cells where none are given. Under noise few rows are best; decoys need many.
SHAPES = {"publish-once": (1, 4096), "plain": (10, 120), "per-query": (10, 120), "paper": (10, 120)}
#: Rows and cells of the statistics' sketches: noise-free, and with noise.
STATISTICS = ((5, 16384), (1, 16384))
#: Settings that mean something only where another has one of these values.
TEXT_NEEDS = (
    ("texts.candidates", "sketch.mode", ("publish-once", "plain")),
    ("sketch.z1", "sketch.mode", ("per-query", "paper")),
    ("sketch.decoys", "sketch.mode", ("per-query", "paper")),
    ("sketch.answer_epsilon", "sketch.mode", ("per-query",)),
    ("i_know", "sketch.mode", ("paper",)),
)


@dataclass(frozen=True)
class Texts:
    """Who has which documents and queries, and which pairs are learnt from."""

    silos: int = setting(4, "Silos that one collection is cut into; several ('cranfield+cisi') are a silo each.")
    cut: Literal["random", "topic"] = setting("random", "How one collection is cut.")
    train: float = setting(0.6, "Share of a silo's judged queries that it learns from.")
    vali: float = setting(
        0.2, "Share that decides whether it adopts the federation's ranker; the rest is for the test."
    )
    depth: int = setting(30, "Own documents of a query: the best by BM25, and all judged ones.")
    negatives: int = setting(10, "Own documents by lot beside them.")
    foreign: int = setting(20, "Documents of each other silo: the best by BM25 of what is seen of them.")
    candidates: Literal["all", "reverse-top-k"] = setting(
        "all", "publish-once, plain: choose them among all foreign documents, or those of reverse top-K lists."
    )
    scale: Literal["silo", "federation", "query"] = setting(
        "silo",
        "Features are centred and scaled by the silo's own rows, all silos' (whose sums then cross without noise), or "
        "the query's list.",
    )
    stem: bool = setting(True, "Stem words (Snowball, English).")
    stopwords: bool = setting(True, "Leave out English stop words.")
    documents: int = setting(0, "Most documents of a silo that everybody agrees on; 0: as many as there are.")
    words: int = setting(0, "Most different query words of a silo that everybody agrees on; 0: as many as there are.")

    grades: int = setting(
        0, "Number of grades that everybody agrees on, 0 included; 0: as many as there are, two at least."
    )

    def __post_init__(self):
        if not (self.train > 0 and self.vali > 0 and self.train + self.vali < 1):
            raise ConfigError(
                f"texts.train and texts.vali must be above 0 and together below 1, got {self.train:g}, {self.vali:g}."
            )
        if not 2 <= self.silos <= 255:
            raise ConfigError(f"texts.silos must be in 2..255, got {self.silos}.")
        if self.documents < 0 or self.words < 0:
            raise ConfigError(
                f"texts.documents and texts.words must not be negative, got {self.documents}, {self.words}."
            )
        if self.grades not in range(257) or self.grades == 1:
            raise ConfigError(f"texts.grades must be 0 or in 2..256, got {self.grades}.")


@dataclass(frozen=True)
class Sketch:
    """How silos see each other's documents, and what protects these."""

    mode: Literal["publish-once", "per-query", "paper", "plain"] = setting(
        "publish-once",
        "publish-once: noisy sketches are handed out once. per-query: each answer has noise, until a budget is spent. "
        "paper: as printed; does not protect the document owner from the querier. plain: no noise.",
    )
    epsilon: float | None = setting(
        None, "ε of one occurrence of a word, everything added up; of one answer in paper mode. Without it 8, and 0.5."
    )
    noise: Literal["laplace", "gaussian"] = setting("laplace", "Noise on cells; Gaussian noise at privacy.delta.")
    z: int = setting(0, "Rows of a document's sketch; 0: 1 where published with noise, else 10.")
    w: int = setting(0, "Cells of a row; 0: 4,096 where published with noise, else 120. Wider rows cost bytes, no ε.")
    kind: Literal["count", "count-min"] = setting("count", "Count Sketch, or Count-Min.")
    estimate: Literal["posterior", "median"] = setting(
        "posterior", "Counts from cells with noise: posterior mean given the statistics, or median as the paper has it."
    )
    z1: int = setting(5, "per-query, paper: rows of a question that belong to its word; the others are decoys'.")
    decoys: Literal["jos", "icde"] = setting("jos", "per-query, paper: scheme of decoys.")
    answer_epsilon: float | None = setting(
        None, "per-query: ε of one answer; without it what makes the budget last for all questions."
    )
    statistics_z: int = setting(0, "Rows of the sketches of document frequencies and of all words; 0: 5, with noise 1.")
    statistics_w: int = setting(0, "Cells of a row of them; 0: 16,384.")
    as_published: bool = setting(False, "Features as printed: tf in BM25, 0.8 · length for the different words.")

    def __post_init__(self):
        for name in ("z", "w", "z1", "statistics_z", "statistics_w"):
            if getattr(self, name) < 0:
                raise ConfigError(f"sketch.{name} must not be negative, got {getattr(self, name)}.")


@dataclass(frozen=True)
class Training:
    """How the ranker is trained (Algorithm 3)."""

    loss: Literal["classification", "regression", "pairwise", "listwise"] = setting(
        "classification", "The paper's is cross-entropy over the grades; the others are its program's and future work."
    )
    labels: Literal["soft", "hard"] = setting(
        "soft", "Guessed labels: the distribution of the grade, or the likeliest grade as the paper has it."
    )
    beta: float = setting(0.3, "β, weight of cross pairs.")
    plus_beta: float = setting(0.3, "β of Local+.")
    ramp: int = setting(200, "Steps in which β grows from 0.")
    local_steps: int = setting(1000, "Steps of SGD of a silo by itself, before the first round.")
    steps: int = setting(1, "Steps of SGD of a silo in a round.")
    batch: int = setting(200, "Labelled rows of a step.")
    cross_batch: int = setting(200, "Cross pairs of a step.")
    l2: float = setting(1e-4, "λ of the penalty λ‖θ‖².")
    serial: bool = setting(False, "One silo a round, in turn, instead of all at once.")


def resolved_sketch(sketch: Sketch, i_know: bool) -> Sketch:
    """The same with the defaults of its mode.

    Raises:
        ConfigError: A mode that does not protect, without the word that one knows; or an ε where there is no noise.
    """
    if sketch.mode == "paper" and not i_know:
        raise ConfigError(
            "sketch.mode = 'paper' does not protect the document owner from the querier: one noise variable is added "
            "to all cells of an answer, and the querier takes it off again (see: fedrank attack sketch). Use "
            "publish-once, or say that you know with --i-know."
        )
    if sketch.mode == "plain" and sketch.epsilon is not None:
        raise ConfigError(
            "sketch.mode = 'plain' has no noise, so that sketch.epsilon means nothing; leave one of them out."
        )
    z, w = SHAPES[sketch.mode]
    default = {"plain": None, "paper": PAPER_EPSILON}.get(sketch.mode, EPSILON)
    quiet = sketch.mode in ("plain", "paper")
    statistics_z, statistics_w = STATISTICS[0 if quiet else 1]
    return dataclasses.replace(
        sketch,
        epsilon=default if sketch.epsilon is None else sketch.epsilon,
        z=sketch.z or z,
        w=sketch.w or w,
        statistics_z=sketch.statistics_z or statistics_z,
        statistics_w=sketch.statistics_w or statistics_w,
    )
