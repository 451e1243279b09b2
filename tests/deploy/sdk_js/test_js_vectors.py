"""The JavaScript SDK computes what the reference device computes, and stays small."""

import gzip
import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))
DOCS = Path(__file__).resolve().parents[3] / "docs"
sys.path[:0] = [str(DOCS / "reference"), str(DOCS / "explanation")]

import wire_vectors  # noqa: E402 - beside the page, not in the package
from js_sdk import LONGEST, SDK, built  # noqa: E402

pytestmark = pytest.mark.slow

#: As of `sdk/js/build.mjs`, which says what the last bytes are for.
LARGEST_BUNDLE = 21_550


def node_tests(*files, **environment):
    """Run tests of the SDK under Node; what they said."""
    done = subprocess.run(
        ["node", "--test", "--test-reporter=tap", *files],
        cwd=SDK,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=LONGEST,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_bundle_is_small_and_needs_nothing():
    built()
    texts = {path.name: path.read_bytes() for path in (SDK / "dist").glob("*.js")}
    assert texts.keys() == {"attest.js", "fedrank-device.js", "fedrank-device.iife.js"}
    assert len(gzip.compress(texts["fedrank-device.js"], 9)) <= LARGEST_BUNDLE
    assert texts["fedrank-device.iife.js"].startswith(b"var fedrank=")
    for text in texts.values():  # a service worker may load nothing later
        part = text.replace(b"importKey", b"")
        assert b"import" not in part and b"require(" not in part and b"eval" not in part
    package = json.loads((SDK / "package.json").read_text())
    assert "dependencies" not in package and set(package["devDependencies"]) == {"esbuild", "terser", "typescript"}
    assert all(version[0].isdigit() for version in package["devDependencies"].values())


def test_the_modules_give_the_published_vectors_and_behave_with_a_hub_that_does_not():
    built()
    said = node_tests("tests/")
    rounds = len(wire_vectors.ROUNDS)
    assert said.count(" - a round: ") >= rounds and "# fail 0" in said and "# skipped 0" in said


def drawn(dice: random.Random) -> dict:
    """Terms of a hub, drawn at random among those that fulfil section 1 of the wire format."""
    depth = dice.randint(2, 10)
    terms = {
        "n_features": dice.randint(2, 40),
        "reward": dice.choice(("MaxRR", "MeanRR")),
        "reward_values": dice.choice((None, 2, 5)),
        "depth": depth,
        "interactions": 2 * dice.randint(1, 3),
        "sigma": dice.choice((0.5, 1.0, 2.0)),
    }
    if dice.random() < 0.3:
        terms |= {"ranker": "mlp", "hidden": dice.randint(1, 4)}
    if dice.random() < 0.6:
        window = 2 ** dice.randint(0, 6), 2 ** dice.randint(0, 7)
        more = {"clip": dice.uniform(1e-6, 1), "interleaved": dice.random() < 0.7}
        return {**terms, **wire_vectors.one_number(dice.uniform(0.001, 16), *window, **more)}
    return {**terms, "p": dice.uniform(0.5, 1)}


def test_the_modules_give_what_the_reference_gives_in_rounds_that_nobody_has_seen(tmp_path):
    seed = random.SystemRandom().randrange(2**32)
    dice = random.Random(seed)
    rounds = []
    for number in range(60):
        words = [dice.randrange(2**32) for _ in range(3)]
        terms = drawn(dice)
        noise = words if terms.get("mechanism") == "piecewise" else []
        rounds.append(
            wire_vectors.one_round(number, f"{seed}, {number}", terms, dice.randrange(2**32), dice.randint(1, 8), noise)
        )
    file = tmp_path / "vectors.json"
    file.write_text(json.dumps({"rewards": [], "responses": [], "rounds": rounds}))
    built()
    said = node_tests("tests/vectors.test.mjs", FEDRANK_WIRE_VECTORS=str(file))
    assert said.count(" - a round: ") >= 60
