"""From a configuration to silos that train over each other's texts: documents, queries, sketches, protocol, runs."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from fedrank.core.errors import ConfigError, DataError, UnknownNameError
from fedrank.core.lazy import require
from fedrank.core.protocol import Party
from fedrank.data import load
from fedrank.engine.methods import method_names
from fedrank.engine.simulator import Conditions
from fedrank.metrics.offline import offline_metric
from fedrank.texts.config import BASELINES, TextsRun
from fedrank.texts.config import Texts as TextSettings
from fedrank.texts.data.corpus import Corpus, corpus_of
from fedrank.texts.data.reader import TextReader
from fedrank.texts.data.silos import Federation, cut, join_collections, split_queries
from fedrank.texts.rows import EXACT, ISOLATED, POOLED, SKETCHED, SetupResults, run_setups
from fedrank.texts.silo_sketch import FEDERATED, Parts, SiloSketch
from fedrank.texts.silo_sketch.setup import SketchSetup
from fedrank.texts.silo_sketch.setup.rows import SiloTexts
from fedrank.texts.silo_sketch.state import PARTS, UNUSED


class Variant(NamedTuple):
    """The protocol, or a control of it.

    Attributes:
        name: Name in result files and on pages.
        features: Number of its feature set, as in :mod:`fedrank.texts.rows`.
        beta: β; None for the protocol's.
        truth: Whether cross pairs have their true labels.
    """

    name: str
    features: int
    beta: float | None
    truth: bool


#: Controls by their name among ``evaluation.baselines``.
CONTROLS = {
    "local": Variant("Local", ISOLATED, 0.0, False),
    "global": Variant("Global (β = 0)", SKETCHED, 0.0, False),
    "exact": Variant("exact features", EXACT, None, False),
    "pooled": Variant("pooled data", POOLED, 1.0, True),
}


def variants_of(baselines: Sequence[str]) -> tuple[Variant, ...]:
    """The protocol itself, then the controls that some baselines need.

    Args:
        baselines: ``evaluation.baselines``. BM25 takes its features from the control ``local``, the silo's own.
    """
    needed = ("local", *baselines) if "bm25" in baselines and "local" not in baselines else tuple(baselines)
    return Variant(FEDERATED, SKETCHED, None, False), *(CONTROLS[name] for name in needed if name in CONTROLS)


#: Between the names of several collections.
JOIN = "+"
#: Largest grade of :mod:`fedrank.metrics.offline`.
_LARGEST_GRADE = 30


@dataclass(frozen=True, eq=False)
class TextExperiment:
    """Documents, queries and protocol of a configuration of silos with texts.

    Attributes:
        config: The configuration, resolved.
        federations: Who has what, one for each seed: a collection is cut anew for each.
        texts: Documents and queries of each silo with the parts of its queries, [seeds][silos].
        protocol: The training, with its setup.
        measures: Names of offline measures as :func:`~fedrank.metrics.offline.offline_metric` takes them, by the names
            of the configuration.
        notes: What a reader must know about the data.
        conditions: What happens to replies.
        citation: Key of the protocol's publication; empty if there is none.
    """

    config: TextsRun
    federations: tuple[Federation, ...] = field(repr=False)
    texts: tuple[tuple[SiloTexts, ...], ...] = field(repr=False)
    protocol: SiloSketch
    measures: dict[str, str]
    notes: tuple[str, ...]
    conditions: Conditions
    citation: str = ""

    @property
    def setup(self) -> SketchSetup:
        """The setup of the protocol."""
        assert self.protocol.setup is not None  # the run is built
        return self.protocol.setup

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the silos, in the order of their numbers."""
        return self.federations[0].names

    @property
    def n_parties(self) -> int:
        """Number of simulated silos."""
        return len(self.names)

    @cached_property
    def variants(self) -> tuple[Variant, ...]:
        """The protocol and its controls; runs are variants × seeds."""
        return variants_of(self.config.evaluation.baselines)

    def setup_results(self, stage: Callable[[str], None] = lambda _: None) -> SetupResults:
        """Results of the setups of all seeds; they are run at the first call.

        A resumed run repeats them, with equal results.

        Args:
            stage: Called with what is being done.
        """
        if "_setup_results" not in self.__dict__:
            exact = any(variant.features in (EXACT, POOLED) for variant in self.variants)
            made = run_setups(self.setup, self.config.all_seeds, self.federations, self.texts, exact, stage)
            self.__dict__["_setup_results"] = made
        return self.__dict__["_setup_results"]

    @cached_property
    def parties(self) -> Party:
        """All silos of all runs; leaves of ``own`` are [runs, silos, …]."""
        beta = [self.protocol.training.beta if v.beta is None else v.beta for v in self.variants]
        features, truth = [v.features for v in self.variants], [v.truth for v in self.variants]
        return self.protocol.parties(self.setup_results().arrays.rows, beta, features, truth)

    @cached_property
    def citations(self) -> tuple[str, ...]:
        """Keys of the publications that the experiment rests on."""
        keys = (
            self.citation,
            "wang2021csfltr",
            *self.config.method.sketch.citations,
            "bonawitz2017secagg",
            *self.federations[0].citations,
        )
        return tuple(dict.fromkeys(key for key in keys if key))


def load_corpora(config: TextsRun, folder: str | os.PathLike[str] | None = None, data: Any = None) -> list[Corpus]:
    """The collections that a configuration names, with their words counted.

    Args:
        config: The configuration.
        folder: Where data sets are looked for.
        data: As in :func:`build_texts`.
    """
    sources = data if isinstance(data, list) else [data]
    if data is None:
        sources = [name.strip() for name in config.data.split(JOIN)]
    reader = TextReader(seed=config.data_seed)
    collections = [load(source, reader, folder=folder) for source in sources]
    corpora = [corpus_of(texts, config.texts.stem, config.texts.stopwords) for texts in collections]
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


def parts_of(corpus: Corpus, config: TextsRun, seed: int) -> SiloTexts:
    """A silo's texts with the part of each of its queries, which the seed draws."""
    part = np.full(corpus.n_queries, UNUSED, np.int8)
    for name, queries in split_queries(corpus, seed, config.texts.train, config.texts.vali).items():
        part[queries] = PARTS[name]
    return SiloTexts(corpus, part)


def build_texts(
    config: TextsRun,
    folder: str | os.PathLike[str] | None = None,
    *,
    data: Any = None,
) -> TextExperiment:
    """Load the texts, cut them, and set up everything; nothing is sketched yet.

    Args:
        config: The configuration, resolved.
        folder: Where data sets are looked for; by default ``FEDRANK_DATA`` or the platform's cache.
        data: A collection to cut, or a list with one for each silo, instead of what the configuration names; each in
            any form that :func:`fedrank.data.load` takes.

    Raises:
        FedrankError: The configuration does not fit the data, or the data is not there, or the extra ``texts`` is not
            installed.
    """
    for name in config.evaluation.baselines:
        if name not in BASELINES:
            raise UnknownNameError("baseline of silos with texts", name, BASELINES)
    require("texts", "A run of silos with texts", "bm25s", "Stemmer")
    corpora = load_corpora(config, folder, data)
    called = repr(config.data) if data is None else "the data"
    seeds = [config.data_seed + seed for seed in config.all_seeds]
    if len(corpora) > 1:
        if config.texts.cut != "random" or config.texts.silos not in (TextSettings().silos, len(corpora)):
            raise ConfigError(f"{called} names {len(corpora)} silos; leave texts.silos and texts.cut out.")
        federations = [join_collections(corpora)] * len(seeds)
    else:
        federations = [cut(corpora[0], config.texts.silos, config.texts.cut, seed) for seed in seeds]
    texts = tuple(
        tuple(parts_of(silo, config, seed) for silo in federation.silos)
        for federation, seed in zip(federations, seeds, strict=True)
    )
    for federation, own in zip(federations, texts, strict=True):
        for name, one in zip(federation.names, own, strict=True):
            if one.lacking:
                raise DataError(
                    f"{name} of {federation.name!r} has {len(one.used_queries)} queries with a relevant document at "
                    f"home, too few for {' and '.join(one.lacking)}. Make fewer silos, or take more queries."
                )
    grades = max(2, config.texts.grades, 1 + max(corpus.max_grade for corpus in corpora))
    if grades - 1 > _LARGEST_GRADE:
        raise DataError(
            f"{called} has grades up to {grades - 1:,}; gains are 2^grade − 1, and {_LARGEST_GRADE} is the "
            "largest that measures take. Put the judgements on a smaller scale."
        )
    measures = {name: f"ERR(max_label={grades - 1})" if name == "ERR" else name for name in config.evaluation.measures}
    for name in measures.values():
        offline_metric(name)
    every = [one for own in texts for one in own]
    parts = Parts(
        config,
        silos=len(federations[0].names),
        grades=grades,
        documents=max(one.corpus.n_documents for one in every),
        words=max(len(one.words) for one in every),
        occurrences=max(int(one.corpus.lengths.sum(axis=1).max(initial=0)) for one in every),
    )
    notes = tuple(dict.fromkeys(federations[0].notes))
    conditions = Conditions.of(config.devices)
    citation = config.method.paper if config.protocol in method_names() else ""
    return TextExperiment(
        config, tuple(federations), texts, config.method.bind(parts), measures, notes, conditions, citation
    )
