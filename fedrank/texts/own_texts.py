"""Silos with texts: what run and silo agree on before anything crosses, and a silo's own folder of texts.

Nobody sees all texts, so that sizes that a simulator counts have to be agreed on: most documents of a silo, grades, and
where questions are asked, most query words. Texts have to be cut into words in the same way everywhere, or silos miss
each other's: a node tells a short hash of how it does that.
"""

from __future__ import annotations

import functools
import math
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fedrank.core.errors import ConfigError, DataError
from fedrank.core.privacy_report import Unit
from fedrank.data.places import OWN
from fedrank.data.sources import is_known as is_known_name
from fedrank.engine.deployment import NodeSettings, hash_of
from fedrank.texts.build import JOIN, FederationSizes, TextExperiment, build_texts, parts_of, silo_sketch
from fedrank.texts.config import TextsConfig
from fedrank.texts.data.corpus import corpus_of, tokenise
from fedrank.texts.data.features import NAMES
from fedrank.texts.data.files import read_texts
from fedrank.texts.silo_sketch import SiloSketch
from fedrank.texts.silo_sketch.setup import SketchSetup
from fedrank.texts.silo_sketch.setup.rows import SiloTexts
from fedrank.texts.silo_sketch.state import TEST, TRAIN, UNUSED, VALI

#: Largest message in bytes; connections carry up to 2 GiB.
MOST_BYTES = 2**30
#: Words of the document that an account tells about where nobody knows the longest one.
_TYPICAL = 300
# Cut by every node, for the hash: endings, stop words, accents, numbers and signs.
_PROBE = "The wings' flutter-tests of 1,958 were running: naïve analyses (e.g. Mach 2.5) don't generalise elastically."
_PARTS = {"train": TRAIN, "vali": VALI, "test": TEST}


class Agreed(NamedTuple):
    """What every party of a run knows.

    Attributes:
        protocol: The protocol, with its setup.
        n_parties: How many silos there are.
    """

    protocol: SiloSketch
    n_parties: int

    @property
    def setup(self) -> SketchSetup:
        """How silos come to their rows."""
        setup = self.protocol.setup
        assert isinstance(setup, SketchSetup)
        return setup


def is_known(config: TextsConfig) -> bool:
    """Whether the run names sets of the catalogue or generated ones, which every node then has: for tests."""
    return all(is_known_name(name.strip(), config.task) for name in config.data.split(JOIN))


@functools.lru_cache(maxsize=4)
def agreed(config: TextsConfig, where: str | None = None) -> Agreed:
    """Protocol and number of silos of a run.

    Args:
        config: The run, resolved.
        where: Where known sets are looked for.

    Raises:
        ConfigError: A size is missing that silos with texts of their own must agree on, or messages would be too
            large, or the run names a path.
        DataError: A known set is not there.
    """
    found = _agreed(config, where)
    for exchange in (*found.setup.exchanges, *found.protocol.exchanges):
        for layout in (exchange.request, exchange.reply):
            if layout.nbytes > MOST_BYTES:
                setup, part = found.setup, 0.99 * MOST_BYTES / layout.nbytes  # sizes and heads stand beside the cells
                fitting = (
                    "Publish instead of asking (sketch-mode), or have fewer documents (texts-documents)."
                    if setup.asks
                    else f"{int(part * setup.documents):,} documents a silo fit (texts-documents), and "
                    f"{setup.documents:,} with sketch-w = {int(part * setup.shape.w):,}."
                )
                raise ConfigError(
                    f"a message {layout.name} of {setup.silos} silos with {setup.documents:,} documents each would "
                    f"have {layout.nbytes / 2**30:.1f} GiB, at most {MOST_BYTES / 2**30:.0f} GiB can cross. {fitting} "
                    "A search that leaves documents at home has no such limit: fedrank serve search."
                )
    return found


def _agreed(config: TextsConfig, where: str | None) -> Agreed:
    if is_known(config):
        experiment = _whole(config, where)
        return Agreed(experiment.protocol, experiment.n_parties)
    if config.data != OWN:
        raise ConfigError(
            f"data = {config.data!r} is no set of the catalogue, and a run does not say which files a node reads. "
            f'Say data = "{OWN}", and start each SuperNode with its own: --node-config \'data="/its/own/folder"\'.'
        )
    t, asks = config.texts, config.sketch.mode in ("per-query", "paper")
    lacking = [
        name
        for name, value in (("texts-documents", t.documents), ("texts-grades", t.grades), ("texts-words", t.words))
        if not value and (asks or name != "texts-words")
    ]
    if lacking:
        raise ConfigError(
            f"silos with texts of their own must agree on {' and '.join(lacking)} beforehand, since nobody sees all "
            "texts; set them in the run, large enough for every silo."
        )
    if t.cut != TextsConfig().texts.cut:
        raise ConfigError("texts-cut says how one collection is cut; here each silo has its own. Leave it out.")
    sizes = FederationSizes(t.silos, t.grades, t.documents, t.words, _TYPICAL)
    return Agreed(silo_sketch(config, sizes), t.silos)


def texts_of(config: TextsConfig, node: NodeSettings, where: str | None = None) -> SiloTexts:
    """The texts of a node's silo: its own folder, or its part of a known set.

    Raises:
        ConfigError: The run leaves no place for them.
        DataError: They are not there, have a grade that was not agreed on, or too few queries.
    """
    if not node.data:
        return _whole(config, where).texts[0][node.partition_id]
    t, path = config.texts, Path(node.data).expanduser()
    corpus = corpus_of(read_texts(path), t.stem, t.stopwords)
    if corpus.max_grade >= t.grades:
        raise DataError(
            f"a document has grade {corpus.max_grade}; agreed were {t.grades} grades, 0 to {t.grades - 1} "
            "(texts-grades). Agree on more, or map the grades.",
            path,
        )
    texts = parts_of(corpus, config, config.data_seed + config.seed)
    lacking = [part for part, number in _PARTS.items() if not (texts.part == number).any()]
    if lacking:
        raise DataError(
            f"there are {int((texts.part != UNUSED).sum())} queries with a relevant document, too few for "
            f"{' and '.join(lacking)}. Judge more queries.",
            path,
        )
    return texts


def refuse_misplaced(config: TextsConfig, node: NodeSettings, silos: int) -> None:
    """Refuse a node that the run has no place for: each node is one silo, with texts of its own or of a known set.

    Raises:
        ConfigError: Says what does not fit.
    """
    if node.gateway:
        raise ConfigError("a gateway answers for devices; a silo with texts has none. Leave gateway out.")
    if node.num_partitions != silos:
        raise ConfigError(
            f"the run has {silos} silos (texts-silos), this node is one of {node.num_partitions} (num-partitions). "
            "Each silo is one node."
        )
    if is_known(config) == bool(node.data):
        raise ConfigError(
            f"the run's data is {config.data!r}, "
            + ("which leaves no place for this node's own texts." if node.data else "and this node has no texts.")
            + f' A run in which silos have texts of their own says data = "{OWN}"; their SuperNodes are started with '
            "--node-config 'data=\"/its/own/folder\"'."
        )
    if node.data and not node.state_dir:
        raise ConfigError(
            "a silo with texts of its own needs state-dir, a folder of the node: without it the node would forget its "
            "rows, and that it has handed out its sketches already."
        )


def refuse_unprotected(config: TextsConfig, node: NodeSettings, protocol: SiloSketch) -> None:
    """Refuse a run that promises this node's silo less than those who run the node ask for.

    Raises:
        ConfigError: Says what is promised.
    """
    promise = protocol.account(1, config.privacy.delta)
    if node.most_epsilon >= 0:
        raise ConfigError(
            "in silo-sketch a silo also sends models that it trains on its own documents and judgements, without "
            f"noise, so that nothing bounds the ε of a round; most-epsilon = {node.most_epsilon:.4g} cannot be kept. "
            "Take part without it; what bounds the sketches is most-sketch-epsilon."
        )
    epsilon, most = promise.epsilon(Unit.OCCURRENCE), node.most_sketch_epsilon
    if most >= 0 and not epsilon <= most:
        raise ConfigError(
            f"one occurrence of a word in what this silo would show the others has ε = {epsilon:.4g} "
            f"(sketch-mode = {config.sketch.mode!r}); this node agrees to {most:.4g} (most-sketch-epsilon)."
        )
    if most < 0 and node.data and math.isinf(epsilon):
        raise ConfigError(
            f"sketch-mode = {config.sketch.mode!r} does not protect this silo's documents: nothing bounds what others "
            "read from its counts. A node with texts of its own takes part only with most-sketch-epsilon = inf."
        )


def cuts_words(config: TextsConfig) -> bytes:
    """A short hash of how this node cuts a text into words, and of the features' names: equal where these are."""
    return hash_of((*tokenise([_PROBE], config.texts.stem, config.texts.stopwords)[0], *NAMES))


@functools.lru_cache(maxsize=2)
def _whole(config: TextsConfig, where: str | None) -> TextExperiment:
    experiment = build_texts(config, where)
    if len(experiment.config.all_seeds) != 1:
        raise ConfigError(f"over a network a run has one seed, got {np.size(experiment.config.all_seeds)}.")
    return experiment
