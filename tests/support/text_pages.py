"""Pages of silos with texts, as tests read them."""

import json
import re
from html.parser import HTMLParser

import pytest
from text_run_factory import make_text_run

from fedrank.report.load import load
from fedrank.report.page import html_of, write_page


class Page(HTMLParser):
    """Tags, classes, and the text outside of figures."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.said, self.classes, self._within = [], [], [], 0
        self.feed(text)
        self.words = re.sub(r"\s+", " ", " ".join(self.said))

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.classes += (dict(attrs).get("class") or "").split()
        self._within += tag in ("svg", "style")

    def handle_endtag(self, tag):
        self._within -= tag in ("svg", "style")

    def handle_data(self, data):
        if not self._within:
            self.said.append(data)


@pytest.fixture(scope="module")
def one(tmp_path_factory):
    folder = make_text_run(tmp_path_factory.mktemp("texts") / "one <b>", names=("a <i>", "b"))
    text = write_page(folder).read_text(encoding="utf-8")
    return load(folder), text, Page(text)


def page_of(folder):
    """What the page says, without drawing its figures."""
    return Page(html_of(load(folder), {}))


def changed(folder, name, change):
    file = folder / name
    value = json.loads(file.read_text())
    change(value)
    file.write_text(json.dumps(value))


# -- what a reader gets ----------------------------------------------------------------------------------------------


def about(said, begins):
    (line,) = [line for line in said if line.startswith(begins)]
    return line
