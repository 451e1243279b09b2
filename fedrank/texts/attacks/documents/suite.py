"""All attacks on the documents of a collection."""

from __future__ import annotations

import numpy as np

from fedrank.data import load
from fedrank.texts.attacks.documents.collection import holdings_of
from fedrank.texts.attacks.documents.served import attack_served
from fedrank.texts.attacks.documents.settings import DocumentAttack
from fedrank.texts.attacks.documents.sketches import attack_sketched
from fedrank.texts.attacks.world import Finding
from fedrank.texts.data.reader import TextReader


def attack_documents(collection: str, settings: DocumentAttack = DocumentAttack()) -> list[Finding]:  # noqa: B008 - frozen
    """Attack the sketches of documents and the search over them.

    Args:
        collection: Name of a collection of texts, or a folder.
        settings: What protects the documents, and how hard they are attacked.

    Returns:
        What was found: of sketches, of a served search's statistics, of its scores.

    Raises:
        DataError: The collection is too small.
    """
    # What one attack finds does not depend on the others.
    held = holdings_of(load(collection, TextReader()), settings.owners, np.random.default_rng((settings.seed, 0)))
    found = attack_sketched(held, settings, np.random.default_rng((settings.seed, 1)))
    return found + attack_served(held, settings, np.random.default_rng((settings.seed, 2)))
