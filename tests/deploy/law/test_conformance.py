"""Scenes for clients in other languages: a client that keeps to the format passes, careless ones are found."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from fedrank.core.errors import ConfigError, UnknownNameError

KIT = Path(__file__).resolve().parents[3] / "sdk" / "conformance"
sys.path.insert(0, str(KIT))
from scenes import SCENES, conformance  # noqa: E402 - of the kit

PYTHON = [sys.executable, str(KIT / "python_driver.py")]

#: A device of a few lines that keeps nothing, believes everything and never waits.
_CARELESS = """
import json, os, struct, time, urllib.error, urllib.request
hub, enrolment = os.environ["FEDRANK_HUB"], os.environ["FEDRANK_ENROLMENT"]

def ask(method, path, token, body=None, headers={}):
    request = urllib.request.Request(hub + path, body, {"Authorization": "Bearer " + token, **headers}, method=method)
    try:
        with urllib.request.urlopen(request, timeout=5) as answer:
            return answer.status, answer.read(), answer.headers
    except urllib.error.HTTPError as error:
        return error.code, error.read(), error.headers
    except OSError:
        return 0, b"", {}

end, tag, token, weights = time.monotonic() + float(os.environ["FEDRANK_SECONDS"]), None, None, None
while time.monotonic() < end:
    if token is None:
        token = json.loads(ask("POST", "/v1/enrol", enrolment)[1])["token"]
    status, model, headers = ask("GET", "/v1/model", token, headers={"If-None-Match": tag} if tag else {})
    if status == 401:
        token = None
        continue
    if status == 200 and len(model) >= 13:
        tag, weights = headers["ETag"], struct.unpack("<ff", model[5:13])
    if weights is not None:
        seed = time.monotonic_ns() % 2**32
        round_ = struct.unpack("<I", model[1:5])[0] if len(model) > 4 else 0
        ask("POST", f"/v1/report/{round_}", token, bytes([0x25]) + struct.pack("<I", seed) + b"\\x00")
    time.sleep(0.05)
scores = [weights[0] * a + weights[1] * b for a, b in ((1, 0), (0, 1), (1, 1))] if weights else [0, 0, 0]
print(json.dumps(sorted(range(3), key=lambda i: -scores[i])))
"""


def test_scenes_have_names_of_their_own_and_rules():
    assert len({scene.name for scene in SCENES}) == len(SCENES) and all(scene.rules for scene in SCENES)


def test_what_cannot_be_played_is_refused(tmp_path):
    with pytest.raises(UnknownNameError, match="scene"):
        list(conformance(PYTHON, ["no-such-scene"]))
    with pytest.raises(ConfigError, match="cannot be started"):
        list(conformance([str(tmp_path / "nothing")], ["weak-terms"]))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("program", "says"),
    [("import sys; sys.exit('no luck')", "status 1: no luck"), ("print('hello')", "last line")],
)
def test_a_driver_that_fails_is_said_to(program, says):
    (outcome,) = conformance([sys.executable, "-c", program], ["training-is-over"])
    assert any(says in sentence for sentence in outcome.wrong)


@pytest.mark.minutes
def test_the_python_device_keeps_to_the_format():
    outcomes = list(conformance(PYTHON))
    assert [one.name for one in outcomes] == [scene.name for scene in SCENES]
    assert not [one for one in outcomes if one.wrong]


@pytest.mark.minutes
def test_the_device_for_browsers_keeps_to_the_format():
    bundle = KIT.parent / "js" / "dist" / "fedrank-device.js"
    if shutil.which("node") is None or not bundle.exists():
        pytest.skip("needs Node.js and the built SDK: make sdk-js test-sdk-js")
    assert not [one for one in conformance(["node", str(KIT / "javascript_driver.mjs"), str(bundle)]) if one.wrong]


@pytest.mark.minutes
def test_a_careless_device_is_found():
    found = {one.name for one in conformance([sys.executable, "-c", _CARELESS]) if one.wrong}
    assert found >= {
        "a-report-is-lost", "the-token-is-unknown", "the-terms-change", "weak-terms", "a-life",
        "participations", "a-stale-round", "training-is-over", "come-back-later", "led-elsewhere", "another-version",
        "a-term-is-missing", "a-model-that-no-log-proves",
    }  # fmt: skip


@pytest.mark.minutes
def test_the_command_says_yes_and_no():
    def play(driver):
        command = [sys.executable, str(KIT / "scenes.py"), driver, "weak-terms"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        return done.returncode, done.stdout.splitlines()

    status, (line,) = play(" ".join(PYTHON))
    assert status == 0 and line.split()[:2] == ["yes", "weak-terms"]
    status, (line, why) = play(f"{sys.executable} -c 'print([0,1,2]); 1/0'")
    assert status == 1 and line.split()[:2] == ["no", "weak-terms"] and "ZeroDivisionError" in why
