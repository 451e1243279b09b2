"""Setup of CS-F-LTR: silos see each other's documents through private sketches, and make training rows of them.

Section 3 of Shi et al., *Cross-silo Federated Learning-to-rank* (Journal of Software 2021); Wang et al. (ICDE 2021).
The server relays what it cannot read::

    keys, secrets, agree     the silos agree on a secret that hashes words; the server never has it
    sum-keys … sum-unmask    a secure sum of document-frequency sketches (Section 3.3)
    publish                  every silo hands out a noisy sketch of each document, once              publish-once, plain
    ask, answer              hashed words among decoys (Algorithm 1), cells with noise (Algorithm 2)  per-query, paper
    receive                  a silo looks its query words up, and makes its rows
    scale                    common centre and spread of the features

Where sketches are published, queries stay at home altogether. Where questions are asked, an owner of documents sees
hashes and the number of words asked about; see :mod:`fedrank.texts.sketch.decoys` for what these give away, and
:mod:`fedrank.texts.sketch.noise` for what cells and sketches do.

All exchanges run on the host: text, keys and hashes. The steps are in :mod:`.agree` and :mod:`.exchange_sketches`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Int32
from typing_extensions import override

from fedrank.core.errors import ConfigError
from fedrank.core.privacy_report import PrivacyReport
from fedrank.core.protocol import Exchange, Party, Protocol
from fedrank.privacy.secure_sum.server import Server
from fedrank.texts.silo_sketch.setup.agree import Agree, Introduce, ShareSecret, SumStep
from fedrank.texts.silo_sketch.setup.exchange_sketches import Answer, Ask, Publish, Receive, SetScale
from fedrank.texts.silo_sketch.setup.rows import SiloTexts
from fedrank.texts.silo_sketch.setup.settings import SetupSettings, SetupState


@dataclass(frozen=True)
class SketchSetup(SetupSettings, Protocol):
    """The setup with its settings; one round of exchanges, run once before training."""

    name = "silo-sketch-setup"

    @cached_property
    @override
    def exchanges(self) -> tuple[Exchange, ...]:
        show = (Ask(self), Answer(self)) if self.asks else (Publish(self),)
        scale = (SetScale(self),) if self.rows.scale == "federation" else ()
        return (
            Introduce(self),
            ShareSecret(self),
            Agree(self),
            *(SumStep(self, step) for step in range(4)),
            *show,
            Receive(self),
            *scale,
        )

    @override
    def init(self, key: Any) -> SetupState:
        del key  # the name of the secure sum comes from the operating system
        return SetupState(self.silos, {}, (Server(self.terms), {}))

    @override
    def weights(self, state: SetupState) -> Int32[np.ndarray, " totals"] | None:
        return state.totals  # there is no model

    @override
    def account(self, rounds: int, delta: float) -> PrivacyReport:
        del rounds, delta
        return self.promise

    def parties(self, texts: list[SiloTexts]) -> list[Party]:
        """One party for each silo. A party's own state is a dictionary of arrays by name.

        Args:
            texts: Documents and queries of each silo, in order.

        Raises:
            ConfigError: The texts do not fit what was agreed.
        """
        if len(texts) != self.silos:
            raise ConfigError(f"the setup is made for {self.silos} silos, got the texts of {len(texts)}.")
        return [self.party(one, number) for number, one in enumerate(texts)]

    def party(self, texts: SiloTexts, number: int) -> Party:
        """The party of one silo.

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
