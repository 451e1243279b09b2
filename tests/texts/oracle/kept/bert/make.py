"""Made the files beside it: a tiny BERT with random weights, and what Transformers 4.46.3 and Flax make of texts.

python make.py FOLDER        # needs transformers==4.46.3, flax<0.11, tokenizers, safetensors
"""

import json
import sys
from pathlib import Path

import jax
import numpy as np
from flax.traverse_util import flatten_dict, unflatten_dict
from safetensors.numpy import save_file
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import BertConfig, FlaxBertModel

WORDS = [
    "[PAD]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    "the",
    "wing",
    "of",
    "a",
    "slender",
    "body",
    "in",
    "flow",
    "##s",
    "##ing",
    "heat",
]
TEXTS = ["the wing", "heating of a slender body in the flow", "wings", "", "unknown words flows " + "the " * 200]
#: Name of an array in Flax → in PyTorch's files.
NAMES = {"kernel": "weight", "scale": "weight", "embedding": "weight", "bias": "bias"}


def main(folder: Path) -> None:
    jax.config.update("jax_default_matmul_precision", "highest")
    tokens = Tokenizer(models.WordPiece({word: number for number, word in enumerate(WORDS)}, unk_token="[UNK]"))
    tokens.normalizer, tokens.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    ends = [("[CLS]", 2), ("[SEP]", 3)]
    tokens.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=ends)
    tokens.save(str(folder / "tokenizer.json"))
    config = BertConfig(
        vocab_size=len(WORDS),
        hidden_size=8,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=12,
        max_position_embeddings=130,
        hidden_act="gelu",
        layer_norm_eps=1e-12,
    )
    model, rng = FlaxBertModel(config, seed=3), np.random.default_rng(0)
    arrays = {
        name: np.asarray(rng.normal(0, 0.5, array.shape) + (name[-1] == "scale"), np.float32)
        for name, array in sorted(flatten_dict(model.params).items())
    }
    model.params = unflatten_dict(arrays)
    kept = {
        ".".join((*name[:-1], NAMES[name[-1]])): np.ascontiguousarray(array.T if name[-1] == "kernel" else array)
        for name, array in arrays.items()
        if name[0] != "pooler"
    }
    save_file(kept, folder / "model.safetensors")
    said = ("model_type", "hidden_act", "num_hidden_layers", "num_attention_heads", "layer_norm_eps", "hidden_size")
    (folder / "config.json").write_text(json.dumps({name: getattr(config, name) for name in said}))
    tokens.enable_truncation(128)
    vectors = []
    for text in TEXTS:
        ids = np.array([tokens.encode(text).ids])
        last = model(input_ids=ids, attention_mask=np.ones_like(ids)).last_hidden_state
        mean = np.asarray(last, np.float64)[0].mean(axis=0)
        vectors.append((mean / np.linalg.norm(mean)).tolist())
    (folder / "expected.json").write_text(json.dumps({"texts": TEXTS, "vectors": vectors}, indent=1))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
