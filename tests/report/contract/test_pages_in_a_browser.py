"""Pages of all wings as a browser lays them out: nothing runs over the side, all text can be read, labels lie apart."""

import itertools
import shutil
import tempfile
from functools import partial
from pathlib import Path

import pytest
from browser import Tab, chromium
from report_factory import make_run
from result_commands import SENTENCES, put
from silo_run_factory import NAMES, make_silo_run
from slate_run_factory import make_slate_run
from status_examples import EXAMPLES, status
from text_run_factory import make_text_run

from fedrank.cli.main import call
from fedrank.deploy.hub.status import page as status_page
from fedrank.report.page import write_page

pytestmark = [
    pytest.mark.minutes,
    pytest.mark.skipif(chromium() is None, reason="there is no Chromium (Debian: apt-get install chromium)"),
]

MODES = {
    "desktop": {"width": 1280},
    "dark": {"width": 1280, "dark": True},
    "phone": {"width": 375},
    "dark-phone": {"width": 360, "dark": True},
    "print": {"width": 720, "printed": True},
}

OPEN_ALL = "document.querySelectorAll('details').forEach(fold => { fold.open = true; })"

#: Elements that stick out of the page at the right, but for what scrolls inside itself.
STICKS_OUT = """(() => {
  const wide = document.documentElement.clientWidth, out = [];
  if (document.documentElement.scrollWidth > wide) out.push("page: " + document.documentElement.scrollWidth);
  const scrolls = e => { for (; e; e = e.parentElement) if (getComputedStyle(e).overflowX !== "visible") return true; };
  for (const e of document.querySelectorAll("main *")) {
    const box = e.getBoundingClientRect();
    if (box.width && box.right > wide + 1 && !e.closest("svg") && !scrolls(e)) out.push(e.tagName + " " + e.className);
  }
  return out;
})()"""

#: Headings in order, as numbers: of a folded section, only its own.
OUTLINE = "[...document.querySelectorAll('h1, h2, h3, h4')].map(e => +e.tagName[1])"

#: Text whose contrast to what is behind it is less than WCAG 2 asks for at level AA: 4.5, and 3 where it is large.
PALE = """(() => {
  const parse = text => {
    const found = /rgba?\\(([^)]+)\\)/.exec(text);
    return found ? found[1].split(/[ ,\\/]+/).map(Number) : [0, 0, 0, 0];
  };
  const light = c => {
    const [r, g, b] = c.map(v => v / 255).map(v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = e => {
    for (; e; e = e.parentElement) {
      const c = parse(getComputedStyle(e).backgroundColor);
      if (c.length < 4 || c[3] === 1) return c.slice(0, 3);
    }
    return [255, 255, 255];
  };
  const out = [];
  const walker = document.createTreeWalker(document.querySelector("main"), NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const e = walker.currentNode.parentElement, text = walker.currentNode.textContent.trim();
    if (!text || e.closest("style, script, title, .matrix svg") || !e.getClientRects().length) continue;
    const style = getComputedStyle(e), inside = e.closest("svg");
    const front = parse(inside ? style.fill : style.color).slice(0, 3);
    let back = behind(e);
    const a = light(front), b = light(back);
    const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    const size = parseFloat(style.fontSize);
    const large = size >= 24 || (size >= 18.66 && +style.fontWeight >= 700);
    if (contrast < (large ? 3 : 4.5)) out.push(contrast.toFixed(2) + " " + text.slice(0, 40));
  }
  return out;
})()"""

#: Pairs of texts of one chart whose boxes overlap by more than a pixel.
OVERLAPS = """(() => {
  const out = [];
  for (const svg of document.querySelectorAll("svg")) {
    const texts = [...svg.querySelectorAll("text")].filter(t => t.textContent.trim());
    const boxes = texts.map(t => t.getBoundingClientRect()).map(b =>
      ({ left: b.left, right: b.right, top: b.top + b.height * 0.15, bottom: b.bottom - b.height * 0.15 }));
    for (let i = 0; i < boxes.length; i++) for (let j = 0; j < i; j++) {
      const a = boxes[i], b = boxes[j];
      if (a.right - 1 > b.left && b.right - 1 > a.left && a.bottom - 1 > b.top && b.bottom - 1 > a.top)
        out.push(svg.getAttribute("aria-label") + ": " + texts[j].textContent + " | " + texts[i].textContent);
    }
  }
  return out;
})()"""

#: Labels that are drawn outside the figure and cut off.
CUT_OFF = """(() => {
  const out = [];
  for (const svg of document.querySelectorAll("svg")) {
    const frame = (svg.closest(".frame") || svg).getBoundingClientRect();  // labels may stand in its padding
    for (const text of svg.querySelectorAll("text")) {
      const box = text.getBoundingClientRect();
      const aside = box.left < frame.left - 1 || box.right > frame.right + 1;
      if (aside || box.top < frame.top - 1 || box.bottom > frame.bottom + 1) out.push(text.textContent);
    }
  }
  return out;
})()"""


@pytest.fixture(scope="module")
def tab():
    profile = Path(tempfile.mkdtemp())
    with Tab(profile) as opened:
        yield opened
    shutil.rmtree(profile, ignore_errors=True)


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    root = tmp_path_factory.mktemp("pages")
    ranking = make_run(root / "ranking")
    runs = {
        "ranking": ranking,
        "silos": make_silo_run(root / "silos", inverted="cleveland", rounds=8, seeds=3),
        "silos, all targets": make_silo_run(root / "all", target="all", names=NAMES, rounds=4, seeds=3),
        "texts": make_text_run(root / "texts"),
        "texts without protection": make_text_run(root / "plain", mode="plain", epsilon=None),
        "slates": make_slate_run(root / "slates"),
    }
    made = {name: write_page(folder) for name, folder in runs.items()}
    made["hub"] = root / "status.html"
    made["hub"].write_text(status_page(status(), {"conflict": 3}), encoding="utf-8")
    made["new hub"] = root / "new.html"
    made["new hub"].write_text(status_page(EXAMPLES["new"], {}), encoding="utf-8")
    for name, row in OF_COMMANDS.items():
        folder = root / name
        folder.mkdir()
        with pytest.MonkeyPatch.context() as patched:
            command = SENTENCES[row](folder, partial(put, patched), 3)
            assert call([*command.arguments, "--json"]) == 0
        made[name] = command.page
    return made


#: Pages that commands write, by their row of the list of commands.
OF_COMMANDS = {
    "attack on sketches": ("privacy attack sketch", ""),
    "attack on documents": ("privacy attack documents", ""),
    "attack on platforms": ("privacy attack slates", ""),
    "search": ("sweep", "search"),
    "leaderboard": ("reproduce leaderboard", ""),
    "comparison": ("compare", ""),
    "study": ("reproduce", ""),
    "plan": ("privacy plan", ""),
    "answer of a silo": ("silos compare", "one target"),
    "answers of all silos": ("silos compare", "all targets"),
}
NAMES_OF_PAGES = (
    "ranking", "silos", "silos, all targets", "texts", "texts without protection", "slates", "hub", "new hub",
    *OF_COMMANDS,
)  # fmt: skip


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", NAMES_OF_PAGES)
def test_it_can_be_read(tab, pages, name, mode):
    tab.show(pages[name], **MODES[mode])
    first = tab.value(STICKS_OUT)
    if mode != "print":  # what is printed is unfolded without being asked
        tab.value(OPEN_ALL)
    assert first == [] and tab.value(STICKS_OUT) == []
    assert tab.value("[...document.querySelectorAll('details .folded')].every(e => e.getClientRects().length > 0)")
    assert tab.value(PALE) == []
    assert tab.value(OVERLAPS) == [] and tab.value(CUT_OFF) == []
    levels = tab.value(OUTLINE)
    assert levels[0] == 1 and levels.count(1) == 1
    assert all(below <= above + 1 for above, below in itertools.pairwise(levels))


def test_the_checks_notice_what_they_are_for(tab, pages):
    tab.show(pages["ranking"])
    tab.value("""(() => {
      const header = document.querySelector("header");
      header.insertAdjacentHTML("beforeend", "<p class='wide'>wide</p><p class='pale'>pale</p>");
      header.querySelector(".wide").style.minWidth = "3000px";
      header.querySelector(".pale").style.color = "#999999";
      const texts = document.querySelectorAll("header svg text");
      for (const place of ["x", "y"]) texts[1].setAttribute(place, texts[0].getAttribute(place));
      texts[texts.length - 1].setAttribute("x", "-900");
    })()""")
    assert any(said.startswith("P wide") for said in tab.value(STICKS_OUT))
    assert [said.split()[1] for said in tab.value(PALE)] == ["pale"]
    assert len(tab.value(OVERLAPS)) >= 1 and len(tab.value(CUT_OFF)) == 1


def test_a_page_opens_folded_and_one_button_opens_all(tab, pages):
    tab.show(pages["ranking"])
    folded = "[...document.querySelectorAll('main > details')].map(fold => fold.open)"
    assert not any(tab.value(folded))
    tab.value("document.querySelector('button.all').click()")
    assert all(tab.value(folded))
    tab.value("document.querySelector('button.all').click()")
    assert not any(tab.value(folded))


def test_a_link_opens_its_section(tab, pages):
    tab.show(pages["ranking"])
    tab.value("new Promise(done => { location.hash = 'privacy'; setTimeout(done, 200); })")
    assert tab.value("[...document.querySelectorAll('main > details[open]')].map(fold => fold.id)") == ["privacy"]


def test_printing_unfolds_and_folds_again(tab, pages):
    tab.show(pages["ranking"])
    closed = "document.querySelectorAll('details:not([open])').length"
    before = tab.value(closed)
    tab.value("dispatchEvent(new Event('beforeprint'))")
    assert before > 0 and tab.value(closed) == 0
    tab.value("dispatchEvent(new Event('afterprint'))")
    assert tab.value(closed) == before


def test_tables_sort_by_the_column_that_is_pressed(tab, pages):
    tab.show(pages["ranking"])
    column = """(press => {
      const table = document.querySelector("#final table"), heads = [...table.tHead.rows[0].cells];
      const place = heads.findIndex(head => head.textContent.startsWith("learnt"));
      if (press) heads[place].querySelector("button").click();
      const shown = [...table.tBodies[0].rows].map(row => row.cells[place].textContent);
      return { shown, sort: heads[place].getAttribute("aria-sort") };
    })"""
    original = tab.value(f"{column}(false)")
    assert original["sort"] is None
    down, up, back = (tab.value(f"{column}(true)") for _ in range(3))
    numbers = [[float(text.split()[0].replace("−", "-")) for text in one["shown"]] for one in (down, up)]
    assert numbers[0] == sorted(numbers[0], reverse=True) and down["sort"] == "descending"
    assert numbers[1] == sorted(numbers[1]) and up["sort"] == "ascending"
    assert back == original and original["shown"] not in (down["shown"], up["shown"])


def test_rows_of_a_table_are_chosen_by_the_values_of_a_column(tab, pages):
    tab.show(pages["leaderboard"])
    tab.value(OPEN_ALL)
    state = """(chosen => {
      const bar = document.querySelector("#rows .filters"), selects = [...bar.querySelectorAll("select")];
      const names = selects.map(one => one.parentElement.firstChild.textContent.trim());
      for (const [name, value] of Object.entries(chosen)) {
        const select = selects[names.indexOf(name)];
        select.value = value;
        select.dispatchEvent(new Event("change", { bubbles: true }));
      }
      const table = bar.parentElement.querySelector("table"), heads = [...table.tHead.rows[0].cells];
      const place = heads.findIndex(head => head.textContent === "method");
      const rows = [...table.tBodies[0].rows], shown = rows.filter(row => row.getClientRects().length);
      return { methods: shown.map(row => row.cells[place].textContent), all: rows.length,
               said: bar.querySelector("output").textContent };
    })"""
    first = tab.value(f"{state}({{}})")
    assert 0 < len(first["methods"]) < first["all"]  # some columns begin with a value
    assert first["said"] == f"{len(first['methods'])} of {first['all']} rows"
    one = tab.value(f"{state}({{method: 'pdgd'}})")
    assert set(one["methods"]) == {"pdgd"} and len(one["methods"]) == first["methods"].count("pdgd")
    every = ", ".join(f"'{name}': ''" for name in ("method", "data", "users", "budget"))
    assert len(tab.value(f"{state}({{{every}}})")["methods"]) == first["all"]


def test_a_series_goes_and_comes_back_by_its_legend(tab, pages):
    tab.show(pages["ranking"])
    tab.value(OPEN_ALL)
    state = """(press => {
      const all = [...document.querySelectorAll("#curves svg")];
      const svg = all.find(one => one.querySelectorAll(".toggle").length === 3);
      const entry = svg.querySelector(".toggle");
      if (press) entry.dispatchEvent(new KeyboardEvent("keydown", { key: "Enter", bubbles: true }));
      const lines = [...svg.querySelectorAll(".panel path[fill='none']")];
      return { pressed: entry.getAttribute("aria-pressed"), name: entry.getAttribute("aria-label"),
               hidden: lines.filter(line => line.style.display === "none").length, lines: lines.length };
    })"""
    shown = tab.value(f"{state}(false)")
    assert shown["pressed"] == "true" and shown["hidden"] == 0 and shown["name"].startswith("Show ")
    hidden = tab.value(f"{state}(true)")
    assert hidden["pressed"] == "false" and 0 < hidden["hidden"] < hidden["lines"]
    assert tab.value(f"{state}(true)") == shown


def test_nothing_is_asked_of_a_network(tab, pages):
    tab.call("Network.enable")
    tab.show(pages["texts"])
    asked = [e["params"]["request"]["url"] for e in tab.events if e.get("method") == "Network.requestWillBeSent"]
    tab.call("Network.disable")
    assert asked == [pages["texts"].resolve().as_uri()]
