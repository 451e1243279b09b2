"""A node's answers where its party is a silo with texts: the opening first, then training on the rows it made there.

Texts are read for the opening only. What is left of them at the node are the rows, in the file of the opening.
"""

from __future__ import annotations

import functools
import hashlib
import json
import logging
import math
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedrank.core.errors import RunError
from fedrank.core.protocol import Party
from fedrank.deploy.flower.answers import Block, FolderMemory, Memory, answer_of
from fedrank.deploy.flower.messages import Answer, Question
from fedrank.deploy.flower.opening_answers import FileStore, Remembered, Store, opening_answer
from fedrank.deploy.flower.own_texts import (
    Agreed,
    agreed,
    cuts_words,
    refuse_misplaced,
    refuse_unprotected,
    texts_of,
)
from fedrank.deploy.flower.settings import NodeSettings, about
from fedrank.metrics.offline import offline_metric
from fedrank.texts.config import TextsConfig
from fedrank.texts.silo_sketch import SiloSketch
from fedrank.texts.silo_sketch.arrays import alone, setup_generator
from fedrank.texts.silo_sketch.setup import SketchSetup
from fedrank.texts.silo_sketch.setup.agree import Agree, SumStep
from fedrank.texts.silo_sketch.setup.exchange_sketches import rows_of_party
from fedrank.texts.silo_sketch.state import VALI, SketchRows

_log = logging.getLogger("fedrank.flower")

#: In how many openings a silo has shown something: a file of its node, whatever the run.
SHOWN = "openings-shown"
#: The exchange of the secure sum with which a silo's noise leaves it.
_VECTORS = 2


def answer_texts(
    config: TextsConfig,
    node: NodeSettings,
    question: Question,
    memory: Memory | None = None,
    store: Store | None = None,
    shown: Store | None = None,
) -> Answer:
    """What a node sends back; needs no Flower.

    Args:
        config: The run, resolved; of silos with texts.
        node: Which silo, its texts and where its chance comes from.
        question: What the server asked.
        memory: Where the silo's state of training is kept; None: in ``state_dir`` of the node.
        store: Where what it remembers of the opening is kept; None: likewise.
        shown: Where it counts its openings; None: likewise.

    Raises:
        FedrankError: The run leaves no place for this node, promises less than it asks for, or the question is out of
            turn; or the texts cannot be used.
    """
    where = node.data_folder or None
    common = agreed(config, where)
    refuse_misplaced(config, node, common.n_parties)
    refuse_unprotected(config, node, common.protocol)
    memory, store, shown = _kept(config, node, common, memory, store, shown)
    number = node.partition_id
    if not question.request:
        if question.opening:  # what does not fit is told before anything crosses
            common.setup.party(texts_of(config, node, where), number)
        return Answer.of(number, np.ones(1, bool), cuts_words(config) if node.data else b"")
    if question.opening:
        opening = common.setup
        party = opening.party(texts_of(config, node, where), number)
        seeded = node.chance == "seed"
        draws = setup_generator(config.seed, question.exchange, number) if seeded else None
        # The same noise once more, or none, tells nothing more.
        once = node.data and not seeded and math.isfinite(opening.promise.epsilon_occurrence)
        most = node.most_openings if once else math.inf
        answer = opening_answer(opening, party, number, question, store, shown, draws, most, _shows(opening), _outlasts)
        _tell_fingerprint(opening, question, answer)
        return answer
    rows = rows_of_party_in(store)
    block = _block(common.protocol, rows, number)
    answer = answer_of(block, question, config.seed, config.compute.chunk, node.chance, memory)
    step = question.round * len(common.protocol.exchanges) + question.exchange
    if question.round == config.rounds - 1 and question.exchange == len(common.protocol.exchanges) - 1:
        own = memory.before(step, block.parties.own)
        _gate(common.protocol, rows, own, question)
    return answer


def rows_of_party_in(store: Store) -> SketchRows:
    """The rows that the opening left with a silo.

    Raises:
        RunError: There are none.
    """
    rows = rows_of_party(Party(None, Remembered.unpacked(store.read()).own))
    if "documents" not in rows:
        raise RunError(
            "this silo has no rows to train on: it took no part in the run's opening to its end, or what it kept is "
            "gone. Without state-dir a node forgets when its process or the run ends; begin in a new checkpoint-dir."
        )
    return alone(rows)


def _kept(
    config: TextsConfig,
    node: NodeSettings,
    common: Agreed,
    memory: Memory | None,
    store: Store | None,
    shown: Store | None,
) -> tuple[Memory, Store, Store]:
    if memory is not None and store is not None and shown is not None:
        return memory, store, shown
    if not node.state_dir:
        raise RunError("a silo with texts has to remember; give the node a state-dir.")
    folder, number = Path(node.state_dir).expanduser(), node.partition_id
    of = {"run": about(config), "silo": number}
    name = hashlib.sha256(json.dumps(of, sort_keys=True).encode()).hexdigest()[:16]
    exchanges = len(common.protocol.exchanges)
    return (
        memory or FolderMemory(folder, config, range(number, number + 1), exchanges),
        store or FileStore(folder / f"opening-{name}.npz"),
        shown or FileStore(folder / SHOWN),
    )


def _outlasts(name: str) -> bool:
    """What a silo needs of the opening when it is over: its rows, and what it knows of its budget."""
    return name.startswith("rows.") or name in ("number", "spent", "answered")


def _tell_fingerprint(opening: SketchSetup, question: Question, answer: Answer) -> None:
    """For those who run the silos: where they compare it, a server that swapped keys is found out."""
    exchange = opening.exchanges[question.exchange]
    if isinstance(exchange, Agree):
        letters = np.asarray(exchange.reply.decode(answer.replies).fingerprint, np.uint8)
        _log.warning(  # not for information: somebody has to read it
            "fingerprint of the silos' secret: %s. Compare it with all other silos by telephone; where one differs, "
            "the server has swapped keys: stop the run.",
            bytes(letters).decode("ascii", "replace"),
        )


def _shows(opening: SketchSetup) -> int:
    """The first exchange with which something with noise leaves a silo."""
    return next(
        i for i, exchange in enumerate(opening.exchanges) if isinstance(exchange, SumStep) and exchange.step == _VECTORS
    )


def _block(protocol: SiloSketch, rows: SketchRows, number: int) -> Block:
    party = protocol.parties(rows)
    # One run, one silo, whose rows are the only ones there are.
    return Block(protocol, party._replace(own=jax.tree.map(lambda leaf: leaf[0], party.own)), range(number, number + 1))


@functools.partial(jax.jit, static_argnums=(0, 1))
def _vali(protocol: SiloSketch, measure: str, rows: SketchRows, model: Any) -> jax.Array:
    mine = jax.tree.map(lambda leaf: leaf[0, 0, 0], rows)
    values = offline_metric(measure)(protocol.learner.scores(model, mine.x), mine.y, mine.where)
    chosen = mine.part == VALI
    return jnp.sum(jnp.where(chosen, values, 0.0)) / jnp.maximum(jnp.sum(chosen), 1)


def _gate(protocol: SiloSketch, rows: SketchRows, own: Any, question: Question) -> None:
    """Do no harm: what the silo's own validation queries say of the ranker, for those who run the node."""
    measure = "nDCG@10"
    request = protocol.exchanges[question.exchange].request.decode(question.request)
    federated, local = (
        float(_vali(protocol, measure, rows, jnp.asarray(model))) for model in (request.weights, own.local[0])
    )
    decision = "adopt the federation's ranker" if federated > local else "keep this silo's own ranker"
    _log.warning(  # not for information: somebody has to read it
        "do no harm: on this silo's validation queries %s is %.4f with the federation's ranker before its last step, "
        "and %.4f with its own, learnt from features with the federation's statistics: %s",
        measure,
        federated,
        local,
        decision,
    )
