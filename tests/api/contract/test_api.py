"""What ``import fedrank`` offers: names, a trained model in a few lines, results, and errors that say what to do."""

import ast
import dataclasses
import gc
import importlib
import subprocess
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from short_settings import run_of

import fedrank
from fedrank.api.training import nest_settings
from fedrank.core.errors import ConfigError, ModelError, RunError, UnknownNameError

FEATURES, QUERIES, DOCUMENTS = 5, 12, 4


def letor(seed, scale=1.0):
    """Arrays of queries whose label is the first feature, rounded."""
    rng = np.random.default_rng(seed)
    features = rng.random((QUERIES * DOCUMENTS, FEATURES)).astype(np.float32)
    labels = np.round(2 * features[:, 0]).astype(int)
    return features * scale, labels, np.repeat(np.arange(QUERIES), DOCUMENTS)


TINY = {"clients": 8, "interactions": 2, "rounds": 3, "evaluation__baselines": ()}


@pytest.fixture(scope="module")
def result():
    return fedrank.train("foltr-es", letor(0), seeds=3, **TINY)


def test_every_public_name_is_there_and_the_stub_says_the_same():
    stub = ast.parse(Path(fedrank.__file__).with_suffix(".pyi").read_text(encoding="utf-8"))
    names = {
        a.asname or a.name: (n.module, a.name) for n in stub.body if isinstance(n, ast.ImportFrom) for a in n.names
    }
    assert set(names) | {"__version__"} == set(fedrank.__all__) == set(dir(fedrank))
    for name, (module, attribute) in names.items():
        assert getattr(fedrank, name) is getattr(importlib.import_module(module), attribute)
    with pytest.raises(AttributeError, match="nothing"):
        _ = fedrank.nothing


def test_importing_it_imports_nothing_heavy():
    heavy = "jax numpy arro3 sklearn resvg_py cyclopts"
    code = f"import sys, fedrank; dir(fedrank); print([m for m in {heavy.split()} if m in sys.modules])"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert shown.strip() == "[]"


def test_a_result_has_numbers_ledger_privacy_and_models(result):
    assert result.seeds == [0, 1, 2]
    frame = pl.DataFrame(result.metrics)
    assert set(frame["round"]) >= {0, 3}
    mean = frame.filter(
        pl.col("round") == 3, pl.col("split") == "train", pl.col("measure") == "nDCG(dcg='exp-log2')@10"
    )["value"].mean()
    final = pl.DataFrame(result.final).filter(
        pl.col("split") == "train", pl.col("measure") == "nDCG(dcg='exp-log2')@10"
    )
    assert final["learnt"].item() == pytest.approx(mean) and final["learnt ±"].item() > 0
    assert {entry.bytes_each for entry in result.ledger if entry.sender == "parties"} == {6}
    assert result.privacy.epsilon_round > 0 and result.privacy.not_covered
    assert result.model().about["seed"] == 0 and result.model(1).about["seed"] == 1
    assert not np.array_equal(result.model(0).weights, result.model(1).weights)


def test_a_model_scores_ranks_and_is_measured_as_its_run_was(result):
    features, labels, qid = letor(0)
    model = result.model()
    found = model.evaluate((features, labels, qid))["train"]
    kept = result.metrics.where(round=3, seed=0, split="train")
    for measure, value in kept.select(("measure", "value")).tuples():
        if not measure.startswith("expected"):
            assert found[measure] == value  # to the last bit
    best = model.rank(features, qid).reshape(QUERIES, DOCUMENTS)
    scores = model.score(features, qid)
    for query, rows in enumerate(best):
        assert sorted(rows) == list(range(query * DOCUMENTS, (query + 1) * DOCUMENTS))
        assert np.all(np.diff(scores[rows]) <= 0)


def test_a_saved_model_scores_the_same_to_the_last_bit(result, tmp_path):
    model = result.model(1)
    again = fedrank.load(model.save(tmp_path / "model.safetensors"))
    features = letor(1)[0]
    np.testing.assert_array_equal(again.score(features), model.score(features))
    np.testing.assert_array_equal(fedrank.load(result.path, seed=1).score(features), model.score(features))
    assert again.about == model.about and again.privacy == result.privacy


def test_a_data_frame_trains_and_columns_are_found_by_name():
    features, labels, qid = letor(2, scale=100.0)  # outside [0, 1]: the model normalises within each query
    frame = pl.DataFrame({"qid": qid, "label": labels} | {f"x{i}": features[:, i] for i in range(FEATURES)})
    model = fedrank.train("foltr-es", frame, **TINY).model()
    assert model.feature_names == ("x0", "x1", "x2", "x3", "x4") and model.normalise == "query-minmax"
    shuffled = frame.select("x3", "x0", "qid", "x4", "x1", "x2")
    np.testing.assert_array_equal(model.score(shuffled, qid), model.score(features, qid))
    low, high = (f(features.reshape(QUERIES, DOCUMENTS, -1), axis=1, keepdims=True) for f in (np.min, np.max))
    scaled = (features.reshape(QUERIES, DOCUMENTS, -1) - low) / (high - low)
    np.testing.assert_allclose(
        model.score(features, qid), scaled.reshape(-1, FEATURES) @ model.weights, rtol=1e-5, atol=1e-6
    )
    with pytest.raises(fedrank.FedrankError, match="'x1'"):
        model.score(frame.drop("x1"), qid)


def test_a_temporary_folder_goes_with_its_result_and_a_saved_one_stays(tmp_path):
    result = fedrank.train("foltr-es", letor(0), **TINY)
    folder = result.path
    kept = result.save(tmp_path / "kept")
    assert folder.is_dir()
    del result
    gc.collect()
    assert not folder.exists()
    assert fedrank.Result(kept.path).seeds == [0]
    with pytest.raises(RunError, match="not empty"):
        kept.save(tmp_path / "kept")


def test_a_result_shows_itself_and_draws(result):
    markup = result._repr_html_()
    assert markup.startswith("<div") and "<svg" in markup and "<table" in markup and "var(--ink)" in markup
    assert "--ink:" in markup  # a notebook has no style sheet of ours
    assert result.plot().svg.startswith("<svg")


def test_settings_of_tables_are_found_by_their_last_name():
    assert nest_settings({"p": 0.5, "rounds": 3}, run_of("foltr-es")) == {"privacy": {"p": 0.5}, "rounds": 3}
    assert nest_settings({"privacy__p": 0.5}, run_of("foltr-es")) == {"privacy": {"p": 0.5}}
    assert nest_settings({"privacy": {"p": 0.5}, "delta": 0.1}, run_of("foltr-es")) == {
        "privacy": {"p": 0.5, "delta": 0.1}
    }
    of_rows = {"label": "ill", "target": "a"}
    assert nest_settings(of_rows, run_of("bandit-fedavg")) == {"silos": of_rows}


@dataclasses.dataclass(frozen=True)
class Inner:
    share: float = 0.0


@dataclasses.dataclass(frozen=True)
class Outer:
    attack: Inner = dataclasses.field(default_factory=Inner)
    other: Inner = dataclasses.field(default_factory=Inner)


def test_a_name_that_two_tables_have_is_refused_with_both():
    with pytest.raises(ConfigError, match=r"attack\.share or other\.share"):
        nest_settings({"share": 0.1}, Outer())


def test_what_is_misspelt_is_refused_before_anything_runs(tmp_path):
    with pytest.raises(UnknownNameError, match="roundz"):
        fedrank.train("foltr-es", letor(0), roundz=3, folder=tmp_path / "run")
    with pytest.raises(UnknownNameError, match="foltr-es"):
        fedrank.train("foltr", letor(0))
    assert not (tmp_path / "run").exists()


def test_what_is_no_model_is_refused_in_one_line(tmp_path):
    for make, words in [
        (lambda path: path / "nothing", "no such file"),
        (lambda path: path, "no run"),
        (lambda path: _written(path / "x.safetensors", b"not a model"), "safetensors"),
        (lambda path: _written(path / "hub.toml", b"").parent, "replay"),
    ]:
        with pytest.raises(ModelError, match=words) as caught:
            fedrank.load(make(tmp_path))
        assert "\n" not in str(caught.value)


def _written(path, content):
    path.write_bytes(content)
    return path


@pytest.mark.parametrize("cut", [4, 100, -1])
def test_a_cut_file_is_refused(result, tmp_path, cut):
    whole = result.model().save(tmp_path / "whole.safetensors").read_bytes()
    with pytest.raises(ModelError):
        fedrank.load(_written(tmp_path / "cut.safetensors", whole[:cut]))


def test_a_file_of_a_later_format_or_of_another_program_is_refused(result, tmp_path):
    from safetensors.numpy import save_file

    whole = result.model().save(tmp_path / "whole.safetensors").read_bytes()
    later = whole.replace(b'\\"format\\": 1', b'\\"format\\": 9')
    assert later != whole
    with pytest.raises(ModelError, match="format 9"):
        fedrank.load(_written(tmp_path / "later.safetensors", later))
    save_file({"weight": np.zeros(3, np.float32)}, tmp_path / "other.safetensors")
    with pytest.raises(ModelError, match="no description"):
        fedrank.load(tmp_path / "other.safetensors")


@pytest.mark.parametrize(
    ("features", "words"),
    [
        (np.zeros((3, FEATURES + 1)), f"{FEATURES}"),
        (np.zeros(FEATURES), "shape"),
        (np.full((2, FEATURES), np.nan), "finite"),
        (np.full((2, FEATURES), 1e300), "finite"),
        (np.full((2, FEATURES), "a"), "numbers"),
    ],
)
def test_features_that_do_not_fit_are_refused(result, features, words):
    with pytest.raises(fedrank.FedrankError, match=words):
        result.model().score(features)


def test_no_documents_have_no_scores(result):
    assert result.model().score(np.zeros((0, FEATURES))).shape == (0,)
    assert result.model().rank(np.zeros((0, FEATURES)), []).shape == (0,)


def test_a_models_last_bit_does_not_depend_on_what_is_scored_beside_it(result):
    rng = np.random.default_rng(5)
    features = rng.normal(size=(2500, FEATURES)).astype(np.float32)
    model = result.model()
    scores, order = model.score(features), rng.permutation(2500)
    np.testing.assert_array_equal(model.score(features[order]), scores[order])
    np.testing.assert_array_equal(np.concatenate([model.score(features[i : i + 1]) for i in range(20)]), scores[:20])
