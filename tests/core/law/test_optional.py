"""What an extra brings is loaded at its first use; where it is missing, one error names the extra."""

import subprocess
import sys

import pytest

from fedrank.core.errors import MissingExtraError
from fedrank.core.optional import OptionalModule, installed, require


def test_a_package_is_there_or_not():
    assert installed("json") and not installed("no_such_package")


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


#: Runs the command line as where these packages are not installed.
_WITHOUT = """
import importlib.util, sys
missing = set(sys.argv.pop(1).split(","))
find = importlib.util.find_spec
importlib.util.find_spec = lambda name, package=None: None if name in missing else find(name, package)

class Nothing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in missing:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Nothing())
from fedrank.cli.main import main
main()
"""


def without(packages, tmp_path, *arguments):
    command = [sys.executable, "-c", _WITHOUT, packages, *arguments]
    return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)


@pytest.mark.slow
def test_a_run_without_any_extra_ends_in_files_and_says_how_to_get_its_page(tmp_path):
    few = ["--clients", "5", "--rounds", "2", "--seeds", "1", "--out", "it"]
    done = without("numba,altair,vl_convert,bm25s,Stemmer", tmp_path, "run", "foltr-es", *few)
    assert done.returncode == 0, done.stderr
    assert {"metrics.parquet", "privacy.json", "weights"} <= {path.name for path in (tmp_path / "it").iterdir()}
    assert not (tmp_path / "it" / "report.html").exists()
    assert "fedrank[fast]" in done.stderr and "fedrank[report]" in done.stderr and "fedrank report it" in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "extra"),
    [
        (["run", "silo-sketch", "--rounds", "2", "--seeds", "1"], "texts"),
        (["run", "foltr-es", "--compute.kernels", "on", "--rounds", "2", "--seeds", "1"], "fast"),
    ],
)
def test_what_needs_an_extra_says_which(tmp_path, arguments, extra):
    done = without("numba,altair,vl_convert,bm25s,Stemmer", tmp_path, *arguments)
    assert done.returncode == 1 and f"fedrank[{extra}]" in done.stderr and "Traceback" not in done.stderr
