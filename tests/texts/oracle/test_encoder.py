"""The encoder against Transformers' BERT, whose numbers ``kept/bert/make.py`` wrote down; and files that are none."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from fedrank.core.errors import ConfigError
from fedrank.texts.served.documents import Document
from fedrank.texts.served.encoder import Encoder
from fedrank.texts.served.engines.tantivy import TantivyEngine
from fedrank.texts.served.envelopes import Tickets
from fedrank.texts.served.owner import Owner, OwnerSettings

pytest.importorskip("tokenizers")

KEPT = Path(__file__).parent / "kept" / "bert"


def test_vectors_are_those_of_transformers():
    encoder, kept = Encoder(KEPT), json.loads((KEPT / "expected.json").read_text())
    got = encoder.encode(kept["texts"])
    np.testing.assert_allclose(got, kept["vectors"], atol=1e-6)
    assert encoder.size == 8 and len(encoder.digest) == 16
    # Whatever else is encoded at once: padding changes nothing.
    np.testing.assert_allclose(encoder.encode(kept["texts"][:1]), got[:1], atol=1e-6)
    assert encoder.encode([]).shape == (0, 8)


def test_what_is_no_encoder_is_refused(tmp_path):
    cases = [
        ("config.json", b"{"),
        ("config.json", b"{}"),
        ("config.json", b'{"model_type": "gpt2", "num_hidden_layers": 2, "num_attention_heads": 2}'),
        ("config.json", b'{"model_type": "bert", "num_hidden_layers": 3, "num_attention_heads": 2}'),
        ("config.json", b'{"model_type": "bert", "num_hidden_layers": 2, "num_attention_heads": 0}'),
        ("config.json", b"[]"),
        ("tokenizer.json", b"{}"),
        ("model.safetensors", b"nothing"),
        ("model.safetensors", None),
    ]
    for number, (file, content) in enumerate(cases):
        folder = tmp_path / f"case{number}"
        shutil.copytree(KEPT, folder)
        if content is None:
            (folder / file).unlink()
        else:
            (folder / file).write_bytes(content)
        with pytest.raises(ConfigError, match=f"case{number}"):  # which folder
            Encoder(folder)


def test_an_owner_gives_the_cosine_of_query_and_document(tmp_path):
    encoder = Encoder(KEPT)
    documents = [
        Document("1", "Wings", "the heat of a body"),
        Document("2", "", "wing in the flow"),
        Document("3", "Gardens", "roses"),
    ]
    engine = TantivyEngine(tmp_path / "index", encoder)
    engine.add(documents)
    key = X25519PrivateKey.generate()
    owner = Owner(engine, key, Tickets(bytes(32)), None, OwnerSettings(), None, encoder)
    hits = owner.search(["wing", "flow", "heat"], 5, "the wing flow")
    expected = encoder.encode(["the wing flow", *(f"{d.title}. {d.body}" for d in documents)])
    by_id = {hit.id: hit.features[0] for hit in hits}
    assert set(by_id) == {"1", "2"}
    for place, document in enumerate(documents[:2], 1):
        assert by_id[document.id] == pytest.approx(expected[0] @ expected[place], abs=0.006)
    assert {hit.features[0] for hit in owner.search(["wing"], 5)} == {0.0}  # no query as typed: no cosine
    engine.close()
    without = TantivyEngine(tmp_path / "index")  # made anew from its documents
    assert len(without) == 3 and without.candidates({"wing": 1.0}, 1)[0].vector is None
    without.close()
