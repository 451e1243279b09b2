"""CS-F-LTR's opening: silos see each other's documents through private sketches, and make rows of them.

Section 3 of Shi et al., *Cross-silo Federated Learning-to-rank* (Journal of Software 2021); Wang et al. (ICDE 2021).
The server passes on what it cannot read::

    keys, secrets, agree     the silos agree on a secret that hashes words; the server never has it
    sum-keys … sum-unmask    a secure sum of document-frequency sketches (Section 3.3)
    publish                  every silo hands out a noisy sketch of each document, once              publish-once, plain
    ask, answer              hashed words among decoys (Algorithm 1), cells with noise (Algorithm 2)  per-query, paper
    receive                  a silo looks its query words up, and makes its rows
    scale                    common centre and spread of the features

Where sketches are published, queries stay at home altogether. Where questions are asked, an owner of documents sees
hashes and the number of words asked about; see :mod:`fedrank.texts.sketch.decoys` for what these give away, and
:mod:`fedrank.texts.sketch.noise` for what cells and sketches do.

All exchanges are on the host: text, keys and hashes. What is agreed before anything crosses is
:class:`SketchOpening`, which every silo has from its own settings.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from fedrank.core.errors import ConfigError
from fedrank.core.protocol import Exchange, Party, Promise, Protocol
from fedrank.privacy.secure_sum.messages import Terms
from fedrank.privacy.secure_sum.server import Server
from fedrank.texts.data.corpus import FIELDS
from fedrank.texts.silo_sketch.rows import RowSettings, SiloTexts
from fedrank.texts.silo_sketch.statistics import statistics_length
from fedrank.texts.sketch import SketchShape
from fedrank.texts.sketch.noise import SketchNoise
from fedrank.texts.sketch.query_budget import answers_within

#: Largest message, in bytes: what a network is asked to carry, and a machine to hold for each silo.
_LARGEST_MESSAGE = 2**30
#: Questions where no budget ends.
_ENDLESS = 2**31 - 1
#: Largest noise, in standard deviations of 16 bits, with which cells cross in two bytes.
_NARROW_SCALE = 700.0


@dataclass(frozen=True)
class OpeningState:
    """What the server keeps: what was sent, to be passed on.

    Attributes:
        silos: Number of silos.
        kept: By the name of an exchange, its replies (leaves [silos, …]) and who was heard, bool [silos].
        sum: The server of the secure sum, and its next message to each silo; None when it is done.
        totals: int32, the sum; None before.
    """

    silos: int
    kept: dict[str, tuple[Any, np.ndarray]]
    sum: Any = None
    totals: Any = None

    def with_replies(self, name: str, replies: Any, arrived: Any, **more: Any) -> OpeningState:
        """The state with one exchange's replies."""
        kept = {**self.kept, name: (replies, np.asarray(arrived, bool))}
        values = {"sum": self.sum, "totals": self.totals, **more}
        return OpeningState(self.silos, kept, **values)


@dataclass(frozen=True)
class SketchOpening(Protocol):
    """What silos and server agree on beforehand.

    Attributes:
        silos: Number of silos, at least 2.
        shape: Of a document's sketches.
        statistics: Shape of the statistics' sketches.
        noise: Mode and noise.
        rows: Which rows silos make.
        promise: What the noise promises.
        documents: Most documents of a silo; sketches of fewer are padded.
        words: Most different query words of a silo; where questions are asked.
        z1: Rows of a sketch that a question is really about; the others are decoys'.
        decoys: Scheme of decoys, ``jos`` or ``icde``.
        estimate: How counts are made of cells with noise: ``posterior`` or ``median`` (the paper's).
        limit: Where questions are asked, the total ε of an occurrence at which an owner refuses further ones.
        survivors: Of the silos, how many must stay for the secure sum.
    """

    silos: int
    shape: SketchShape
    statistics: SketchShape
    noise: SketchNoise
    rows: RowSettings
    promise: Any
    documents: int
    words: int = 0
    z1: int = 1
    decoys: str = "jos"
    estimate: str = "median"
    limit: float = math.inf
    survivors: int = 0

    name = "silo-sketch-opening"

    def __post_init__(self):
        if self.silos < 2:
            raise ConfigError(f"silos must be at least 2 to see each other's documents, got {self.silos}.")
        if self.documents < 1:
            raise ConfigError(f"documents must be at least 1, got {self.documents}.")
        if self.asks and not 1 <= self.z1 < self.shape.z:
            raise ConfigError(
                f"z1 (sketch.z1) must be in 1..{self.shape.z - 1}, so that there are decoys among the {self.shape.z} "
                f"rows of a question; got {self.z1}."
            )
        if self.asks and not (self.words >= 1 and self.shape.w <= 2**16):
            raise ConfigError(
                f"questions need words of at least 1 and w of at most {2**16}; got {self.words} and {self.shape.w}."
            )

        cells = self.words * (self.silos - 1) * self.shape.z if self.asks else self.shape.cells
        size = (4 if self.asks or self.wide else 2) * self.fields * self.documents * cells
        if size > _LARGEST_MESSAGE:
            raise ConfigError(
                f"a silo would send {size / 2**30:,.1f} GiB about its {self.documents:,} documents, more than the "
                f"{_LARGEST_MESSAGE / 2**30:g} GiB that a message may have. Take fewer cells (sketch.z, sketch.w), "
                "fewer documents, or ask fewer words."
            )

    @property
    def asks(self) -> bool:
        """Whether silos ask questions, instead of publishing sketches."""
        return self.noise.mode in ("per-query", "paper")

    @property
    def shrinks(self) -> bool:
        """Whether counts are posterior means: of signed cells with noise of their own."""
        noisy = self.noise.mode in ("publish-once", "per-query") and self.shape.kind == "count"
        return self.estimate == "posterior" and noisy

    @property
    def statistics_deviation(self) -> float:
        """Standard deviation of the noise of all silos in a cell of the summed statistics; 0 where there is none."""
        scale = self.noise.scale("statistics")
        if scale is None:
            return 0.0
        return math.sqrt(self.silos * (2.0 if self.noise.mechanism == "laplace" else 1.0)) * scale

    @property
    def terms(self) -> Terms:
        """Of the secure sum: all silos mask with all others."""
        survivors = self.survivors or self.silos // 2 + 1
        return Terms(statistics_length(self.statistics), self.silos - 1, survivors)

    @property
    def wide(self) -> bool:
        """Whether a published cell takes four bytes: two hold counts with little noise."""
        scale = self.noise.scale("sketches")
        return scale is not None and scale > _NARROW_SCALE

    @property
    def allowed(self) -> int:
        """Questions about a document that its owner answers within the budget; sizes and statistics cost one."""
        n = self.noise
        if n.mode != "per-query" or n.epsilon is None or not math.isfinite(self.limit):
            return _ENDLESS
        return max(0, answers_within(self.limit, n.epsilon, n.mechanism, n.delta) - 1)

    @property
    def fields(self) -> int:
        """Fields of a document."""
        return len(FIELDS)

    @cached_property
    def exchanges(self) -> tuple[Exchange, ...]:
        """In order; one round."""
        from fedrank.texts.silo_sketch import agree as agree
        from fedrank.texts.silo_sketch import exchange_sketches as look

        seen = (look.Ask(self), look.Answer(self)) if self.asks else (look.Publish(self),)
        scale = (look.SetScale(self),) if self.rows.scale == "federation" else ()
        return (
            agree.Introduce(self),
            agree.ShareSecret(self),
            agree.Agree(self),
            *(agree.SumStep(self, step) for step in range(4)),
            *seen,
            look.Receive(self),
            *scale,
        )

    def init(self, key: Any) -> OpeningState:
        """A sum that has not begun; its name comes from the operating system, and ``key`` is of no use."""
        del key
        return OpeningState(self.silos, {}, (Server(self.terms), {}))

    def weights(self, state: OpeningState) -> Any:
        """There is no model; the summed statistics."""
        return state.totals

    def account(self, rounds: int, delta: float) -> Promise:
        """What the noise promises."""
        del rounds, delta
        return self.promise

    def parties(self, texts: list[SiloTexts]) -> list[Party]:
        """One party a silo. What it has for itself is a dictionary of arrays, empty at first.

        Raises:
            ConfigError: The texts do not fit what was agreed.
        """
        if len(texts) != self.silos:
            raise ConfigError(f"the opening is made for {self.silos} silos, got the texts of {len(texts)}.")
        return [self.party(one, number) for number, one in enumerate(texts)]

    def party(self, texts: SiloTexts, number: int) -> Party:
        """One silo.

        Args:
            texts: Its documents and queries.
            number: Its number among the silos.

        Raises:
            ConfigError: It has more documents or query words than was agreed.
        """
        if texts.corpus.n_documents > self.documents:
            raise ConfigError(
                f"{texts.corpus.name!r} has {texts.corpus.n_documents:,} documents, agreed were at most "
                f"{self.documents:,} (texts.documents). Agree on more, or leave some out."
            )
        if self.asks and len(texts.words) > self.words:
            raise ConfigError(
                f"{texts.corpus.name!r} has {len(texts.words):,} query words, agreed were at most {self.words:,} "
                "(texts.words). Agree on more, or ask fewer queries."
            )
        return Party(texts, {"number": np.array(number, np.int64)})


@dataclass(frozen=True)
class HostExchange(Exchange):
    """An exchange of the opening. Questions differ from silo to silo: :meth:`address` asks one.

    Attributes:
        settings: What was agreed.
    """

    settings: SketchOpening

    host = True

    def ask(self, state: OpeningState) -> Any:
        """What the first silo is asked."""
        return self.address(state, 0)

    def draw(self, key: Any) -> Any:
        """The simulation's generator, as it is."""
        return key

    def draw_from_os(self) -> Any:
        """None: the operating system is asked where something is drawn."""
        return None

    def tell(self, state: OpeningState, replies: Any, arrived: Any) -> OpeningState:
        """Keep what was sent, to be passed on."""
        return state.with_replies(self.name, replies, arrived)


def kept(party: Party, **arrays: np.ndarray) -> Party:
    """The party with more of its own."""
    return party._replace(own={**party.own, **arrays})


def without(party: Party, *names: str) -> Party:
    """The party without some of its own, which it needs no more."""
    return party._replace(own={name: array for name, array in party.own.items() if name not in names})
