"""The distribution for devices: the modules of one source, NumPy only, and a round with a real hub."""

import ast
import json
import subprocess
import sys
import time
import zipfile

import pytest
from hubs import trial_settings
from releases import ROOT, Environment, build, chosen_python

from fedrank.deploy.hub.audit import replay_log
from fedrank.deploy.hub.folder import HubFolder

#: Largest installation, NumPy included, in megabytes without bytecode.
MOST_MEGABYTES = 60

_LOADED = """
import json, sys
import fedrank.deploy.device
import fedrank.deploy.oblivious.tokens  # where the terms ask for tokens
print(json.dumps({name: sys.modules[name].__file__ for name in sys.modules if name.partition(".")[0] == "fedrank"}))
"""

#: A device that takes part in one round: address of the hub, its token, folder of the device.
_DEVICE = """
import importlib.util, json, sys, time
from fedrank_device import Device

hub, token, folder = sys.argv[1:]
features = [[float(i == j) for j in range(5)] for i in range(5)]
end = time.monotonic() + 60
with Device(hub, token, folder, most_epsilon=20, most_search_epsilon=5, lifetime_epsilon=100) as device:
    while not any(row.outcome == "counted" for row in device.ledger()):
        assert time.monotonic() < end, (device.sync(), device.privacy())
        device.sync()
        if device.wants_clicks:
            ranking = device.rank(features)
            device.log_click(ranking, 0)
            device.finish(ranking)
        time.sleep(0.02)
    bytes_ = sum(row.bytes for row in device.ledger())
loaded = sorted({name.partition(".")[0] for name in sys.modules} - sys.stdlib_module_names)
print(json.dumps({"bytes": bytes_, "loaded": loaded, "jax": importlib.util.find_spec("jax") is not None}))
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    return build(ROOT / "device", tmp_path_factory.mktemp("device"))


@pytest.fixture(scope="module")
def sources(wheel):
    """The text of each module in the wheel, by name."""
    with zipfile.ZipFile(wheel) as packed:
        return {
            name.removesuffix(".py").removesuffix("/__init__").replace("/", "."): packed.read(name).decode()
            for name in packed.namelist()
            if name.endswith(".py")
        }


@pytest.mark.slow
def test_it_has_exactly_the_modules_that_a_device_loads(sources):
    done = subprocess.run([sys.executable, "-c", _LOADED], cwd=ROOT, capture_output=True, text=True, timeout=60)
    loaded = json.loads(done.stdout)
    assert set(sources) == {name.replace("fedrank", "fedrank_device", 1) for name in loaded}


def names_imported(text):
    """The modules that a module imports, those for type checkers too."""
    nodes = list(ast.walk(ast.parse(text)))
    return {node.module for node in nodes if isinstance(node, ast.ImportFrom)} | {
        alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names
    }


@pytest.mark.slow
def test_its_modules_differ_from_their_source_in_the_name_alone(sources):
    assert not {name for text in sources.values() for name in names_imported(text) if name.split(".")[0] == "fedrank"}
    for name, text in sources.items():
        if name == "fedrank_device":
            continue
        path = ROOT / "fedrank" / "/".join(name.split(".")[1:])
        source = (path / "__init__.py" if path.is_dir() else path.with_suffix(".py")).read_text(encoding="utf-8")
        assert text.replace("fedrank_device", "fedrank") == source


@pytest.mark.minutes
@pytest.mark.parametrize("which", ["oldest", "newest"])
def test_a_device_in_an_empty_environment_takes_part_in_a_round(wheel, which, tmp_path):
    version, python = chosen_python(which)
    table = ROOT / "dist" / "release" / f"device-python{version}"
    place = Environment(python, tmp_path / "device", table)
    assert place.install(str(wheel), "fedrank-device", "--no-compile") <= MOST_MEGABYTES
    home = HubFolder(tmp_path / "hub")
    settings = trial_settings(n_features=5, cohort=1, least=1, deadline=0.0, rounds=1)
    home.prepare(settings)
    serve = [sys.executable, "-m", "fedrank", "hub", "serve", str(home.path), "--port", "0"]
    hub = subprocess.Popen(serve, stdout=subprocess.DEVNULL)
    try:
        end = time.monotonic() + 60
        while not home.url_path("hub").exists():
            assert hub.poll() is None and time.monotonic() < end, "the hub did not start"
            time.sleep(0.05)
        device = [place.bin / "python", "-c", _DEVICE, home.url("hub"), home.token("enrolment"), "device"]
        done = subprocess.run(device, cwd=place.work, env=place.variables, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        said = json.loads(done.stdout)
        assert said["bytes"] == settings.terms().reply.nbytes
        assert {name for name in said["loaded"] if not name.startswith("_")} == {"fedrank_device", "numpy"}
        assert not said["jax"]
    finally:
        hub.terminate()
        stopped = hub.wait(30)
        place.remove()
    assert stopped == 0
    assert replay_log(home.path).reports == 1
