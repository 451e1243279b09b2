"""Silos with texts: what run and silo agree on before anything crosses, and a silo's own folder of texts.

No party sees all texts, so that sizes that a simulator counts have to be agreed on: most documents of a silo, grades,
and where questions are asked, most query words. Texts have to be cut into words in the same way everywhere, or silos
miss each other's: a node tells a short hash of how it does that.

Silos with texts over a network: a setup in which they make their rows, then training on these rows.

Texts are read for the setup only. What is left of them at the node are the rows, in the file of the setup.
"""

from __future__ import annotations

import functools
import logging
import math
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float32
from typing_extensions import override

from fedrank.core.arrays import PyTree
from fedrank.core.errors import ConfigError, DataError, RunError
from fedrank.core.lazy import jax, jit, jnp
from fedrank.core.privacy_report import Unit
from fedrank.core.protocol import Party
from fedrank.data.folders import OWN
from fedrank.data.sources import is_known as is_known_name
from fedrank.engine.deployment import Block, NodeSettings, NodeSide, ServerSide, SetupSide, hash_of
from fedrank.engine.model import provenance
from fedrank.engine.run_folder import RunFolder, describe_messages
from fedrank.metrics.offline import offline_metric
from fedrank.texts.build import JOIN, TextExperiment, build_texts, parts_of
from fedrank.texts.config import Texts, TextsRun
from fedrank.texts.data.corpus import corpus_of, tokenise
from fedrank.texts.data.features import NAMES
from fedrank.texts.data.reader import read_texts
from fedrank.texts.model import TextModel
from fedrank.texts.scores import lower_end
from fedrank.texts.silo_sketch import Parts, SiloSketch
from fedrank.texts.silo_sketch.setup import SketchSetup
from fedrank.texts.silo_sketch.setup.exchange_sketches import rows_of_party
from fedrank.texts.silo_sketch.setup.rows import SiloTexts
from fedrank.texts.silo_sketch.state import VALI, SketchRows, alone, setup_generator

#: Largest message in bytes; connections carry up to 2 GiB.
MOST_BYTES = 2**30
#: Words of the document that an account tells about where the longest one is unknown.
_TYPICAL = 300
# Cut by every node, for the hash: endings, stop words, accents, numbers and signs.
_PROBE = "The wings' flutter-tests of 1,958 were running: naïve analyses (e.g. Mach 2.5) don't generalise elastically."


class Agreed(NamedTuple):
    """Protocol and number of silos, known to every party of a run.

    Attributes:
        protocol: The protocol, with its setup.
        n_parties: How many silos there are.
    """

    protocol: SiloSketch
    n_parties: int

    @property
    def setup(self) -> SketchSetup:
        """The setup in which silos make their rows."""
        assert self.protocol.setup is not None  # the terms name one
        return self.protocol.setup


def is_known(config: TextsRun) -> bool:
    """True if the run names sets of the catalogue or generated ones, which every node then has: for tests."""
    return all(is_known_name(name.strip(), config.task) for name in config.data.split(JOIN))


@functools.lru_cache(maxsize=4)
def agree_terms(config: TextsRun, where: str | None = None) -> Agreed:
    """Protocol and number of silos of a run.

    Args:
        config: The run, resolved.
        where: Where known sets are looked for.

    Raises:
        ConfigError: A size is missing that silos with own texts must agree on, or messages would be too
            large, or the run names a path.
        DataError: A known set is not there.
    """
    found = _make_terms(config, where)
    for exchange in (*found.setup.exchanges, *found.protocol.exchanges):
        for layout in (exchange.request, exchange.reply):
            if layout.nbytes > MOST_BYTES:
                setup, part = found.setup, 0.99 * MOST_BYTES / layout.nbytes  # sizes and heads stand beside the cells
                raise ConfigError(
                    f"a message {layout.name} of {setup.silos} silos with {setup.documents:,} documents each would "
                    f"have {layout.nbytes / 2**30:.1f} GiB, at most {MOST_BYTES / 2**30:.0f} GiB can cross. "
                    f"{int(part * setup.documents):,} documents a silo fit (texts-documents), and "
                    f"{setup.documents:,} with sketch-w = {int(part * setup.shape.w):,}. "
                    "A search that leaves documents at home has no such limit: fedrank search owner serve."
                )
    return found


def _make_terms(config: TextsRun, where: str | None) -> Agreed:
    if is_known(config):
        experiment = _whole(config, where)
        return Agreed(experiment.protocol, experiment.n_parties)
    if config.data != OWN:
        raise ConfigError(
            f"data = {config.data!r} is no set of the catalogue, and a run does not say which files a node reads. "
            f'Say data = "{OWN}", and start each SuperNode with its own: --node-config \'data="/its/own/folder"\'.'
        )
    t = config.texts
    lacking = [name for name, value in (("texts-documents", t.documents), ("texts-grades", t.grades)) if not value]
    if lacking:
        raise ConfigError(
            f"silos with own texts must agree on {' and '.join(lacking)} beforehand, since no party sees all "
            "texts; set them in the run, large enough for every silo."
        )
    if t.cut != Texts().cut:
        raise ConfigError("texts-cut says how one collection is cut; here each silo has its own. Leave it out.")
    parts = Parts(config, t.silos, t.grades, t.documents, 0, _TYPICAL)
    return Agreed(config.method.bind(parts), t.silos)


def texts_of(config: TextsRun, node: NodeSettings, where: str | None = None) -> SiloTexts:
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
    if texts.lacking:
        raise DataError(
            f"there are {len(texts.used_queries)} queries with a relevant document, too few for "
            f"{' and '.join(texts.lacking)}. Judge more queries.",
            path,
        )
    return texts


def refuse_misplaced(config: TextsRun, node: NodeSettings, silos: int) -> None:
    """Refuse a node that the run has no place for: each node is one silo, with own texts or those of a known set.

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
            + f' A run in which silos have own texts says data = "{OWN}"; their SuperNodes are started with '
            "--node-config 'data=\"/its/own/folder\"'."
        )
    if node.data and not node.state_dir:
        raise ConfigError(
            "a silo with own texts needs state-dir, a folder of the node: without it the node would forget its "
            "rows, and that it has handed out its sketches already."
        )


def refuse_unprotected(config: TextsRun, node: NodeSettings, protocol: SiloSketch) -> None:
    """Refuse a run that promises this node's silo less than those who run the node ask for.

    Raises:
        ConfigError: Says what is promised.
    """
    promise = protocol.account(1, config.delta)
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
            f"(sketch-mode = {config.method.sketch.mode!r}); this node agrees to {most:.4g} (most-sketch-epsilon)."
        )
    if most < 0 and node.data and math.isinf(epsilon):
        raise ConfigError(
            f"sketch-mode = {config.method.sketch.mode!r} does not protect this silo's documents: nothing bounds what "
            "others read from its counts. A node with own texts takes part only with most-sketch-epsilon = inf."
        )


def cuts_words(config: TextsRun) -> bytes:
    """A short hash of how this node cuts a text into words, and of the features' names: equal where these are."""
    return hash_of((*tokenise([_PROBE], config.texts.stem, config.texts.stopwords)[0], *NAMES))


@functools.lru_cache(maxsize=2)
def _whole(config: TextsRun, where: str | None) -> TextExperiment:
    experiment = build_texts(config, where)
    if len(experiment.config.all_seeds) != 1:
        raise ConfigError(f"over a network a run has one seed, got {np.size(experiment.config.all_seeds)}.")
    return experiment


_log = logging.getLogger("fedrank.node")

#: Measure by which a silo compares the federation's ranker with its own.
_MEASURE = "nDCG(dcg='exp-log2')@10"


class TextsServer(ServerSide):
    """The server of a run of silos with texts; arguments as of :func:`texts_server`."""

    config: TextsRun

    def __init__(self, config: TextsRun):
        common = agree_terms(config)
        super().__init__(config, common.protocol, None, common.n_parties, common.setup)
        self._sketch = common.protocol

    @override
    def write_models(self, home: RunFolder, state: PyTree) -> None:
        # How a silo scales its features only the silo knows.
        config, weights = self.config, np.asarray(self._sketch.weights(state), np.float32)
        rounds = int(state.round)
        promise = self._sketch.account(max(1, rounds), config.delta)
        about = provenance(config, rounds=rounds, privacy=promise)
        model = TextModel(
            self._sketch.learner,
            weights,
            config.texts,
            as_published=self._sketch.sketch.as_published,
            about=about,
        )
        home.model(model, config.seed)

    @override
    def write_descriptions(self, home: RunFolder) -> None:
        protocol, learner = self._sketch, self._sketch.learner
        setup = () if self.setup is None else self.setup.exchanges
        home.json("messages.json", describe_messages((*setup, *protocol.exchanges)))
        home.json(
            "model.json",
            {
                "ranker": f"linear, {learner.loss}",
                "n_features": learner.features,
                "features": list(NAMES),
                "grades": learner.grades,
                "parameters": learner.size,
            },
        )


class TextsSetup(SetupSide):
    """A silo's part in the setup.

    Args:
        config: The run, resolved.
        settings: Settings of the node.
        common: What every party of the run knows.
    """

    def __init__(self, config: TextsRun, settings: NodeSettings, common: Agreed):
        self.protocol = self._setup = common.setup
        self._config, self._settings = config, settings
        self._seeded = settings.chance == "seed"
        # The same noise once more, or none, tells nothing more.
        epsilon = common.setup.promise.epsilon(Unit.OCCURRENCE)
        once = settings.data and not self._seeded and math.isfinite(epsilon)
        self.max_shown = settings.most_setups if once else math.inf
        self.first_shown = next(i for i, exchange in enumerate(common.setup.exchanges) if exchange.shows)

    @override
    def party(self) -> Party:
        texts = texts_of(self._config, self._settings, self._settings.data_folder or None)
        return self._setup.party(texts, self._settings.partition_id)

    @override
    def draws(self, exchange: int) -> PyTree:
        number = self._settings.partition_id
        return setup_generator(self._config.seed, exchange, number) if self._seeded else None

    @override
    def keeps(self, name: str) -> bool:
        return name.startswith("rows.") or name == "number"

    @override
    def answered(self, exchange: int, reply: bytes) -> None:
        letters = self._setup.exchanges[exchange].fingerprint_in(reply)
        if letters:
            _log.warning(  # a warning, because an operator has to read it
                "fingerprint of the silos' secret: %s. Compare it with all other silos by telephone; where one "
                "differs, the server has swapped keys: stop the run.",
                letters,
            )


class TextsNode(NodeSide):
    """A silo with own texts, or its part of a known set.

    Args:
        config: The run, resolved.
        settings: Settings of the node.

    Raises:
        ConfigError: The run leaves no place for this node.
        DataError: A known set is not there.
    """

    config: TextsRun

    def __init__(self, config: TextsRun, settings: NodeSettings):
        common = agree_terms(config, settings.data_folder or None)
        refuse_misplaced(config, settings, common.n_parties)
        number = settings.partition_id
        columns = cuts_words(config) if settings.data else b""
        super().__init__(config, settings, common.protocol, range(number, number + 1), columns)
        self._sketch, self.setup = common.protocol, TextsSetup(config, settings, common)

    @override
    def refuse_unprotected(self) -> None:
        refuse_unprotected(self.config, self.settings, self._sketch)

    @override
    def block(self, remembered: dict[str, np.ndarray]) -> Block:
        party = self._sketch.parties(rows_after_setup(remembered))
        # One run, one silo, whose rows are the only ones there are.
        own = jax.tree.map(lambda leaf: leaf[0], party.own)
        return Block(self._sketch, party._replace(own=own), self.numbers)

    @override
    def finished(self, remembered: dict[str, np.ndarray], own: PyTree, request: bytes) -> None:
        # Do no harm: what the silo's own validation queries say of the ranker, for those who run the node.
        rows = rows_after_setup(remembered)
        received = self._sketch.exchanges[-1].request.decode(request)
        held, federated, local = (
            np.asarray(found)
            for found in (
                rows.part[0, 0, 0] == VALI,
                *(_values(self._sketch, _MEASURE, rows, jnp.asarray(m)) for m in (received.weights, own.local[0])),
            )
        )
        gain = (federated - local)[held].astype(np.float64)
        low = lower_end(gain)
        decision = "adopt the federation's ranker" if low > 0 else "keep this silo's own ranker"
        _log.warning(  # a warning, because an operator has to read it
            "do no harm: on this silo's validation queries %s is %.4f with the federation's ranker before its last "
            "step, and %.4f with its own, learnt from features with the federation's statistics; of %d queries, the "
            "difference is at least %.4f with 95 %% confidence: %s",
            _MEASURE,
            federated[held].mean() if len(gain) else math.nan,
            local[held].mean() if len(gain) else math.nan,
            len(gain),
            low,
            decision,
        )


def rows_after_setup(remembered: dict[str, np.ndarray]) -> SketchRows:
    """The rows that the setup has left with a silo.

    Raises:
        RunError: There are none.
    """
    rows = rows_of_party(Party(None, remembered))
    if "documents" not in rows:
        raise RunError(
            "this silo has no rows to train on: it took no part in the run's setup to its end, or what it kept is "
            "gone. Without state-dir a node forgets when its process or the run ends; begin in a new checkpoint-dir."
        )
    return alone(rows)


@functools.partial(jit, static_argnums=0)
def _scores(protocol: SiloSketch, x: Any, model: Any) -> jax.Array:
    return protocol.learner.scores(model, x)


def _values(protocol: SiloSketch, measure: str, rows: SketchRows, model: Any) -> Float32[np.ndarray, " queries"]:
    """Value of each of the silo's queries."""
    mine = jax.tree.map(lambda leaf: leaf[0, 0, 0], rows)
    return offline_metric(measure)(_scores(protocol, mine.x, model), mine.y, mine.where)
