"""What an extra brings is loaded at its first use; where it is missing, one error names the extra."""

import json
import re
import sys
import tomllib
from pathlib import Path

import pytest
from blocked import OPTIONAL, call_without, run_without

from fedrank.core.errors import MissingExtraError
from fedrank.core.lazy import OptionalModule, is_installed, require

ROOT = Path(__file__).resolve().parents[3]


def test_a_package_is_there_or_not():
    assert is_installed("json") and not is_installed("no_such_package")


def test_what_is_missing_is_named_with_its_extra():
    with pytest.raises(MissingExtraError, match=r"A figure needs no_such_package.*fedrank\[report\]"):
        require("report", "A figure", "json", "no_such_package")
    require("report", "A figure", "json")


def test_a_module_is_loaded_at_its_first_use():
    module = OptionalModule("colorsys", "report", "A figure")
    sys.modules.pop("colorsys", None)
    assert not hasattr(module, "__wrapped__") and "colorsys" not in sys.modules
    assert module.rgb_to_yiq(0, 0, 0) == (0, 0, 0)
    with pytest.raises(MissingExtraError, match="no_such_package"):
        _ = OptionalModule("no_such_package", "report", "A figure").Chart


#: Imports every module of fedrank where these packages are not installed, and prints what fails, and how.
_IMPORT_ALL = """
import importlib, json, pkgutil
import fedrank
failed = {}
for found in pkgutil.walk_packages(fedrank.__path__, "fedrank.", onerror=lambda name: None):
    if not found.name.endswith("__main__"):
        try:
            importlib.import_module(found.name)
        except ImportError as error:
            failed[found.name] = type(error).__name__
print(json.dumps(failed))
"""

EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]


@pytest.mark.slow
def test_every_module_is_imported_without_extras_or_says_which_it_needs(tmp_path):
    done = run_without(OPTIONAL, ROOT, program=_IMPORT_ALL)
    assert done.returncode == 0, done.stderr
    assert set(json.loads(done.stdout).values()) <= {"MissingExtraError"}


def test_the_extras_that_errors_name_are_there_and_on_the_page():
    asked = re.compile(r"(?:MissingExtraError\(\s*[^,]+,|require\(|OptionalModule\(\s*[^,]+,)\s*\"([\w-]+)\"")
    named = {name for path in (ROOT / "fedrank").rglob("*.py") for name in asked.findall(path.read_text("utf-8"))}
    assert {"jax", "sklearn", "png", "texts", "serve"} <= named <= set(EXTRAS)
    page = (ROOT / "docs" / "how-to" / "install.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^\| `([\w-]+)` \|", page, flags=re.MULTILINE)) == set(EXTRAS) - {"dev", "docs", "tests"}


#: The least run of each wing's recommended protocol.
_SMALL = {
    "foltr-es": ["--clients", "5", "--rounds", "2"],
    "foltr-pdgd": ["--clients", "5", "--rounds", "2"],
    "bandit-fedavg": ["--rounds", "1"],
    "planned-slates": ["--rounds", "24", "--world.time-budget", "16", "--slates.explorers", "2"],
}


@pytest.mark.slow
def test_each_wings_recommended_protocol_runs_without_any_extra(tmp_path):
    (tmp_path / "letor.txt").write_text("1 qid:1 1:0.5 3:1 # docid = a\n0 qid:1 2:0.25\n", encoding="utf-8")
    commands = [["run", name, *few, "--seeds", "1", "--out", name] for name, few in _SMALL.items()] + [
        ["protocols"],
        ["data", "list"],
        ["evaluate", "foltr-es", "generated"],
        ["data", "check", "letor.txt"],
        ["rank", "foltr-pdgd", "generated", "--out", "ranked.txt"],
        ["export", "foltr-es", "ranker.safetensors"],
        ["privacy", "overview", "foltr-es", "bandit-fedavg"],
        ["audit", "randomised-response", "--trials", "2000"],
        ["compare", "foltr-es", "foltr-pdgd"],
    ]
    for words, (status, said) in zip(commands, call_without(OPTIONAL, tmp_path, commands), strict=True):
        assert status == 0, (words, said)
    for name in _SMALL:
        written = {path.name for path in (tmp_path / name).iterdir()}
        assert {"metrics.parquet", "privacy.json", "ledger.jsonl", "weights"} <= written
        assert json.loads((tmp_path / name / "environment.json").read_text(encoding="utf-8"))["jax"] is None
        assert "<svg" in (tmp_path / name / "report.html").read_text(encoding="utf-8")
        assert {path.suffix for path in (tmp_path / name / "figures").iterdir()} == {".svg"}


@pytest.mark.slow
def test_what_needs_an_extra_says_which(tmp_path):
    run = ["run", "--seeds", "1", "--out", "it"]
    for packages, asked in {
        "bm25s Stemmer": [([*run, "silo-sketch", "--rounds", "2"], "texts")],
        "jax optax": [
            ([*run, "silo-sketch", "--rounds", "2"], "jax"),
            ([*run, "vertical-slate"], "jax"),
            ([*run, "foltr-es", "--compute.backend", "jax"], "jax"),
        ],
        "sklearn": [
            ([*run, "foltr-es", "--share", "topic", "--clients", "20"], "sklearn"),
            (["privacy", "attack", "links"], "sklearn"),
        ],
    }.items():
        done = call_without(packages, tmp_path, [words for words, _ in asked])
        for (words, extra), (status, said) in zip(asked, done, strict=True):
            assert status == 1 and f"fedrank[{extra}]" in said and "Traceback" not in said, (words, said)
            assert not (tmp_path / "it").exists()
