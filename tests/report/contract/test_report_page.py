"""The page of a run: one file that opens offline, whatever the run was called and whatever it lacks."""

import base64
import hashlib
import html
import re
from dataclasses import replace
from html.parser import HTMLParser
from importlib import resources
from xml.etree import ElementTree

import polars as pl
import pytest
from report_factory import make_run

from fedrank.core.errors import RunError
from fedrank.engine.methods import method
from fedrank.report import sections, tables
from fedrank.report.claims import Named, Number, Opening, say
from fedrank.report.compare import (
    changed_settings,
    comparison_table,
    load_runs,
    pooled_words,
    refusals,
    refused_words,
    write_comparison,
)
from fedrank.report.describe import caveats
from fedrank.report.load import load
from fedrank.report.page import write_page


class Page(HTMLParser):
    """Elements, what they would fetch, and the text."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.fetched, self.words, self.images = [], [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        attributes = dict(attrs)
        self.tags.append(tag)
        if tag == "svg":
            self.images.append(attributes)
        for name in ("src", "href", "xlink:href", "data", "action"):
            if (value := attributes.get(name)) and not value.startswith("#") and tag != "a":
                self.fetched.append(value)

    def handle_data(self, data):
        self.words.append(data)


def page_of(folder):
    text = write_page(folder).read_text(encoding="utf-8")
    return text, Page(text)


def page_script():
    """The script of every page."""
    return resources.files("fedrank.report").joinpath("page.js").read_text(encoding="utf-8")


def only_script(text):
    """The one script of a page, which its policy names by its hash and which therefore is the only one that runs."""
    (script,) = re.findall(r"<script[^>]*>(.*?)</script>", text, re.DOTALL)
    named = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', text)
    assert html.unescape(policy) == f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{named}'"
    return script


@pytest.fixture(scope="module")
def full(tmp_path_factory):
    folder = make_run(tmp_path_factory.mktemp("page") / "run <script>alert(1)< & 'x'", data="<img src=x>")
    return page_of(folder)


def test_nothing_is_fetched_or_run(full):
    text, page = full
    assert len(text.encode()) < 2_000_000
    assert page.fetched == [] and "img" not in page.tags
    assert only_script(text) == page_script()
    assert not re.search(r"url\(\s*['\"]?(?!#)|@import", text)


def test_names_are_text(full):
    text, page = full
    assert "run <script>alert(1)< & 'x'" in "".join(page.words)
    assert "<img src=x>" in "".join(page.words)
    assert "<script>alert" not in text


def test_it_can_be_read_by_all(full):
    text, page = full
    assert page.tags.count("h1") == 1 and page.tags.count("h2") >= 5
    assert page.images and all(image.get("role") == "img" and image.get("aria-label") for image in page.images)
    assert "prefers-color-scheme: dark" in text and "@media print" in text
    ids = re.findall(r'\bid="([^"]+)"', text)
    assert len(ids) == len(set(ids))
    assert set(re.findall(r'href="#([^"]+)"', text)) <= set(ids)


def test_it_opens_with_a_title_a_sentence_a_chart_and_at_most_four_numbers(full):
    text = full[0]
    (title,) = re.findall(r"<h1>(.*?)</h1>", text)
    assert "script" not in title  # not the folder's name
    (opening,) = re.findall(r"<header>(.*?)</header>", text, re.DOTALL)
    assert opening.count("<svg") == 1 and opening.count('class="sentence"') == 1
    assert 1 <= opening.count("<dt>") <= 4
    # All else is folded: nothing but sections stands between the opening and the foot of the page.
    rest = text[text.index("</header>") + len("</header>") : text.index("<footer>")]
    assert re.fullmatch(r"(<details id=\"[a-z]+\">.*?</details>)+", rest, re.DOTALL)
    assert rest.count("<details id=") == rest.count("<summary><h2>") >= 5 and "<details open" not in rest


def test_a_page_has_no_more_than_four_numbers_at_the_top():
    with pytest.raises(ValueError, match="at most 4 numbers, got 5"):
        Opening("title", say("sentence"), tuple(Number("label", Named(str(i))) for i in range(5)))


def test_the_page_says_what_matters(full):
    words = " ".join(full[1].words)
    for said in (
        "9 bytes",
        "Privacy bound of a user (ε)",
        "MSE (labels)",
        "expected MaxRR (navigational)",
        "Not covered",
        "kharitonov2019foltr",
    ):
        assert said in words


@pytest.mark.parametrize(
    ("settings", "absent"),
    [
        ({"seeds": 1}, ()),
        ({"p": 1}, ("baselines.json",)),
        (
            {"done": False, "rounds": 1, "asked_rounds": 9},
            ("ledger.jsonl", "privacy.json", "messages.json", "model.json"),
        ),
    ],
    ids=["one seed", "no privacy", "just begun"],
)
def test_what_is_missing_is_left_out(tmp_path, settings, absent):
    folder = make_run(tmp_path / "run", **settings)
    for name in absent:
        (folder / name).unlink()
    _, page = page_of(folder)
    words = " ".join(page.words)
    assert not re.search(r"\b(NaN|nan|None|inf)\b", words)
    if settings.get("seeds") == 1:
        assert "±" not in words.replace("± is", "") and "one seed" in words.lower()


def test_a_damaged_file_is_named(tmp_path):
    for name in ["config.toml", "environment.json", "metrics.parquet", "baselines.json", "ledger.jsonl"]:
        folder = make_run(tmp_path / "run")
        (folder / name).write_bytes(b"{\x00 not this")
        with pytest.raises(RunError, match=re.escape(name)):
            load(folder)


def test_figures_are_svg_files_and_png_where_wanted(tmp_path):
    folder = make_run(tmp_path / "run")
    for png in (True, False):
        write_page(folder, png=png)
        files = {suffix: list((folder / "figures").glob(f"*{suffix}")) for suffix in (".svg", ".png")}
        assert files[".svg"] and len(files[".png"]) == (len(files[".svg"]) if png else 0)
        assert all(ElementTree.parse(f).getroot().tag.endswith("svg") for f in files[".svg"])
        assert all(f.read_bytes().startswith(b"\x89PNG") for f in files[".png"])


# -- comparisons ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    root = tmp_path_factory.mktemp("runs")
    low = make_run(root / "a" / "same", seeds=3)
    high = make_run(root / "b" / "same", seeds=3, lift=0.05)
    other = make_run(root / "other", seeds=3, clicks="perfect")
    return low, high, other


def test_differences_are_paired_and_to_the_first(runs):
    table = comparison_table(load_runs(runs[:2]))
    rows = [row for row in table.rows if row["measure"] == "expected MaxRR (navigational)" and row["split"] == "test"]
    assert [row["run"] for row in rows] == ["a/same", "b/same"]
    assert rows[0]["difference"] is None
    # Lifted by 0.05 in every seed: the paired difference has no spread, though the seeds do.
    assert rows[1]["difference"].mean == pytest.approx(0.05) and rows[1]["difference"].half == pytest.approx(
        0, abs=1e-12
    )
    assert rows[1]["value"].half > 0.001


def test_other_users_are_another_measure(runs):
    table = comparison_table(load_runs(runs))
    rows = [row for row in table.rows if row["measure"] == "expected MaxRR (perfect)"]
    online = [row for row in table.rows if row["split"] == "online"]
    assert {row["measure"] for row in online} == {"MaxRR of navigational users", "MaxRR of perfect users"}
    assert sum(row["difference"] is not None for row in online) == 1
    assert {row["run"].split("/")[-1] for row in rows} == {"other"} and all(row["difference"] is None for row in rows)


def test_the_comparison_is_a_page_of_its_own(runs, tmp_path):
    text = write_comparison(load_runs(runs), tmp_path / "out").read_text(encoding="utf-8")
    page = Page(text)
    assert page.fetched == [] and only_script(text) == page_script() and page.images
    assert "clicks" in " ".join(page.words)  # the setting in which they differ
    assert list((tmp_path / "out" / "figures").glob("*.svg"))


def test_many_runs_still_have_a_table(tmp_path):
    folders = [make_run(tmp_path / f"x=1,p={i}", rounds=2) for i in range(9)]
    text = write_comparison(load_runs(folders), tmp_path / "out").read_text(encoding="utf-8")
    assert all(f"p={i}" in text for i in range(9)) and "first 7 runs" in text


def test_runs_may_lack_different_parts(tmp_path):
    """As the folds of a set do whose fifth part is missing."""
    folders = [make_run(tmp_path / f"fold={i}", rounds=2) for i in range(3)]
    for folder, absent in zip(folders, ("test", "vali", "vali"), strict=True):
        frame = pl.read_parquet(folder / "metrics.parquet")
        frame.filter(pl.col("split") != absent).write_parquet(folder / "metrics.parquet")
    write_comparison(load_runs(folders), tmp_path / "out")
    figures = {path.stem for path in (tmp_path / "out" / "figures").glob("*.svg")}
    assert figures == {"expected-maxrr-navigational-test", "expected-maxrr-navigational-train"}


def test_what_cannot_be_compared_is_refused(runs):
    for wrong, says in (([runs[0]], "two or more"), ([runs[0], runs[0]], "twice"), ([], "two or more")):
        with pytest.raises(Exception, match=says):
            load_runs(wrong)


def rows_of(table, split="test"):
    return {row["run"]: row for row in table.rows if row["split"] == split and row["measure"].startswith("expected")}


def test_no_difference_is_taken_between_runs_that_are_not_comparable(tmp_path):
    first = make_run(tmp_path / "first", seeds=3)
    folders = {
        "fold": make_run(tmp_path / "fold", seeds=3, fold=2),
        "beside": make_run(tmp_path / "beside", seeds=3, fold=2, lift=0.05),
        "apart": make_run(tmp_path / "apart", seeds=3, first_seed=10),
        "overlap": make_run(tmp_path / "overlap", seeds=3, first_seed=2),
    }
    (open_run := make_run(tmp_path / "open", seeds=3)).joinpath("done.json").unlink()
    runs = load_runs([first, *folders.values(), open_run])
    refused = refusals(runs)
    assert set(refused) == {"fold", "beside", "apart", "open"}
    assert "fold 2, not fold 1" in refused["fold"][0] and refused["apart"] == ["no seed in common"]
    assert refused["open"] == ["open is unfinished"]
    rows = rows_of(comparison_table(runs))
    assert all(
        rows[name]["difference"] is None and rows[name]["method"].startswith("none: ")
        for name in ("fold", "apart", "open")
    )
    assert rows["beside"]["difference"].mean == pytest.approx(0.05) and "to fold" in rows["beside"]["method"]
    assert rows["overlap"]["difference"].half is None  # of one common seed there is no interval
    assert len(refused_words(runs)) == 4


def test_what_differs_comes_first_with_seeds_and_rounds(tmp_path):
    one, other = make_run(tmp_path / "one", seeds=3, rounds=20), make_run(tmp_path / "two", seeds=2, rounds=30)
    rows = {row["key"]: (row["run0"], row["run1"]) for row in changed_settings(load_runs([one, other])).rows}
    assert rows["rounds"] == (20, 30) and rows["seeds done"] == ("0 to 2", "0, 1") and "clicks" not in rows
    text = write_comparison(load_runs([one, other]), tmp_path / "out").read_text(encoding="utf-8")
    assert text.index('id="settings"') < text.index('id="curves"') < text.index('id="final"')


def test_folds_are_pooled_seed_by_seed(tmp_path):
    folders = [
        make_run(tmp_path / f"fold={fold},p={p}", seeds=3, fold=fold, p=p, lift=p + fold)
        for p in (0.5, 0.75)
        for fold in (1, 2)
    ]
    runs = load_runs(folders)
    alone, pooled = rows_of(comparison_table(runs)), rows_of(comparison_table(runs, pool=True))
    assert list(pooled) == ["p=0.5", "p=0.75"]
    for p in ("0.5", "0.75"):
        mean = sum(alone[f"fold={fold},p={p}"]["value"].mean for fold in (1, 2)) / 2
        assert pooled[f"p={p}"]["value"].mean == pytest.approx(mean)
    assert pooled["p=0.75"]["difference"].mean == pytest.approx(0.25)
    assert (
        refusals(runs, pool=True) == {}
        and len(pooled_words(runs)) == 2
        and "fold 1 and fold 2" in pooled_words(runs)[0]
    )
    assert refusals(load_runs([folders[0], folders[1], folders[3]]), pool=True).keys() == {"fold=2,p=0.75"}


@pytest.mark.parametrize(("rounds", "asked", "said"), [(6, 6, []), (4, 6, ["Cut short: 4 of 6 rounds"])])
def test_a_run_that_is_evaluated_only_has_done_the_rounds_before_its_last_evaluation(tmp_path, rounds, asked, said):
    run = load(make_run(tmp_path / "run", rounds=rounds, asked_rounds=asked))
    silent = replace(run, metrics=run.metrics[run.metrics["split"] != "online"])
    assert silent.shown.done_rounds(silent) == run.shown.done_rounds(run) == rounds
    assert [caveat for caveat in caveats(silent) if caveat.startswith("Cut short")] == said


def test_settings_that_a_reader_looks_for_first_come_first_with_what_they_are(tmp_path):
    folder = make_run(tmp_path / "run")
    table = tables.config_table(load(folder))
    first = ["protocol", "data", "clicks", "ranker", "clients", "rounds", "seeds"]
    assert [row["key"] for row in table.rows][: len(first)] == first
    assert table.rows[0]["help"] == method("foltr-es").summary
    assert [column.key for column in table.columns] == ["key", "value", "help"]


def test_settings_of_an_unknown_protocol_have_no_column_of_help(tmp_path):
    folder = make_run(tmp_path / "run", environment={"task": "ranking"})
    file = folder / "config.toml"
    file.write_text(file.read_text().replace('"foltr-es"', '"of-ones-own"'))
    table = tables.config_table(load(folder))
    assert table.rows[0]["value"] == "of-ones-own" and [column.key for column in table.columns] == ["key", "value"]


def test_a_run_that_did_not_write_its_citations_has_a_page_and_refuses_to_cite(tmp_path):
    folder = make_run(tmp_path / "run", environment={"citations": None})
    with pytest.raises(RunError, match=r"environment\.json"):
        sections.citations(load(folder))
    assert write_page(folder).exists()
    assert sections.citations(load(make_run(tmp_path / "none", environment={"citations": []}))) == ""


def test_a_command_in_pieces_is_quoted_for_a_shell(tmp_path):
    run = load(make_run(tmp_path / "run", environment={"command": ["fedrank", "run", "my file.toml"]}))
    assert "fedrank run 'my file.toml'" in html.unescape(str(sections.repeat(run).content[-1]))
