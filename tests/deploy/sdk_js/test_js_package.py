"""The package that ``npm pack`` makes in a clean clone, installed into an empty project."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))

from js_sdk import LONGEST, SDK, built

pytestmark = pytest.mark.minutes

#: A program that uses each entry of the package, as a module and as a script; the port is one that nothing listens on.
PROGRAM = """
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import vm from "node:vm";
import { Device, MemoryStore } from "fedrank-device";
import { webAuthn } from "fedrank-device/attest";
const device = new Device("http://localhost:9", "an-enrolment-token", { store: new MemoryStore(true), log() {} });
vm.runInThisContext(readFileSync(createRequire(import.meta.url).resolve("fedrank-device/iife"), "utf8"));
const script = Object.keys(globalThis.fedrank).sort();
console.log(JSON.stringify([(await device.sync()).state, typeof webAuthn("name"), script]));
process.exit(0);
"""
TYPED = """
import { Device, MemoryStore, type LedgerRow, type Synced } from "fedrank-device";
import { webAuthn } from "fedrank-device/attest";
const options = { mostEpsilon: 1, store: new MemoryStore(), attest: webAuthn("name") };
const device = new Device("https://hub.example.org", "a-token", options);
const { order, learning } = device.rank([[1, 2], Float32Array.of(1, 2)]);
const counts: boolean = device.logClick({ order, learning }, 0) && device.finish({ order, learning });
const told: Synced = await device.sync();
const rows: LedgerRow[] = await device.ledger();
const spent: number | null | undefined = (await device.privacy())?.epsilonTotal;
export { counts, told, rows, spent };
// @ts-expect-error: features are numbers
device.rank([["1"]]);
"""


def run(*command, folder):
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=LONGEST)
    assert done.returncode == 0, (done.stdout + done.stderr)[-2000:]
    return done.stdout


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """A project without other packages that the packed one is installed into."""
    built()
    if shutil.which("npm") is None:
        pytest.skip("npm is not on the PATH")
    folder = tmp_path_factory.mktemp("pack")
    clone, empty = folder / "clone", folder / "project"
    shutil.copytree(SDK, clone, ignore=shutil.ignore_patterns("node_modules", "build", "dist"))
    run("npm", "pack", "--pack-destination", str(folder), folder=clone)
    (packed,) = folder.glob("*.tgz")
    empty.mkdir()
    (empty / "package.json").write_text('{"private": true, "type": "module"}')
    run("npm", "install", "--offline", "--no-audit", "--no-fund", str(packed), folder=empty)
    return empty


def test_the_package_has_code_types_and_licence_and_nothing_else(project):
    package = project / "node_modules" / "fedrank-device"
    assert {path.name for path in package.iterdir()} == {"LICENSE", "README.md", "dist", "package.json"}
    assert (package / "dist" / "fedrank-device.js").read_bytes() == built().read_bytes()
    about = json.loads((package / "package.json").read_text())
    assert "private" not in about and "dependencies" not in about
    for entry in [about["main"], about["types"], *about["exports"].values()]:
        for path in entry.values() if isinstance(entry, dict) else [entry]:
            assert (package / path).is_file(), path


def test_a_program_in_an_empty_project_uses_it(project):
    (project / "program.js").write_text(PROGRAM)
    state, kind, script = json.loads(run("node", "program.js", folder=project))
    assert (state, kind) == ("OFFLINE", "function")
    assert script == ["ConfigError", "Device", "IndexedDbStore", "MemoryStore"]


@pytest.mark.parametrize("resolution", ["bundler", "nodenext"])
def test_its_types_say_what_it_has(project, resolution):
    (project / "page.ts").write_text(TYPED)
    options = {
        **dict.fromkeys(("strict", "noEmit", "exactOptionalPropertyTypes"), True),
        **{"module": "ES2022" if resolution == "bundler" else "nodenext", "target": "ES2022"},
        **{"moduleResolution": resolution, "types": []},
    }
    (project / "tsconfig.json").write_text(json.dumps({"compilerOptions": options, "files": ["page.ts"]}))
    run("node", str(SDK / "node_modules" / "typescript" / "bin" / "tsc"), "-p", ".", folder=project)
