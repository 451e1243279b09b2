"""The encoder against Transformers' BERT, whose numbers ``kept/bert/make.py`` wrote down; and files that are none."""

import json
import shutil
import time
from pathlib import Path

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from fedrank.core.errors import ConfigError
from fedrank.texts.served.documents import Document
from fedrank.texts.served.encoder import _STATIC as STATIC_FILES
from fedrank.texts.served.encoder import Encoder, StaticEncoder
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


class RandomEncoder(Encoder):
    """A direction by chance for each text."""

    def __init__(self):
        self.size, self.digest = 8, "0" * 16

    def encode(self, texts):
        draws = [np.random.default_rng(list(text.encode())).normal(size=self.size) for text in texts]
        return np.array([draw / np.linalg.norm(draw) for draw in draws], np.float32).reshape(-1, self.size)


def make_owner(engine, encoder):
    return Owner(engine, X25519PrivateKey.generate(), Tickets(b"k" * 32), None, OwnerSettings(), encoder=encoder)


def test_an_index_without_vectors_gives_the_cosines_of_one_with_them(tmp_path, monkeypatch):
    """Encoded on the way to an answer or when added: the same to the rounding of both; and once for many queries."""
    encoder, encoded = RandomEncoder(), []
    documents = [
        Document(str(number), title, body)
        for number, (title, body) in enumerate(
            [("Wings", "the heat of a wing"), ("", "wing in the flow"), ("Heat", "wing wing heat of the flow")]
        )
    ]
    found = []
    for name, kept in (("with", encoder), ("without", None)):
        engine = TantivyEngine(tmp_path / name, kept)
        engine.add(documents)
        owner = make_owner(engine, encoder)
        found.append({hit.id: hit.features[0] for hit in owner.search(["wing", "heat"], 5, "heat of a wing")})
    assert len(found[0]) == 3 and len({*found[0].values()}) == 3
    assert all(abs(found[0][id] - found[1][id]) <= 0.01 for id in found[0])
    encode = encoder.encode
    monkeypatch.setattr(encoder, "encode", lambda texts: encoded.extend(texts) or encode(texts))
    again = {hit.id: hit.features[0] for hit in owner.search(["wing", "heat"], 5, "heat of a wing")}
    assert again == found[1] and not encoded
    # After an hour nothing is left of texts that an engine may have lost.
    later = time.monotonic() + 3601
    with monkeypatch.context() as patched:
        patched.setattr("fedrank.texts.served.owner.time.monotonic", lambda: later)
        owner.search(["wing", "heat"], 5, "heat of a wing")
    assert len(encoded) == 3
    encoded.clear()
    # Where there is no time left, the cosine is what those that are known let expect: of two, the line through both.
    owner._made.pop(next(reversed(owner._made)))
    monkeypatch.setattr("fedrank.texts.served.owner._ENCODING", -1.0)
    numbers = [hit.features[0] for hit in owner.search(["wing", "heat"], 5, "heat of a wing")]
    exact = [found[1][hit.id] for hit in owner.search(["wing", "heat"], 5, "heat of a wing")]
    assert numbers[:2] == exact[:2] and not encoded
    assert abs(numbers[2] - np.clip(2 * numbers[1] - numbers[0], -1, 1)) <= 0.021


def test_a_static_encoder_is_the_mean_of_token_vectors(tmp_path, monkeypatch):
    from safetensors.numpy import save_file
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = {"[UNK]": 0, "heat": 1, "of": 2, "a": 3, "wing": 4}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    for part in ("weights", "tokenizers"):
        (tmp_path / "wordllama" / part).mkdir(parents=True)
    (tmp_path / "wordllama" / "__init__.py").touch()
    weights, tokens = (tmp_path / "wordllama" / path for path in STATIC_FILES)
    vectors = np.random.default_rng(1).normal(size=(5, 3)).astype(np.float16)
    save_file({"embedding.weight": vectors}, weights)
    tokenizer.save(str(tokens))
    monkeypatch.syspath_prepend(tmp_path)
    encoder = StaticEncoder()
    got = encoder.encode(["heat of a wing", "wing", "", "heat " * 2000 + "wing", "HEAT OF A WING"])
    assert np.array_equal(got[4], got[0])  # of capitals the tokens would be others
    mean = vectors.astype(np.float64)[[1, 2, 3, 4]].mean(axis=0)
    np.testing.assert_allclose(got[0], mean / np.linalg.norm(mean), atol=1e-6)
    assert encoder.size == 3 and not got[2].any()
    np.testing.assert_allclose(got[3], vectors[1] / np.linalg.norm(vectors[1].astype(np.float64)), atol=1e-3)
    tokens.write_text("{}")
    with pytest.raises(ConfigError, match="wordllama"):
        StaticEncoder()
