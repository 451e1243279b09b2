"""Tables of settings of silos with texts: those of every run, and those of CS-F-LTR.

The other settings of the method are fields of its class, :class:`fedrank.texts.silo_sketch.SiloSketch`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, NamedTuple

from typing_extensions import override

from fedrank.core.errors import ConfigError
from fedrank.core.fields import setting
from fedrank.core.privacy_report import DELTA
from fedrank.engine import config as engine
from fedrank.engine.config import RunConfig

#: Methods that the federation can be compared with.
BASELINES = ("bm25", "local", "local-plus", "global", "exact", "pooled")


class Mode(NamedTuple):
    """A way in which silos see each other's documents.

    Attributes:
        epsilon: ε of an occurrence where none is given. None: there is no noise.
        shape: Rows and cells of a document's sketch where none are given.
        statistics: Rows and cells of the statistics' sketches where none are given.
    """

    epsilon: float | None
    shape: tuple[int, int]
    statistics: tuple[int, int]


#: Modes by name. At ε = 0.2 another silo neither reads a published document nor tells whether a text is there
#: (benchmarks/document_attacks.json). Under noise few rows are best.
MODES = {
    "publish-once": Mode(0.2, (1, 4096), (1, 16384)),
    "plain": Mode(None, (10, 120), (5, 16384)),
}


@dataclass(frozen=True, kw_only=True)
class Texts:
    """Documents and queries of silos, and the query-document pairs that are learnt from.

    Raises:
        ConfigError: The shares of queries, the number of grades, or the numbers of documents of a query are out of
            range.
    """

    silos: int = setting(
        4, "Silos that one collection is cut into; several ('cranfield+cisi') are a silo each.", low=2, high=255
    )
    cut: Literal["random", "topic"] = setting("random", "How one collection is cut.")
    train: float = setting(0.6, "Share of a silo's judged queries that it learns from.")
    vali: float = setting(
        0.2, "Share that decides whether it adopts the federation's ranker; the rest is for the test."
    )
    depth: int = setting(30, "Own documents of a query: the best by BM25, and all judged ones.", low=0)
    negatives: int = setting(10, "Own documents, chosen at random, beside them.", low=0)
    foreign: int = setting(20, "Documents of each other silo: the best by BM25 of what is seen of them.", low=1)
    candidates: str = setting(
        "all",
        "Choose them among all documents, or by reverse-top-k lists (fedrank-zoo).",
    )
    scale: Literal["silo", "federation", "query"] = setting(
        "silo",
        "Features are scaled by the silo's rows, all silos' (whose sums cross without noise), or the query's list.",
    )
    stem: bool = setting(True, "Stem words (Snowball, English).")
    stopwords: bool = setting(True, "Leave out English stop words.")
    documents: int = setting(0, "Agreed largest number of documents of a silo; 0: as many as there are.", low=0)
    grades: int = setting(0, "Agreed number of grades, 0 included; 0: as many as there are, two at least.")

    def __post_init__(self):
        if not (self.train > 0 and self.vali > 0 and self.train + self.vali < 1):
            raise ConfigError(
                f"texts.train and texts.vali must be above 0 and together below 1, got {self.train:g}, {self.vali:g}."
            )
        if self.grades not in range(257) or self.grades == 1:
            raise ConfigError(f"texts.grades must be 0 or in 2..256, got {self.grades}.")
        if self.depth + self.negatives < 1:
            raise ConfigError("texts.depth and texts.negatives must be together at least 1, got 0.")


@dataclass(frozen=True, kw_only=True)
class Sketch:
    """Sketches of documents that other silos see, and their protection."""

    mode: Literal["publish-once", "plain"] = setting(
        "publish-once", "publish-once: noisy sketches are handed out once. plain: no noise."
    )
    epsilon: float | None = setting(None, "ε of one occurrence of a word, everything added up. Without it 0.2.")
    noise: Literal["laplace", "gaussian"] = setting("laplace", "Noise on cells; Gaussian noise at privacy.delta.")
    z: int = setting(0, "Rows of a document's sketch; 0: 1 where published with noise, else 10.", low=0)
    w: int = setting(
        0,
        "Cells of a row; 0: 4,096 where published with noise, else 120. Wider rows cost bytes, no ε.",
        low=0,
    )
    kind: Literal["count", "count-min"] = setting("count", "Count Sketch, or Count-Min.")
    estimate: Literal["posterior", "median"] = setting(
        "posterior", "Counts from cells with noise: posterior mean given the statistics, or median as the paper has it."
    )
    statistics_z: int = setting(
        0, "Rows of the sketches of document frequencies and of all words; 0: 5, with noise 1.", low=0
    )
    statistics_w: int = setting(0, "Cells of a row of them; 0: 16,384.", low=0)
    as_published: bool = setting(False, "Features as printed: tf in BM25, 0.8 · length for the different words.")

    modes: ClassVar[Mapping[str, Mode]] = MODES

    @property
    def citations(self) -> tuple[str, ...]:
        """Keys of the publications that sketches rest on."""
        keys = {"count": "charikar2002countsketch", "count-min": "cormode2005countmin"}
        return keys[self.kind], *(("pagh2022countsketch",) if self.mode == "publish-once" else ())

    def with_defaults(self) -> Sketch:
        """The same with the defaults of its mode in place of 0 and None."""
        mode = self.modes[self.mode]
        (z, w), (statistics_z, statistics_w) = mode.shape, mode.statistics
        return dataclasses.replace(
            self,
            epsilon=mode.epsilon if self.epsilon is None else self.epsilon,
            z=self.z or z,
            w=self.w or w,
            statistics_z=self.statistics_z or statistics_z,
            statistics_w=self.statistics_w or statistics_w,
        )


@dataclass(frozen=True, kw_only=True)
class Training:
    """Training of the ranker (Algorithm 3)."""

    loss: Literal["classification", "regression", "pairwise", "listwise"] = setting(
        "classification",
        "The paper's is cross-entropy over the grades; pairwise and listwise losses are what it names as future work.",
    )
    labels: Literal["soft", "hard"] = setting(
        "soft", "Guessed labels: the distribution of the grade, or the likeliest grade as the paper has it."
    )
    beta: float = setting(0.3, "β, weight of cross pairs.", low=0)
    plus_beta: float = setting(0.3, "β of Local+.", low=0)
    ramp: int = setting(200, "Steps in which β grows from 0.", low=0)
    local_steps: int = setting(1000, "Steps of SGD of a silo by itself, before the first round.", low=1)
    steps: int = setting(1, "Steps of SGD of a silo in a round.", low=1)
    batch: int = setting(200, "Labelled rows of a step.", low=1)
    cross_batch: int = setting(200, "Cross pairs of a step.", low=1)
    l2: float = setting(1e-4, "λ of the penalty λ‖θ‖².")
    serial: bool = setting(False, "One silo a round, in turn, instead of all at once.")


@dataclass(frozen=True, kw_only=True)
class Privacy:
    """At which δ the noise on sketches is stated; its ε is ``sketch.epsilon``.

    Raises:
        ConfigError: δ is not between 0 and 1.
    """

    delta: float = setting(DELTA, "δ of Gaussian noise.")

    def __post_init__(self):
        if not 0 < self.delta < 1:
            raise ConfigError(f"privacy.delta must be between 0 and 1, got {self.delta}.")


@dataclass(frozen=True, kw_only=True)
class Devices:
    """Faults of replies; by default all silos are heard."""

    dropout: float = setting(0.0, "Probability that a silo is not heard in a round.")


@dataclass(frozen=True, kw_only=True)
class Evaluation(engine.Evaluation):
    """Evaluation of the rankers while they learn."""

    every: int = setting(
        100, "Rounds between evaluations; the first and the last model are always evaluated.", low=1, high=10**7
    )
    measures: tuple[str, ...] = setting(
        ("nDCG(dcg='exp-log2')@10", "nDCG(dcg='exp-log2')", "ERR", "MAP", "MAP-JOS"),
        "Offline measures; MAP is average precision, MAP-JOS the paper's. The first decides who adopts the ranker.",
    )
    baselines: tuple[str, ...] = setting(BASELINES, f"Methods to compare with: {', '.join(BASELINES)}.")
    folds: int = setting(
        4,
        "Folds of the cross-validation by which a silo decides, over its queries but the test's; 0: the validation "
        "queries alone decide.",
        low=0,
        high=100,
    )

    def __post_init__(self):
        if self.folds == 1:
            raise ConfigError("evaluation.folds must be 0 or in 2..100, got 1.")


@dataclass(frozen=True, kw_only=True)
class TextsRun(RunConfig):
    """Settings of every run of silos with texts, beside those of the method.

    Raises:
        ConfigError: A setting is out of range or contradicts another.
    """

    task: ClassVar[str] = "texts"

    # Shi et al. 2021, Section 5.1: iterations of the collaborative training.
    rounds: int = setting(2000, "Rounds of training.", low=1, high=10**6)
    data: str = setting(
        "generated",
        "Name in the catalogue (fedrank data list), or a folder of texts, or several of these joined by +; or "
        "'generated'.",
    )
    data_seed: int = setting(
        0, "Seed of generated data, of the cut and of the split of queries.", low=0, high=2**63 - 1
    )
    texts: Texts = field(default_factory=Texts)
    devices: Devices = field(default_factory=Devices)
    evaluation: Evaluation = field(default_factory=Evaluation)

    @property
    def delta(self) -> float:
        """δ of the run's privacy account."""
        return self.method.privacy.delta

    @override
    @classmethod
    def of(cls, method: Any) -> Any:
        if not hasattr(method, "sketch"):
            raise ConfigError(
                f"a protocol of silos with texts must be a SiloSketch, since runs keep its rankers and labels; got "
                f"{type(method).__name__}. Derive from it and change what your protocol does otherwise."
            )
        return cls(method=method)

    @override
    def derive_settings(self) -> Any:
        return dataclasses.replace(self, method=self.method.resolved())
