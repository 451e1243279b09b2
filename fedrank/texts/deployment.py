"""Silos with texts over a network: a setup in which they make their rows, then training on these rows.

Texts are read for the setup only. What is left of them at the node are the rows, in the file of the setup.
"""

from __future__ import annotations

import functools
import logging
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from typing_extensions import override

from fedrank.core.arrays import PyTree
from fedrank.core.errors import RunError
from fedrank.core.privacy_report import Unit
from fedrank.core.protocol import Party
from fedrank.engine.deployment import Block, NodeSettings, NodeSide, ServerSide, SetupSide
from fedrank.engine.model import provenance
from fedrank.engine.run_folder import RunFolder, described
from fedrank.metrics.offline import offline_metric
from fedrank.texts.config import TextsConfig
from fedrank.texts.data.features import NAMES
from fedrank.texts.gate import lower_end
from fedrank.texts.model import TextModel
from fedrank.texts.own_texts import Agreed, agreed, cuts_words, refuse_misplaced, refuse_unprotected, texts_of
from fedrank.texts.silo_sketch import SiloSketch
from fedrank.texts.silo_sketch.arrays import alone, setup_generator
from fedrank.texts.silo_sketch.setup.agree import Agree, SumStep
from fedrank.texts.silo_sketch.setup.exchange_sketches import rows_of_party
from fedrank.texts.silo_sketch.state import VALI, SketchRows

_log = logging.getLogger("fedrank.node")

#: Step of the secure sum with which a silo's noise leaves it.
_VECTORS = 2
#: Measure by which a silo compares the federation's ranker with its own.
_MEASURE = "nDCG@10"


class TextsServer(ServerSide):
    """The server of a run of silos with texts; arguments as of :func:`texts_server`."""

    config: TextsConfig

    def __init__(self, config: TextsConfig):
        common = agreed(config)
        super().__init__(config, common.protocol, None, common.n_parties, common.setup)
        self._sketch = common.protocol

    @override
    def write_models(self, home: RunFolder, state: PyTree) -> None:
        # How a silo scales its features only the silo knows.
        config, weights = self.config, np.asarray(self._sketch.weights(state), np.float32)
        rounds = int(state.round)
        promise = self._sketch.account(max(1, rounds), config.privacy.delta)
        about = provenance(config, data=config.data, seed=config.seed, rounds=rounds, privacy=promise)
        model = TextModel(
            self._sketch.learner,
            weights,
            config.texts.scale,
            stem=config.texts.stem,
            stopwords=config.texts.stopwords,
            as_published=config.sketch.as_published,
            about=about,
        )
        home.model(model, config.seed)

    @override
    def write_descriptions(self, home: RunFolder) -> None:
        protocol, learner = self._sketch, self._sketch.learner
        setup = () if self.setup is None else self.setup.exchanges
        home.json("messages.json", described((*setup, *protocol.exchanges)))
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

    def __init__(self, config: TextsConfig, settings: NodeSettings, common: Agreed):
        self.protocol = self._setup = common.setup
        self._config, self._settings = config, settings
        self._seeded = settings.chance == "seed"
        # The same noise once more, or none, tells nothing more.
        epsilon = common.setup.promise.epsilon(Unit.OCCURRENCE)
        once = settings.data and not self._seeded and math.isfinite(epsilon)
        self.max_shown = settings.most_setups if once else math.inf
        self.first_shown = next(
            i for i, e in enumerate(common.setup.exchanges) if isinstance(e, SumStep) and e.step == _VECTORS
        )

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
        return name.startswith("rows.") or name in ("number", "spent", "answered")

    @override
    def answered(self, exchange: int, reply: bytes) -> None:
        step = self.protocol.exchanges[exchange]
        if isinstance(step, Agree):
            letters = np.asarray(step.reply.decode(reply).fingerprint, np.uint8)
            _log.warning(  # not for information: somebody has to read it
                "fingerprint of the silos' secret: %s. Compare it with all other silos by telephone; where one "
                "differs, the server has swapped keys: stop the run.",
                bytes(letters).decode("ascii", "replace"),
            )


class TextsNode(NodeSide):
    """A silo with texts of its own, or its part of a known set.

    Args:
        config: The run, resolved.
        settings: Settings of the node.

    Raises:
        ConfigError: The run leaves no place for this node.
        DataError: A known set is not there.
    """

    config: TextsConfig

    def __init__(self, config: TextsConfig, settings: NodeSettings):
        common = agreed(config, settings.data_folder or None)
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
        _log.warning(  # not for information: somebody has to read it
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


@functools.partial(jax.jit, static_argnums=(0, 1))
def _values(protocol: SiloSketch, measure: str, rows: SketchRows, model: Any) -> jax.Array:
    """Value of each of the silo's queries."""
    mine = jax.tree.map(lambda leaf: leaf[0, 0, 0], rows)
    return offline_metric(measure)(protocol.learner.scores(model, mine.x), mine.y, mine.where)
