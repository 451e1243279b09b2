"""CS-F-LTR as printed: silos ask each other about words among decoys, and answers carry one noise variable.

Shi, Wang, Zheng, Tong: *Cross-silo Federated Learning-to-rank*, Journal of Software 32(3), 2021, Algorithms 1 and 2;
Wang, Tong, Shi, Xu, ICDE 2021. It is here to be measured. **It does not protect the owner of documents from who asks**:
the noise of equation 5 is one variable for all z cells of an answer, and the querier takes it off with the cells of his
own decoys (``fedrank privacy attack sketch``). ``silo-sketch`` publishes sketches once instead. The setup differs from
:mod:`fedrank.texts.silo_sketch.setup` in two exchanges::

    ask, answer    hashed words among decoys (Algorithm 1), cells with noise (Algorithm 2)     in place of publish

An owner of documents sees hashes and the number of words asked about; :mod:`fedrank_zoo.decoys` says what these give
away. Sizes and statistics go out as they are. Equation 3 as printed lacks the sign of a cell; it is applied here.
"""

from __future__ import annotations

import math
import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
from jaxtyping import Float64, Int64, Integer
from typing_extensions import override

from fedrank.core.errors import ConfigError
from fedrank.core.fields import setting
from fedrank.core.messages import Array, f4, i4, message, u1, u2, u4
from fedrank.core.messages import field as of
from fedrank.core.privacy_report import DELTA, EVERYBODY, AuditedBy, PrivacyReport, Promise, Unit
from fedrank.core.protocol import Party
from fedrank.privacy.audit import Audit
from fedrank.privacy.randomised_response import os_words
from fedrank.texts.config import Mode, Sketch
from fedrank.texts.silo_sketch import Parts, SiloSketch
from fedrank.texts.silo_sketch.setup import SketchSetup
from fedrank.texts.silo_sketch.setup.exchange_sketches import (
    Receive,
    WithTotals,
    look_up,
    only,
    open_sealed,
    own_sketches,
    seal_for,
    sizes_of,
)
from fedrank.texts.silo_sketch.setup.rows import ForeignDocuments
from fedrank.texts.silo_sketch.setup.settings import HostExchange, SetupState, sealed_size, with_fields
from fedrank.texts.sketch import cells_at, estimate, hash_terms
from fedrank.texts.sketch.key import ALL_SILOS
from fedrank.texts.sketch.noise import NOT_COVERED, TRAINING, SketchNoise
from fedrank_zoo.cs_f_ltr_icde_2021 import IcdeObfuscator
from fedrank_zoo.decoys import Obfuscator

# -- noise and account --------------------------------------------------------------------------------------------


class MeasuredAttack(NamedTuple):
    """Result of the attack that asks whether a document has one more occurrence of a word.

    Attributes:
        command: Command that measures it, with a fixed seed.
        epsilon: ε as printed, of one answer.
        trials: Number of answers.
        accuracy: Share of trials in which the attacker is right.
        allowed: Largest share if ε held, (e^ε)/(1 + e^ε).
    """

    command: str
    epsilon: float
    trials: int
    accuracy: float
    allowed: float

    def in_words(self) -> str:
        """The result as a sentence for a page."""
        return (
            f"Measured: from one answer an attacker tells whether a document has one more occurrence of a word in "
            f"{self.accuracy:.0%} of {self.trials:,} trials, where ε = {self.epsilon:g} would allow "
            f"{self.allowed:.1%} ({self.command})."
        ).replace("%", " %")


#: The attack with the defaults of its command; a test measures it again.
PAPER_ATTACK = MeasuredAttack("fedrank privacy attack sketch --modes paper", 0.5, 4_000, 1.0, 0.622)


@dataclass(frozen=True)
class PrintedNoise(SketchNoise):
    """Equation 5 as printed: one continuous Laplace variable of scale 1/ε for all z cells of an answer.

    ``epsilon`` is the printed one, of one answer. It bounds nothing against the querier.
    """

    modes: ClassVar[Collection[str]] = ("paper",)

    @override
    def scale(self, what: str = "sketches") -> float | None:
        return None if what != "sketches" or self.epsilon is None else 1.0 / self.epsilon

    def answer(
        self, cells: Integer[np.ndarray, "questions documents z"], rng: np.random.Generator | None = None
    ) -> Float64[np.ndarray, "questions documents z"]:
        """Answers with fresh noise.

        Args:
            cells: Cells without noise.
            rng: A simulation's generator; None for the operating system's randomness.

        Raises:
            ConfigError: An answer has another number of cells.
        """
        if cells.ndim != 3 or cells.shape[2] != self.z:
            raise ConfigError(f"cells must be [questions, documents, z = {self.z}], got {list(cells.shape)}.")
        scale = self.scale()
        assert scale is not None
        return cells + continuous_laplace(scale, cells.shape[:2], rng)[:, :, None]


def continuous_laplace(
    scale: float, shape: tuple[int, ...], rng: np.random.Generator | None = None
) -> Float64[np.ndarray, " ..."]:
    """Continuous Laplace noise as papers print it; its lowest bits reveal what it was added to (Mironov, CCS 2012).

    Args:
        scale: Scale > 0.
        shape: Shape wanted.
        rng: A simulation's generator; None for the operating system's randomness.
    """
    if rng is not None:
        return rng.laplace(0.0, scale, shape)
    words = np.frombuffer(os.urandom(8 * math.prod(shape)), np.uint64).reshape(shape)
    uniform = ((words >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52  # in (0, 1), never an end
    return -scale * np.sign(uniform - 0.5) * np.log1p(-2.0 * np.abs(uniform - 0.5))


def printed_account(noise: PrintedNoise, answers: int, occurrences: int) -> PrivacyReport:
    """The account of the noise as printed: nothing is bounded.

    Args:
        noise: The noise.
        answers: Number of different answers about one sketch, to all queriers together.
        occurrences: Number of words of the longest document.
    """
    assert noise.epsilon is not None
    return PrivacyReport(
        mechanism="continuous Laplace noise, one variable for all cells of an answer",
        trust=EVERYBODY,
        promises=tuple(Promise(unit, math.inf) for unit in (Unit.OCCURRENCE, Unit.REPLACED_WORD, Unit.DOCUMENT)),
        not_covered=(
            "The documents, against a querier: the noise of an answer comes off with the cells of decoys.",
            "The documents' lengths, and document frequencies over all silos, which go out as they are.",
            "The words of queries, beyond what decoys hide, which are words of the silo's other queries. Where two "
            "silos ask about the same word, the owner finds it: it is what fits both questions. The same holds for "
            "two setups.",
            TRAINING,
            *NOT_COVERED,
        ),
        details={
            "mode": noise.mode,
            "scale": noise.scale(),
            "sensitivity": float(noise.z),
            "epsilon_published": noise.epsilon,
            "epsilon_published_total": noise.epsilon * answers,
            "occurrences": occurrences,
            "answers": answers,
            "training": True,
            "delta": noise.delta,
        },
        audit=AuditedBy("sketch-answers-as-printed", {"epsilon": noise.epsilon}),
        words=(
            "This is the paper's noise as printed, and it does not protect the document owner from the querier. One "
            f"variable is added to all {noise.z:,} cells of an answer, so that differences between cells are exact, "
            "and the querier takes it off with the cells of his own decoys. There is no bound on what one answer "
            f"reveals. The published number is ε = {noise.epsilon:.3g} for one answer; over the {answers:,} answers "
            f"that are given about a sketch it would add up to {noise.epsilon * answers:,.4g}, if it held. "
            f"{PAPER_ATTACK.in_words()} Use silo-sketch, which publishes sketches once.",
        ),
    )


def sketch_answers_as_printed(epsilon: float = 1.0, delta: float = DELTA) -> Audit:
    """The noise of equation 5: one variable for all cells, which a decoy takes off.

    Args:
        epsilon: ε of an answer as printed, in nats.
        delta: Not used: Laplace noise has none.
    """
    noise = PrintedNoise("paper", epsilon, z=2)

    def sample(world: int, trials: int) -> Int64[np.ndarray, " trials"]:
        cells = np.zeros((trials, 1, 2), np.int32)
        cells[:, :, 0] = world  # the other cell is the querier's own decoy: no word of the document is there
        answers = noise.answer(cells)[:, 0]
        return np.rint(answers[:, 0] - answers[:, 1]).astype(np.int64)

    worlds = "a document has one more occurrence of a word, or not"
    return Audit("sketch-answers-as-printed", Unit.OCCURRENCE, worlds, epsilon, sample, holds=False)


# -- messages; ``hashes`` are query words of a silo, ``question_cells`` the cells of a question, one a row ---------


@message(kind=9)
class Asked:
    """Silo to server: its questions, sealed for the other silos; :class:`OwnQuestions` is what is in them."""

    sealed: Array = of(u1["bytes":"sealed_questions"], "the silo's hashed words among decoys, sealed for silos")


@message(kind=10)
class Questions:
    """Server to one silo: the questions of the other silos; zeros for itself and for silos that were not heard."""

    sealed: Array = of(u1["silos", "bytes":"sealed_questions"], "what each silo asks, sealed for silos")


@message(kind=11)
class Cells:
    """Silo to server: its answer to each other silo, sealed for it; :class:`OwnCells` is what is in one.

    The sender's own row and those of silos that asked nothing are zeros.
    """

    sealed: Array = of(u1["silos", "bytes":"sealed_answers"], "the cells that each silo asked for, sealed for it")


@message(kind=13)
class Answers:
    """Server to one silo: the others' answers to its questions, and what they said of the sizes of their documents.

    The receiver's own row and those of silos that were not heard are zeros.
    """

    asked: Array = of(u1["silos", "bytes":"sealed_questions"], "what each silo asked, with its sizes, sealed for silos")
    sealed: Array = of(u1["silos", "bytes":"sealed_answers"], "what each silo answered, sealed for the receiver")


@message(kind=26)
class OwnQuestions:
    """Inside the seal of :class:`Asked`: query words, hashed among decoys, and the sizes of the silo's documents.

    Rows beyond the silo's number of words are zeros.
    """

    words: Array = of(u4, "number of words asked about")
    rows: Array = of(u2["hashes", "cells":"question_cells"], "hashes of words among decoys")
    documents: Array = of(u4, "number of documents of the silo")
    lengths: Array = of(i4["fields":"document_fields", "sketches"], "words of each document's fields")
    distinct: Array = of(i4["fields":"document_fields", "sketches"], "different words of each document's fields")


@message(kind=27)
class OwnCells:
    """Inside the seal of :class:`Cells`: the cells that one silo asked for, with noise."""

    answered: Array = of(u4, "number of the silo's words that were answered")
    cells: Array = of(
        f4["fields":"document_fields", "hashes", "sketches", "cells":"question_cells"],
        "the cells asked for, with the run's noise",
    )


# -- exchanges ----------------------------------------------------------------------------------------------------


class Ask(WithTotals, reply=Asked):
    """Every silo sends its query words, hashed among decoys (Algorithm 1), and the sizes of its documents."""

    name = "ask"
    settings: AskingSetup

    @override
    def respond(self, request: Any, party: Party, draws: np.random.Generator | None) -> tuple[Party, Asked]:
        s, words = self.settings, party.shared.words
        party = with_fields(party, totals=np.asarray(request.totals, np.int32))
        if "decoys" not in party.own:  # drawn once and kept: a word's question is the same every time
            secret = os_words((8,)).astype("<u4").tobytes() if draws is None else draws.bytes(32)
            party = with_fields(party, decoys=np.frombuffer(secret, np.uint8))
        obfuscator = _obfuscator(s, party)
        rows = np.zeros((s.words, s.shape.z), np.int32)
        rows[: len(words)] = np.reshape([obfuscator.ask(word).rows for word in words], (-1, s.shape.z))
        lengths, distinct = self.noisy_sizes(party, draws)
        documents = np.uint32(party.shared.corpus.n_documents)
        own = OwnQuestions(np.uint32(len(words)), rows, documents, lengths, distinct)
        return party, Asked(seal_for(s, party, own, ALL_SILOS))


class Answer(HostExchange, request=Questions, reply=Cells):
    """Every silo answers the others' questions about each of its documents, with noise (Algorithm 2)."""

    name = "answer"
    settings: AskingSetup

    @override
    def address(self, state: SetupState, party: int) -> Questions:
        replies, arrived = state.replies["ask"]
        return Questions(only(arrived & (np.arange(state.silos) != party), replies.sealed))

    @override
    def respond(self, request: Any, party: Party, draws: np.random.Generator | None) -> tuple[Party, Cells]:
        s, documents = self.settings, party.shared.corpus.n_documents
        stored = own_sketches(s, party)
        out = np.zeros((s.silos, s.fields, s.words, s.documents, s.shape.z), np.float32)
        asked = [open_sealed(s, party, OwnQuestions, silo, ALL_SILOS, row) for silo, row in enumerate(request.sealed)]
        words = np.array([0 if one is None else min(int(one.words), s.words) for one in asked])
        for word in range(int(words.max(initial=0))):
            for silo in np.flatnonzero(words > word).tolist():
                rows = np.asarray(asked[silo].rows)[word].astype(np.int64)  # type: ignore[union-attr] - it asks
                raw = np.concatenate([cells_at(sketches, rows[None])[0] for sketches in stored])
                answer = s.noise.answer(raw[None], draws)[0]
                out[silo, :, word, :documents] = answer.reshape(s.fields, documents, -1)
        sealed = np.zeros((s.silos, s.sizes["sealed_answers"]), np.uint8)
        for silo in (silo for silo, one in enumerate(asked) if one is not None):
            sealed[silo] = seal_for(s, party, OwnCells(np.uint32(words[silo]), out[silo]), silo)
        return party, Cells(sealed)

    @property
    @override
    def shows(self) -> bool:
        return True


class ReceiveAnswers(Receive, request=Answers):
    """Every silo gets the answers to its questions, and makes its rows."""

    settings: AskingSetup

    @override
    def address(self, state: SetupState, party: int) -> Answers:
        asked, heard = state.replies["ask"]
        replies, arrived = state.replies["answer"]
        there = (np.arange(state.silos) != party) & arrived & heard
        return Answers(only(there, asked.sealed), only(there, np.asarray(replies.sealed)[:, party]))

    @override
    def foreign_documents(self, party: Party, request: Any) -> list[ForeignDocuments | None]:
        s, words = self.settings, party.shared.words
        places = {word: number for number, word in enumerate(words)}
        obfuscator = _obfuscator(s, party)
        questions = [obfuscator.ask(word) for word in words]
        own = np.reshape([question.own for question in questions], (1, -1, 1, s.sketch.z1))
        signs = np.reshape([question.signs for question in questions], (1, -1, 1, s.sketch.z1))

        def foreign(silo: int) -> ForeignDocuments | None:
            asked = open_sealed(s, party, OwnQuestions, silo, ALL_SILOS, request.asked[silo])
            answer = open_sealed(s, party, OwnCells, silo, int(party.own["number"]), request.sealed[silo])
            documents = 0 if asked is None else min(int(asked.documents), s.documents)
            if asked is None or answer is None or not documents:
                return None
            answered = min(int(answer.answered), len(words))
            mine = np.take_along_axis(np.asarray(answer.cells)[:, :answered, :documents], own[:, :answered], axis=-1)
            lengths, distinct = sizes_of(asked, documents)
            table = np.zeros((len(words), documents, s.fields), np.float32)
            estimates = estimate(mine, signs[:, :answered], s.shape.kind)
            table[:answered] = np.moveaxis(np.maximum(estimates, 0.0), 0, -1)
            return ForeignDocuments(look_up(places, table), lengths, distinct)

        return [foreign(silo) for silo in range(s.silos)]


def _obfuscator(s: AskingSetup, party: Party) -> Obfuscator:
    """The silo's questions. Decoys are other words of its queries.

    Words of its documents would not do: whoever recognises a decoy would know that a document holds it, which no noise
    covers. So nothing here depends on the documents.
    """
    terms = party.shared.words
    hashes = hash_terms(terms, s.shape, party.own["secret"].tobytes())
    scheme = Obfuscator if s.sketch.decoys == "jos" else IcdeObfuscator
    return scheme(s.shape, s.sketch.z1, terms, hashes, party.own["decoys"].tobytes())


# -- method -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class PrintedSketch(Sketch):
    """Sketches about which other silos ask."""

    mode: Literal["paper"] = setting("paper", "As printed; does not protect the document owner from the querier.")  # type: ignore[assignment]
    epsilon: float | None = setting(None, "ε of one answer, as printed. Without it 0.5.")
    z1: int = setting(5, "Rows of a question that belong to its word; the others are decoys'.", low=0)
    decoys: Literal["jos", "icde"] = setting(
        "jos", "Whole words as decoys, or a different word for every row, which a dictionary tells apart."
    )
    words: int = setting(0, "Agreed largest number of different query words of a silo; 0: as many as there are.", low=0)

    #: 0.5 is the ICDE paper's. Decoys need many rows.
    modes: ClassVar[Mapping[str, Mode]] = {"paper": Mode(0.5, (10, 120), (5, 16384))}


@dataclass(frozen=True)
class AskingSetup(SketchSetup):
    """The setup in which silos ask.

    Attributes:
        words: Largest number of different query words of a silo.

    Raises:
        ConfigError: As of a :class:`SketchSetup`, or a question would have no decoys, or nothing to ask.
    """

    sketch: PrintedSketch
    words: int = 0

    def __post_init__(self):
        s = self.sketch
        if not 1 <= s.z1 < s.z:
            raise ConfigError(
                f"sketch.z1 must be in 1..{s.z - 1}, so that there are decoys among the {s.z} rows of a question; got "
                f"{s.z1}."
            )
        if not (self.words >= 1 and s.w <= 2**16):
            raise ConfigError(
                f"questions need sketch.words of at least 1 and sketch.w of at most {2**16}; got {self.words} and "
                f"{s.w}."
            )
        super().__post_init__()

    @property
    @override
    def document_bytes(self) -> int:
        return 4 * self.words * (self.silos - 1) * self.sketch.z

    @cached_property
    @override
    def noise(self) -> PrintedNoise:
        return PrintedNoise("paper", self.sketch.epsilon, self.sketch.z, delta=self.delta)

    @cached_property
    @override
    def promise(self) -> PrivacyReport:
        return printed_account(self.noise, self.words * (self.silos - 1), self.occurrences)

    @property
    @override
    def shrinks(self) -> bool:
        return False

    @cached_property
    @override
    def sizes(self) -> Mapping[str, int]:
        sizes = {**super().sizes, "hashes": self.words, "question_cells": self.shape.z}
        sizes["sealed_questions"] = sealed_size(OwnQuestions, sizes)
        return sizes | {"sealed_answers": sealed_size(OwnCells, sizes)}

    @property
    @override
    def showing(self) -> tuple[HostExchange, ...]:
        return Ask(self), Answer(self)

    @property
    @override
    def receive(self) -> ReceiveAnswers:
        return ReceiveAnswers(self)

    @override
    def party(self, texts: Any, number: int) -> Party:
        if len(texts.words) > self.words:
            raise ConfigError(
                f"{texts.corpus.name!r} has {len(texts.words):,} query words, agreed were at most {self.words:,} "
                "(sketch.words). Agree on more, or ask fewer queries."
            )
        return super().party(texts, number)


@dataclass(frozen=True)
class SiloSketch2021(SiloSketch):
    """Silos ask each other about words among decoys, as CS-F-LTR is printed; its noise protects no document."""

    sketch: PrintedSketch = field(default_factory=PrintedSketch)

    name = "silo-sketch-2021"
    crosses = "questions about words among decoys, noisy counts, a secure sum of statistics, changes of a ranker"
    recommended = False

    setup_class = AskingSetup

    @override
    def setup_of(self, parts: Parts, **more: Any) -> SketchSetup:
        return super().setup_of(parts, words=self.sketch.words or parts.words, **more)
