"""The JavaScript SDK for tests: built once, and a hub in a process of its own."""

import contextlib
import fcntl
import http.client
import json
import select
import shutil
import signal
import subprocess
import sys
import time
import urllib.parse
from pathlib import Path

import pytest
from hubs import trial_settings

from fedrank.deploy.hub.folder import HubFolder

SDK = Path(__file__).resolve().parents[3] / "sdk" / "js"
BUNDLE = SDK / "dist" / "fedrank-device.js"
DRIVER = Path(__file__).resolve().parent / "devices.mjs"
LONGEST = 200.0


def built() -> Path:
    """The bundle, made anew where a source is newer; skips the test where that cannot be done."""
    if shutil.which("node") is None:
        pytest.skip("the JavaScript SDK needs Node.js: node is not on the PATH")
    for package in ("typescript", "esbuild", "terser"):
        if not (SDK / "node_modules" / package).is_dir():
            pytest.skip(f"the JavaScript SDK cannot be built: no {package}; run npm install in sdk/js")
    with open(SDK / "node_modules" / ".building", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # tests of several processes share the folder
        sources = [*SDK.glob("src/**/*.ts"), *SDK.glob("*.json"), SDK / "build.mjs"]
        newest = max(source.stat().st_mtime for source in sources)
        if not BUNDLE.exists() or BUNDLE.stat().st_mtime < newest:
            made = subprocess.run(["node", "build.mjs"], cwd=SDK, capture_output=True, text=True, timeout=LONGEST)
            assert made.returncode == 0, made.stdout + made.stderr
    return BUNDLE


@contextlib.contextmanager
def hub(folder: Path, **settings):
    """The folder of a hub that runs as a process on loopback; it is told to end, and ends well."""
    home = HubFolder(folder)
    home.prepare(trial_settings(**{"mechanism": "randomised-response", **settings}))
    process = subprocess.Popen(
        [sys.executable, "-m", "fedrank", "hub", "serve", str(home.path), "--port", "0"], stdout=subprocess.DEVNULL
    )
    try:
        end = time.monotonic() + LONGEST
        while not home.url_path("hub").exists():
            assert process.poll() is None and time.monotonic() < end, "the hub did not start"
            time.sleep(0.05)
        yield home
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()


@contextlib.contextmanager
def devices(bundle, url, enrolment, **options):
    """Called with numbers of devices: they search and report; of each its token and what was sent; see devices.mjs."""
    command = ["node", str(DRIVER), str(bundle), url, json.dumps(options)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def report(numbers):
        process.stdin.write(json.dumps(list(numbers)) + "\n")
        process.stdin.flush()
        assert select.select([process.stdout], [], [], LONGEST)[0], "the devices do not answer"
        line = process.stdout.readline()
        assert line, "the devices have ended"
        return json.loads(line)

    try:
        process.stdin.write(f"{enrolment}\n")
        yield report
        process.stdin.close()
        assert process.wait(30) == 0
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        process.stdout.close()


def asked(url: str, method: str, path: str, token: str, body: bytes | None = None):
    """Status, headers and body of an answer to a request that no SDK makes."""
    parts = urllib.parse.urlsplit(url)
    with contextlib.closing(http.client.HTTPConnection(parts.hostname, parts.port, timeout=20)) as connection:
        connection.request(method, path, body, {"Authorization": f"Bearer {token}"})
        answer = connection.getresponse()
        return answer.status, answer.headers, answer.read()
