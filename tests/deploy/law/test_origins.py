"""Pages of other origins: which may call a hub, what a browser is told, and that nothing is shared by default."""

import pytest
from app_worlds import app, hub  # noqa: F401
from hub_fakes import ADMIN, DEVICE, ENROLMENT, a_reply, ask
from hubs import trial_settings

from fedrank.core.errors import ConfigError
from fedrank.deploy.http.origins import Origins
from fedrank.deploy.hub.settings import read_settings
from fedrank.deploy.oblivious.relay import GatewayClient, RelayApp, RelaySettings
from fedrank.engine.settings import write_settings

SHOP = "https://shop.example"


def of(origin: str) -> dict:
    return {"headers": [(b"origin", origin.encode())]}


def preflight(app, path: str, origin: str, method: str = "POST"):
    named = [(b"origin", origin.encode()), (b"access-control-request-method", method.encode())]
    return ask(app, "OPTIONS", path, headers=named)


def shared(got) -> set[str]:
    return {name for name in got.headers if name.startswith("access-control-")}


@pytest.fixture
def open_app(app):
    app.origins = Origins([SHOP, "http://localhost:8080"])
    return app


def test_by_default_nothing_is_shared(app):
    assert preflight(app, "/v1/enrol", SHOP).code == 405
    assert not shared(ask(app, "GET", "/v1/model", DEVICE, **of(SHOP)))


@pytest.mark.parametrize("path", ["/v1/enrol", "/v1/model", "/v1/report/7", "/v1/device"])
def test_a_preflight_of_an_allowed_origin_is_answered_without_a_token(open_app, path):
    got = preflight(open_app, path, SHOP)
    assert (got.code, got.headers["access-control-allow-origin"], got.headers["vary"]) == (204, SHOP, "Origin")
    assert got.headers["access-control-allow-headers"] == "Authorization, Content-Type, If-None-Match"
    assert set(got.headers["access-control-allow-methods"].split(", ")) == {"GET", "POST", "DELETE"}
    assert "access-control-allow-credentials" not in got.headers


def test_answers_and_refusals_name_the_origin_and_expose_what_a_device_reads(open_app):
    for token, code in ((DEVICE, 200), ("a-wrong-token", 401)):
        got = ask(open_app, "GET", "/v1/model", token, **of(SHOP))
        assert (got.code, got.headers["access-control-allow-origin"]) == (code, SHOP)
        assert got.headers["access-control-expose-headers"] == "ETag, Fedrank-State, Retry-After"
    got = ask(open_app, "POST", "/v1/report/0", DEVICE, a_reply(), **of(SHOP))
    assert (got.code, got.headers["access-control-allow-origin"]) == (201, SHOP)
    assert ask(open_app, "POST", "/v1/enrol", ENROLMENT, **of(SHOP)).headers["access-control-allow-origin"] == SHOP


@pytest.mark.parametrize(
    "origin",
    [
        "https://shop.example.evil.example",
        "http://shop.example",
        "https://shop.example:444",
        "null",
        "*",
        "https://Shop.example",
    ],
)
def test_any_other_origin_is_told_nothing(open_app, origin):
    assert preflight(open_app, "/v1/enrol", origin).code == 405
    got = ask(open_app, "GET", "/v1/model", DEVICE, **of(origin))
    assert not shared(got) and got.headers["vary"] == "Origin"  # a cache keeps the answers apart


@pytest.mark.parametrize(
    "path", ["/v1/admin/close", "/v1/admin/device/1", "/v1/code", "/status", "/status.json", "/metrics"]
)
def test_operators_and_status_are_never_shared(open_app, path):
    assert preflight(open_app, path, SHOP).code == 405
    assert not shared(ask(open_app, "GET", path, ADMIN, **of(SHOP)))


def test_two_origins_in_one_request_are_no_origin(open_app):
    named = [(b"origin", SHOP.encode())] * 2 + [(b"access-control-request-method", b"POST")]
    assert ask(open_app, "OPTIONS", "/v1/enrol", headers=named).code == 405


def test_an_options_request_that_is_no_preflight_is_refused_as_before(open_app):
    assert ask(open_app, "OPTIONS", "/v1/enrol", **of(SHOP)).code == 405


def test_only_exact_origins_are_settings():
    for origin in [
        *("*", "null", "", "shop.example", "https://shop.example/", "https://Shop.example", "https://*.example"),
        *("ftp://a", "https://shop.example:443", "http://a:80", "https://a b", "https://shop.example\n"),
    ]:
        with pytest.raises(ConfigError, match="origins must be exact"):
            trial_settings(n_features=2, origins=(origin,))


def test_origins_are_kept_in_the_settings_file(tmp_path):
    settings = trial_settings(n_features=2, origins=(SHOP, "http://[::1]:8080"))
    write_settings(tmp_path / "hub.toml", settings, "A hub.")
    assert read_settings(tmp_path / "hub.toml").origins == settings.origins


def test_a_relay_lets_pages_of_its_origins_send():
    gateway = GatewayClient("http://127.0.0.1:9")  # nothing is passed on
    relay = RelayApp(gateway, bytes(41), RelaySettings(batch=1, origins=(SHOP,)))
    for path, method in (("/report", "POST"), ("/others", "POST"), ("/", "GET")):
        got = preflight(relay, path, SHOP, method)
        assert (got.code, got.headers["access-control-allow-origin"]) == (204, SHOP)
        assert "access-control-allow-origin" not in preflight(relay, path, "https://other.example", method).headers
    assert ask(relay, "GET", "/", **of(SHOP)).headers["access-control-allow-origin"] == SHOP
    with pytest.raises(ConfigError, match="exact"):
        RelaySettings(origins=("*",))
