"""The numbers of a hit, against counting by hand; and that they tell no word that its score does not tell."""

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from fedrank.texts.served.documents import Document
from fedrank.texts.served.envelopes import Tickets
from fedrank.texts.served.owner import NAMES, Owner, OwnerSettings, features_of


def test_numbers_are_what_counting_gives():
    by_field = np.array([[3.0, 1.0], [0.0, 0.0], [0.0, 2.0]])
    dense, title = features_of(by_field, np.array([0.123, -0.5, 1.0])).T
    np.testing.assert_allclose(dense, [0.12, -0.5, 1.0])
    np.testing.assert_allclose(title, [0.25, 0.0, 1.0])
    np.testing.assert_allclose(features_of(np.array([[2.0, 1.0]]), None), [[0.0, 0.33]])
    assert features_of(np.zeros((0, 2)), None).shape == (0, len(NAMES))


@pytest.mark.slow
@pytest.mark.parametrize("step", [0.1, 1.0, 5.0, 50.0])
def test_numbers_move_only_where_the_score_moves(tmp_path, step):
    """For 200 words, half of which are in the document: what is beside a score is the same where the score is."""
    pytest.importorskip("tantivy")
    from fedrank.texts.served.engines.tantivy import TantivyEngine

    rng = np.random.default_rng(3)
    words = [f"word{number}" for number in range(200)]
    there, engine = set(words[::2]), TantivyEngine(tmp_path / "index")
    try:
        others = [Document(str(n), "", " ".join(rng.choice(words, 30))) for n in range(40)]
        engine.add([Document("looked at", "swallows in spring", " ".join(sorted(there))), *others])
        settings = OwnerSettings(step=step)
        owner = Owner(engine, X25519PrivateKey.generate(), Tickets(bytes(32)), None, settings)

        def seen(query):
            return next(hit for hit in owner.search(query, 50, "a query as it is typed") if hit.id == "looked at")

        plain = seen(["swallow"])
        moved = {word for word in words if seen(["swallow", word]) != plain}
        assert moved == {word for word in words if seen(["swallow", word]).score != plain.score}
        assert moved <= there and (step > 1 or moved == there) and (step < 50 or not moved)
    finally:
        engine.close()
