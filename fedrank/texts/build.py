"""From a configuration to silos that train over each other's texts: documents, queries, sketches, protocol."""

from __future__ import annotations

import dataclasses
import os
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from fedrank.core.errors import ConfigError, DataError, UnknownNameError
from fedrank.engine.simulator import Conditions
from fedrank.experiments.config import RunConfig
from fedrank.experiments.protocols import PROTOCOLS
from fedrank.metrics.offline import offline_metric
from fedrank.texts.config import TEXT_BASELINES
from fedrank.texts.data.corpus import Corpus, corpus_of
from fedrank.texts.data.features import NAMES
from fedrank.texts.data.load import load_texts
from fedrank.texts.data.silos import Federation, cut, joined, split_queries
from fedrank.texts.graded import GradedLearner
from fedrank.texts.silo_sketch import SiloSketch
from fedrank.texts.silo_sketch.setup import SketchSetup
from fedrank.texts.silo_sketch.setup.rows import RowSettings, SiloTexts
from fedrank.texts.silo_sketch.state import TEST, TRAIN, UNUSED, VALI
from fedrank.texts.sketch import SketchShape
from fedrank.texts.sketch.account import sketch_account
from fedrank.texts.sketch.noise import SketchNoise
from fedrank.texts.sketch.query_budget import plan

#: Between the names of several collections.
JOIN = "+"
#: Largest grade of :mod:`fedrank.metrics.offline`.
_LARGEST_GRADE = 30
_PARTS = {"train": TRAIN, "vali": VALI, "test": TEST}


@dataclass(frozen=True, eq=False)
class TextExperiment:
    """What a configuration of silos with texts names.

    Attributes:
        config: The configuration, resolved.
        federations: Who has what, one a seed: a collection is cut anew for each.
        texts: Each silo's documents and queries with their parts, [seeds][silos].
        protocol: The training, with its opening.
        measures: Names of offline measures as :func:`~fedrank.metrics.offline.offline_metric` takes them, by the names
            of the configuration.
        notes: What a reader must know about the data.
        conditions: What happens to replies.
    """

    config: RunConfig
    federations: tuple[Federation, ...] = field(repr=False)
    texts: tuple[tuple[SiloTexts, ...], ...] = field(repr=False)
    protocol: SiloSketch
    measures: dict[str, str]
    notes: tuple[str, ...]
    conditions: Conditions

    @property
    def opening(self) -> SketchSetup:
        """How silos come to their rows."""
        opening = self.protocol.opening
        assert isinstance(opening, SketchSetup)
        return opening

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the silos."""
        return self.federations[0].names

    @property
    def n_parties(self) -> int:
        """How many silos there are."""
        return len(self.names)

    @cached_property
    def citations(self) -> tuple[str, ...]:
        """Keys of the publications that this experiment rests on."""
        sketch = self.config.sketch
        keys = (
            PROTOCOLS.entry(self.config.protocol).citation,
            "wang2021csfltr",
            "charikar2002countsketch" if sketch.kind == "count" else "cormode2005countmin",
            "pagh2022countsketch" if sketch.mode == "publish-once" else "",
            "bonawitz2017secagg",
            *self.federations[0].citations,
        )
        return tuple(dict.fromkeys(key for key in keys if key))


def load_corpora(config: RunConfig, folder: str | os.PathLike[str] | None = None) -> list[Corpus]:
    """The collections that a configuration names, counted."""
    c = config
    corpora = [
        corpus_of(load_texts(name.strip(), folder=folder, seed=c.data_seed), c.texts.stem, c.texts.stopwords)
        for name in c.data.split(JOIN)
    ]
    largest = max(corpus.max_grade for corpus in corpora)
    return [_on_scale(corpus, largest) for corpus in corpora]


def _on_scale(corpus: Corpus, largest: int) -> Corpus:
    """The corpus with its best grade as good as that of the others: one ranker is to learn from all."""
    own = corpus.max_grade
    if own in (0, largest):
        return corpus
    grades = -(-corpus.grades * largest // own)  # rounded up, so that what is relevant stays so
    note = f"Grades 0 to {own} were stretched to 0 to {largest}, the scale of the other silos."
    return dataclasses.replace(corpus, grades=grades.astype(np.int32), notes=(*corpus.notes, note))


def parts_of(corpus: Corpus, config: RunConfig, seed: int) -> SiloTexts:
    """A silo's texts with the part of each of its queries."""
    part = np.full(corpus.n_queries, UNUSED, np.int8)
    for name, queries in split_queries(corpus, seed, config.texts.train, config.texts.vali).items():
        part[queries] = _PARTS[name]
    return SiloTexts(corpus, part)


def build_texts(config: RunConfig, folder: str | os.PathLike[str] | None = None) -> TextExperiment:
    """Load the texts, cut them, and set up everything; nothing is sketched yet.

    Args:
        config: The configuration, resolved.
        folder: Where data sets are looked for; by default ``FEDRANK_DATA`` or the platform's cache.

    Raises:
        FedrankError: The configuration does not fit the data, or the data is not there.
    """
    for name in config.evaluation.baselines:
        if name not in TEXT_BASELINES:
            raise UnknownNameError("baseline of silos with texts", name, TEXT_BASELINES)
    corpora = load_corpora(config, folder)
    seeds = [config.data_seed + seed for seed in config.all_seeds]
    if len(corpora) > 1:
        if config.texts.cut != "random" or config.texts.silos not in (RunConfig().texts.silos, len(corpora)):
            raise ConfigError(f"{config.data!r} names {len(corpora)} silos; leave texts.silos and texts.cut out.")
        federations = [joined(corpora)] * len(seeds)
    else:
        federations = [cut(corpora[0], config.texts.silos, config.texts.cut, seed) for seed in seeds]
    texts = tuple(
        tuple(parts_of(silo, config, seed) for silo in federation.silos)
        for federation, seed in zip(federations, seeds, strict=True)
    )
    for federation, own in zip(federations, texts, strict=True):
        for name, one in zip(federation.names, own, strict=True):
            lacking = [part for part, number in _PARTS.items() if not (one.part == number).any()]
            if lacking:
                raise DataError(
                    f"{name} of {federation.name!r} has {int((one.part != UNUSED).sum())} queries with a relevant "
                    f"document of its own, too few for {' and '.join(lacking)}. Make fewer silos, or take more queries."
                )
    grades = max(2, config.texts.grades, 1 + max(corpus.max_grade for corpus in corpora))
    if grades - 1 > _LARGEST_GRADE:
        raise DataError(
            f"{config.data!r} has grades up to {grades - 1:,}; gains are 2^grade − 1, and {_LARGEST_GRADE} is the "
            "largest that measures take. Put the judgements on a smaller scale."
        )
    measures = {name: f"ERR(max_label={grades - 1})" if name == "ERR" else name for name in config.evaluation.measures}
    for name in measures.values():
        offline_metric(name)
    every = [one for own in texts for one in own]
    most_documents = max(one.corpus.n_documents for one in every)
    most_words = max(len(one.words) for one in every)
    protocol = protocol_of(config, len(federations[0].names), grades, most_documents, most_words, _longest(every))
    notes = tuple(dict.fromkeys(federations[0].notes))
    return TextExperiment(
        config, tuple(federations), texts, protocol, measures, notes, Conditions(dropout=config.devices.dropout)
    )


def protocol_of(
    config: RunConfig, silos: int, grades: int, documents: int, words: int, occurrences: int = 0
) -> SiloSketch:
    """The protocol of a configuration, with its opening.

    Args:
        config: The configuration, resolved.
        silos: Number of silos.
        grades: Number of grades.
        documents: Most documents of a silo; the configuration's number where it has one.
        words: Most different query words of a silo; likewise.
        occurrences: Words of the longest document, for the account.

    Raises:
        ConfigError: Settings contradict each other.
    """
    t, how = config.texts, config.training
    documents, words = t.documents or documents, t.words or words
    opening = _opening(config, silos, documents, words, occurrences)
    learner = GradedLearner(
        features=len(NAMES),
        grades=grades,
        loss=how.loss,
        guess=how.labels,
        l2=how.l2,
        learning_rate=config.learning_rate,  # type: ignore[arg-type] - resolved
    )
    return SiloSketch(
        learner=learner,
        silos=silos,
        promise=opening.promise,
        local_steps=how.local_steps,
        steps=how.steps,
        batch=how.batch,
        cross_batch=how.cross_batch,
        beta=how.beta,
        ramp=how.ramp,
        plus_beta=how.plus_beta,
        serial=how.serial,
        opening=opening,
    )


def _opening(config: RunConfig, silos: int, documents: int, words: int, occurrences: int) -> SketchSetup:
    t, s = config.texts, config.sketch
    asks, delta = s.mode in ("per-query", "paper"), config.privacy.delta
    questions = words * (silos - 1)
    epsilon, limit, answers = s.epsilon, np.inf, questions if asks else 0
    if s.mode == "per-query":
        limit = float(s.epsilon)  # type: ignore[arg-type] - resolved
        # One answer more, for sizes and statistics.
        epsilon = s.answer_epsilon or plan(limit, questions + 1, s.noise, delta)
    noise = SketchNoise(
        s.mode,
        epsilon,
        s.z,
        s.noise,
        delta,
        statistics_change=2 * s.statistics_z + 1,
    )
    opening = SketchSetup(
        silos=silos,
        shape=SketchShape(s.z, s.w, s.kind),
        statistics=SketchShape(s.statistics_z, s.statistics_w),
        noise=noise,
        rows=RowSettings(t.depth, t.negatives, t.foreign, t.candidates, t.scale, s.as_published, config.data_seed),
        promise=None,
        documents=documents,
        words=words if asks else 0,
        z1=s.z1,
        decoys=s.decoys,
        estimate=s.estimate,
        limit=limit,
    )
    if s.mode == "per-query":
        answers = min(answers, opening.allowed)
    promise = sketch_account(
        noise, answers=answers, answers_of_querier=min(answers, words) if asks else 0, occurrences=occurrences
    )
    return dataclasses.replace(opening, promise=promise)


def _longest(every: list[SiloTexts]) -> int:
    return max(int(one.corpus.lengths.sum(axis=1).max(initial=0)) for one in every)
