"""What `npm pack` packs: the code, which it builds first."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))

from js_sdk import SDK, built


@pytest.mark.minutes
def test_a_package_from_a_clone_has_the_code_its_types_and_its_licence(tmp_path):
    built()
    if shutil.which("npm") is None:
        pytest.skip("npm is not on the PATH")
    clone = tmp_path / "js"
    shutil.copytree(SDK, clone, ignore=shutil.ignore_patterns("node_modules", "build", "dist"))
    (clone / "node_modules").symlink_to(SDK / "node_modules")
    told = subprocess.run(["npm", "pack", "--json", "--dry-run"], cwd=clone, capture_output=True, text=True, check=True)
    (packed,) = json.loads(told.stdout[told.stdout.index("[\n") :])
    files = {one["path"]: one["size"] for one in packed["files"]}
    assert {"LICENSE", "README.md", "package.json", "dist/types/index.d.ts"} <= files.keys()
    assert files["dist/fedrank-device.js"] == (clone / "dist" / "fedrank-device.js").stat().st_size > 10_000
    about = json.loads((clone / "package.json").read_text())
    assert {path.removeprefix("./") for entry in about["exports"].values() for path in entry.values()} <= files.keys()
