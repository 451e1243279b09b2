"""Compose file, proxy, alerts and board: parsed by the programs they are for, and held to the hub's metrics."""

import json
import re
import shutil
import subprocess

import pytest
import yaml
from hub_fakes import FakeHub
from releases import ROOT

from fedrank.cli.main import app
from fedrank.deploy.http.client import HttpClient
from fedrank.deploy.http.guard import Guard
from fedrank.deploy.hub.attestation import MOST_STATEMENT
from fedrank.deploy.hub.tally import Counters
from fedrank.deploy.log.note import LOG, Key, Signer
from fedrank.deploy.oblivious.encapsulation import REQUEST_LENGTH, REQUEST_OVERHEAD

COMPOSE = ROOT / "docker" / "compose"
SERVICES = yaml.safe_load((COMPOSE / "compose.yml").read_text())["services"]
OURS = [name for name, service in SERVICES.items() if service["image"].startswith("fedrank")]

OVER = yaml.safe_load((COMPOSE / "postgres.yml").read_text())["services"]


def needs(program):
    return pytest.mark.skipif(shutil.which(program) is None, reason=f"{program} is not installed")


def run(*command, **options):
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, **options)


def metrics():
    """Names in /metrics, as Prometheus stores them."""
    applied = {"seconds": 1.0, "reward": 0.5}
    counters = Counters(lambda: {**FakeHub().status(), "history": [applied]})
    counters.refuse("report", "malformed")
    text = counters.text()[0].decode()
    return {line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")} | {
        re.split(r"[{ ]", line)[0] for line in text.splitlines() if line and line[0] != "#"
    }


def expressions():
    """Expressions of the board and of the alerts, by title."""
    board = json.loads((COMPOSE / "grafana" / "fedrank.json").read_text())
    found = {f"{panel['title']} {t['refId']}": t["expr"] for panel in board["panels"] for t in panel["targets"]}
    (group,) = yaml.safe_load((COMPOSE / "alerts.yml").read_text())["groups"]
    return found | {rule["alert"]: rule["expr"] for rule in group["rules"]}


@pytest.mark.parametrize("title", expressions())
def test_board_and_alerts_ask_for_metrics_that_there_are(title):
    used = set(re.findall(r"\bfedrank_[a-z_]+", expressions()[title]))
    assert used or "up{" in expressions()[title]
    assert used <= metrics()


def test_the_board_has_a_provisioned_source_and_its_own_space_for_every_panel():
    board = json.loads((COMPOSE / "grafana" / "fedrank.json").read_text())
    (source,) = yaml.safe_load((COMPOSE / "grafana" / "datasource.yml").read_text())["datasources"]
    assert {panel["datasource"]["uid"] for panel in board["panels"]} == {source["uid"]}
    cells = [
        (x, y)
        for panel in board["panels"]
        for x in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
        for y in range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"])
    ]
    assert len(set(cells)) == len(cells) and max(x for x, _ in cells) < 24
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])


def test_the_page_shows_the_alerts_that_ship():
    page = (ROOT / "docs" / "how-to" / "operate-a-hub.md").read_text()
    for file in ("alerts.yml", "nginx.conf"):
        assert f"```{{literalinclude}} ../../docker/compose/{file}\n" in page
    assert (ROOT / "docker" / "fedrank-hub.service").is_file() and "docker/fedrank-hub.service" in page


@needs("promtool")
def test_prometheus_takes_its_files():
    for what, file in (("config", "prometheus.yml"), ("rules", "alerts.yml")):
        done = run("promtool", "check", what, str(COMPOSE / file))
        assert done.returncode == 0, done.stdout + done.stderr


def test_a_proxy_lets_everything_through_that_a_hub_takes():
    (size,) = re.findall(r"client_max_body_size (\d+)k;", (COMPOSE / "nginx.conf").read_text())
    assert int(size) * 1024 >= max(MOST_STATEMENT, REQUEST_LENGTH + REQUEST_OVERHEAD, Guard().body_bytes)


@needs("nginx")
def test_nginx_takes_its_file(tmp_path):
    """The file as it is, but for the names of machines and places that are the containers'."""
    key = run("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
              "-keyout", "privkey.pem", "-out", "fullchain.pem", "-subj", "/CN=hub", cwd=tmp_path)  # fmt: skip
    assert key.returncode == 0, key.stderr
    text = (COMPOSE / "nginx.conf").read_text()
    text = text.replace("/tmp/", f"{tmp_path}/").replace("/run/secrets", str(tmp_path))
    text = text.replace("/run/nginx.pid", str(tmp_path / "pid")).replace("server hub:8750", "server 127.0.0.1:8750")
    (tmp_path / "nginx.conf").write_text(text)
    done = run("nginx", "-t", "-c", str(tmp_path / "nginx.conf"))
    assert done.returncode == 0, done.stderr


@needs("docker-compose")
def test_compose_takes_its_file(tmp_path):
    for more in ([], ["-f", str(COMPOSE / "postgres.yml")]):
        done = run("docker-compose", "-f", str(COMPOSE / "compose.yml"), *more, "config", "--quiet")
        assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_is_pinned_and_has_a_check_and_no_secret_in_sight(name):
    service = SERVICES[name]
    assert re.search(r":v?\d+\.\d+", service["image"])
    assert "healthcheck" in service or name in OURS  # ours have one in the image
    told = json.dumps([service.get("command"), service.get("environment")])
    assert not re.search(r"(?i)(password|token|secret)[^_F]{0,3}[:=]", told)
    if name in OURS:
        assert service["read_only"] and service["cap_drop"] == ["ALL"]


#: What an operator says where the file has no default.
SAID = {"FEDRANK_WITNESS_LOG": str(Signer("fedrank/" + "0" * 32, LOG, bytes(32)).key)}


def told(service):
    """A service's command line as the container's program gets it."""
    entry = service.get("entrypoint", ["fedrank", "hub", "serve", "/hub", "--host", "0.0.0.0"])
    words = [*entry, *service["command"]]
    return [re.sub(r"\$\{(\w+):-([^}]*)\}", lambda found: SAID.get(found[1], found[2]), word) for word in words]


@pytest.mark.parametrize("name", OURS)
def test_a_services_command_is_one_of_ours(name):
    """The command line's own parser takes it, and nothing of it is left over."""
    program, *tokens = told(SERVICES[name])
    _, bound, _ = app.parse_args(tokens, print_error=False, exit_on_error=False)
    given = bound.arguments | vars(bound.arguments["at"])
    assert program == "fedrank" and given["host"] == "0.0.0.0"
    if name in ("relay", "witness"):  # behind the proxy, as the hub
        port = str(given["port"])
        assert "ports" not in SERVICES[name] and f"{port}:{port}" in SERVICES["proxy"]["ports"]
        assert f"http://127.0.0.1:{port}/" in SERVICES[name]["healthcheck"]["test"][-1]
        assert f"http://{name}:{port};" in (COMPOSE / "nginx.conf").read_text()
    if name == "relay":
        HttpClient(given["hub"])
    if name == "witness":
        assert Key.parse(given["logs"][0], LOG) and all(map(HttpClient, given["peers"]))
        assert [f"witness:{given['folder']}"] == SERVICES[name]["volumes"]
        assert str(given["folder"]) in (ROOT / "docker" / "hub.Dockerfile").read_text()  # made for the user who writes


@pytest.mark.parametrize("name", ["hub", "hub-2"])
def test_processes_on_postgresql_are_the_hub_that_is_served_without(name):
    """The same settings, and a database; the second has what it needs of the first, and the same name for the proxy."""
    alone, more = SERVICES["hub"]["command"], OVER[name]["command"]
    assert alone[-2:] == ["--copy-to", "/copy"]  # a database has a standby for it
    assert more == [*alone[:-2], "--database", "postgresql://fedrank@database/fedrank"]
    _, bound, _ = app.parse_args(told({"command": more})[1:], print_error=False, exit_on_error=False)
    assert bound.arguments["settings"].database and OVER[name]["depends_on"]["database"]
    assert {"source": "database.password", "target": "/hub/database.password"} in OVER[name]["secrets"]
    if name == "hub-2":
        same = ("image", "restart", "read_only", "tmpfs", "cap_drop", "security_opt", "stop_grace_period", "logging")
        assert all(OVER[name][one] == SERVICES["hub"][one] for one in same)
        assert OVER[name]["networks"]["inside"]["aliases"] == ["hub"]
        assert all(file in OVER[name]["entrypoint"][-2] for file in ("*.token", "log.key", "gateway.key"))


def test_a_silos_container_opens_no_port_and_its_command_is_flowers():
    (service,) = yaml.safe_load((COMPOSE / "silo.yml").read_text())["services"].values()
    assert "ports" not in service and "expose" not in service and service["read_only"]
    assert service["cap_drop"] == ["ALL"] and re.search(r":\d+\.\d+", service["image"])
    flower = pytest.importorskip("flwr.supernode.cli.flower_supernode", reason="needs flwr: the extra flower")
    parsed = flower._parse_args_run_supernode().parse_args(service["command"])
    from flwr.common.config import parse_config_args

    table = parse_config_args([re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", parsed.node_config)])
    assert set(table) == {"silo", "data", "state-dir", "codebook-sha256"}
    files = {parsed.root_certificates, parsed.auth_supernode_private_key, parsed.ssl_certfile, parsed.ssl_keyfile}
    assert files == {f"/run/secrets/{name}" for name in service["secrets"]}
    assert f"silo:{table['state-dir']}" in service["volumes"]
    assert str(table["state-dir"]) in (ROOT / "docker" / "silo.Dockerfile").read_text()  # made for the user who writes
