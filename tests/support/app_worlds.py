"""What a hub answers over HTTP: each row of the protocol's table, each refusal, what is counted, what is kept quiet."""

import pytest
from hub_fakes import DEVICE, FakeHub, app_of, ask
from prometheus_client.parser import text_string_to_metric_families


@pytest.fixture
def hub():
    return FakeHub((DEVICE, "token-of-device-2"))


@pytest.fixture
def app(hub):
    return app_of(hub)


def metrics(app, token=None) -> dict[tuple[str, tuple[str, ...]], float]:
    """Samples by name and label values, in the order of the labels' names; as another program reads them."""
    got = ask(app, "GET", "/metrics", token)
    assert got.code == 200 and got.headers["content-type"].startswith("text/plain")
    families = text_string_to_metric_families(got.body.decode())
    return {(s.name, tuple(s.labels.values())): s.value for family in families for s in family.samples}
