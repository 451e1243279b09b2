"""The demo's server: the page, its documents and the hub under one address; what is not there is not found."""

import json
import re
import urllib.error
import urllib.request

import pytest

from fedrank.deploy.demo import FEATURES, demo_app, demo_settings, entries
from fedrank.deploy.device import Device
from fedrank.deploy.hub.folder import HubFolder
from fedrank_zoo.threaded_server import ThreadedServer


@pytest.fixture(scope="module")
def documents():
    return entries()


def test_documents_are_functions_and_classes_with_a_text(documents):
    names = [entry.name for entry in documents]
    assert len(names) == len(set(names)) > 1000 and names == sorted(names)
    by_name = {entry.name: entry for entry in documents}
    assert by_name["collections.OrderedDict"].kind == "class"
    assert by_name["statistics.median"].summary.startswith("Return the median")
    assert by_name["len"].kind == "function"
    assert all(entry.summary and len(entry.body) <= 700 for entry in documents)


def test_one_address_has_page_documents_and_hub(tmp_path):
    home = HubFolder(tmp_path / "hub")
    with ThreadedServer(demo_app(home)) as server:

        def get(path):
            with urllib.request.urlopen(server.url + path, timeout=20) as response:
                return response.read(), response.headers

        page, headers = get("/")
        assert headers["Content-Security-Policy"].startswith("default-src 'none'")
        for name in re.findall(rb'(?:src|href)="([\w.-]+)"', page):
            get("/" + name.decode())
        for name in ("search.js", "people.js", "visitors.js", "fedrank-device.js"):
            assert get("/" + name)[1]["Content-Type"].startswith("text/javascript")
        texts = [get(name)[0].replace(b"http://www.w3.org/2000/svg", b"") for name in ("/", "/page.css", "/page.js")]
        assert not any(b"http" in text for text in texts)
        assert len(json.loads(get("/documents.json")[0])) > 1000
        settings = json.loads(get("/demo.json")[0])
        assert settings["lies"] == 38  # 1 / (1 + e^0.5)
        for missing in ("/page.py", "/demo", "/x/", "/..%2f", "/v1/nothing"):
            with pytest.raises(urllib.error.HTTPError, match="404"):
                get(missing)
        device = Device(server.url, settings["enrolment"], tmp_path / "device", lifetime_epsilon=6.0)
        assert device.sync().state.name == "OK"
        ranking = device.rank([[0.5] * FEATURES, [0.1] * FEATURES])
        assert device.log_click(ranking, 0) and device.finish(ranking)
        assert device.sync().sent == 1
        device.close()


def test_a_life_has_the_budget_that_the_page_says():
    terms = demo_settings().terms()
    assert terms.epsilon_message == 0.5 and terms.participations == 12
