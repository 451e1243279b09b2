"""The page of platforms that share users: who is who, what stands against what, what crossed, what damage comes to."""

import itertools
import json
import re

import polars as pl
import pytest
from slate_run_factory import POLICIES, SPREAD, STAY, ledger, make_slate_run
from text_pages import Page, changed

from fedrank.cli.report import show
from fedrank.core.errors import RunError
from fedrank.core.ledger import Entry, Ledger
from fedrank.report import describe, tables, wording, words
from fedrank.report.compare import comparison_table, load_runs, write_comparison
from fedrank.report.load import load
from fedrank.report.page import html_of, write_page
from fedrank.slates.config import BASELINES
from fedrank.slates.report import files as slates
from fedrank.slates.report import page as opening
from fedrank.slates.report import page as slate_page
from fedrank.slates.report import tables as slate_tables
from fedrank.slates.report.tables import times_asked
from fedrank_zoo.reproduce.page import budget_table


@pytest.fixture(scope="module")
def one(tmp_path_factory):
    folder = make_slate_run(tmp_path_factory.mktemp("slates") / "one <b>")
    text = write_page(folder).read_text(encoding="utf-8")
    return load(folder), text, Page(text)


def page_of(folder):
    """What the page says, without drawing its figures."""
    return Page(html_of(load(folder), {}))


def row_of(table, key, value):
    (row,) = [row for row in table.rows if row[key] == value]
    return row


# -- names that runs and reports share ---------------------------------------------------------------------------------


def test_names_of_policies_are_those_that_runs_write():
    assert set(slates.POLICIES) == set(BASELINES) > set(POLICIES)


# -- what a reader gets ------------------------------------------------------------------------------------------------


def test_what_each_platform_brings_comes_first(one):
    run, _, page = one
    first = page.words[: page.words.index("Platforms and coordinator")]
    assert "A, with feedback" in first and "B, without feedback" in first
    gain = slate_tables.against(run, "engagement", "random")
    assert f"Against random slates +{gain.mean:.1f} ± {gain.half:.1f}" in first
    assert "50 % of the way to the best possible" in first
    assert "The users are simulated" in first and "Few seeds: 3" in first


def test_differences_are_paired_by_seed_and_regret_is_of_all_together(one):
    table = slate_tables.platforms_table(one[0])
    assert [row["who"] for row in table.rows] == ["all platforms", "A, with feedback", "B, without feedback"]
    total, a, b = table.rows
    # The users of a seed are the same for run and policy, so that their luck leaves no spread.
    assert (a["random"].mean, b["random"].mean) == (pytest.approx(60), pytest.approx(40))
    assert a["random"].half == pytest.approx(0, abs=1e-9) and a["value"].half > 1
    assert total["myopic"].mean == pytest.approx(1010 + 990 - 2 * 1040)
    assert total["regret"].mean == pytest.approx(2 * 1050 - 1010 - 990)
    assert a["regret"] is None and b["regret"] is None
    assert slate_tables.way(one[0], "engagement") == pytest.approx(0.5)


def test_policies_at_the_top_are_of_the_users_that_the_run_is_judged_by(one):
    # The factory's run brings 100 over random in all, and its users differ from those that all policies share.
    drawn = one[0].shown.charts(one[0])[opening.CHART].svg
    rows = re.findall(r">([^<>]+)</text><text[^>]*text-anchor=\"end\"[^>]*font-weight=\"600\">([^<]+)<", drawn)
    levels = {name: float(value.replace("−", "-").replace(",", "")) for name, value in rows}
    assert len(levels) > 3
    ours = next(value for name, value in levels.items() if name.startswith("Learnt"))
    found = sorted(value - ours for name, value in levels.items() if not name.startswith("Learnt"))
    assert found == pytest.approx(sorted(2 * value - (2 * POLICIES["random"] + 100) for value in POLICIES.values()))


def test_an_interval_over_seeds_is_students(one):
    run = one[0]
    values = run.metrics.where(split="test", measure="engagement (A)", round=120 * STAY)["value"].tolist()
    mean = sum(values) / 3
    half = 4.302653 * (sum((v - mean) ** 2 for v in values) / 2 / 3) ** 0.5  # two degrees of freedom
    found = slate_tables.final_engagement(run, "engagement (A)")
    assert found.mean == pytest.approx(mean) and found.half == pytest.approx(half, rel=1e-5)


def test_times_say_how_many_seeds_reached_the_threshold(one):
    table = slate_tables.platforms_table(one[0])
    assert [row["time"] for row in table.rows] == ["40 (median), 40 to 40", *["reached by 2 of 3 seeds"] * 2]
    assert "1000.0 (A, with feedback)" in " ".join(table.notes)


def test_every_fixed_policy_stands_beside_the_run_with_what_it_is(one):
    table = slate_tables.policies_table(one[0])
    assert [row["policy"] for row in table.rows] == ["kale", "random", "choc", "myopic", "optimum"]
    choc = row_of(table, "policy", "choc")
    assert choc["v0"].mean == 2080 and choc["v1"].mean == 1040 and choc["d1"].mean == pytest.approx(-30)
    assert choc["v1"].half == pytest.approx(1.961 * SPREAD / 2000**0.5)
    assert "optimum: What optimum is." in table.notes


def test_curves_have_the_policies_as_lines(one):
    run, text, page = one
    assert page.tags.count("svg") == 5
    drawn = [re.sub(r"<[^>]*>", "|", svg) for svg in re.findall(r"<svg.*?</svg>", text, re.S)]
    for svg in drawn[1:4]:
        assert all(name in svg for name in POLICIES) and "Generated users: no real people" in svg
    assert "A, with feedback" in drawn[4] and "exploration included" in drawn[4]
    for name in ("engagement-all", "engagement-a", "engagement-b", "while-learning"):
        assert (run.path / "figures" / f"{name}.svg").stat().st_size > 1000


def test_names_of_lines_that_lie_on_each_other_do_not_overlap(one):
    drawn = slate_page.SHOWN.charts(one[0])["engagement-a"].svg
    beside = re.findall(r'<text x="276" y="([\d.]+)"[^>]*>([^<]+)<', drawn)  # at the right of the panel
    places = {name: float(y) for y, name in beside}
    # 1040 (twice) and 1050 are close at this height, 950 and 870 are not; a line of text is 14 pixels high.
    assert list(places) == ["optimum", "choc", "myopic", "random", "kale"]
    heights = list(places.values())
    assert all(below - above >= 14 - 1e-9 for above, below in itertools.pairwise(heights))
    assert max(heights[1] - heights[0], heights[2] - heights[1]) < 14 + 1e-9 < heights[3] - heights[2]


def test_nothing_is_fetched_or_run_and_names_are_text(one):
    _, _, page = one
    assert page.tags.count("script") == 1 and "b" in page.tags and "one <b>" in page.words
    assert "Users <and> what they like" in page.words


def test_settings_are_those_of_platforms(one, tmp_path):
    keys = {row["key"] for row in tables.config_table(one[0]).rows}
    assert {"world.preset", "slates.discount", "slates.others", "sharing.centre", "evaluation.episodes"} <= keys
    assert not keys & {"clicks", "clients", "data", "silos.train", "texts.silos", "privacy.mechanism"}
    alone = load(make_slate_run(tmp_path / "run", protocol="slateq"))
    keys = {row["key"] for row in tables.config_table(alone).rows}
    assert "slates.discount" in keys and not keys & {"sharing.centre", "slates.others", "privacy.delta"}


def test_settings_of_the_users_are_settings_and_their_values_in_words(one):
    table = slate_tables.world_table(one[0])
    values = {row["key"]: row["value"] for row in table.rows}
    assert not {"world.fresh", "world.rounds_per_episode"} & set(values)
    assert "chocolate" in values["world.semantics"] and values["world.shared_candidates"] == "the same"
    assert values["world.slate"] == 3 and values["rounds of a user’s stay"] == STAY


def test_a_file_of_an_earlier_version_is_read(tmp_path):
    folder = make_slate_run(tmp_path / "run")
    changed(folder, "slates.json", lambda content: (content.pop("central"), content.update(notes=None)))
    found = load(folder).details
    assert found.central is False and found.notes == ()


def test_a_run_is_named_by_its_users_and_who_sees_what_they_do(one, tmp_path):
    assert one[0].shown.headline(one[0]) == "vertical-slate · recsim users, N = 10, n = 3 · A with feedback, B without"
    other = load(make_slate_run(tmp_path / "run", platforms=3, feedback="all", sensitivity=0.03))
    assert other.shown.headline(other).endswith("recsim users, N = 10, n = 3, τ 0.03, 3 platforms · all with feedback")
    assert one[0].shown.done_rounds(one[0]) == 120 * STAY


# -- verdicts ----------------------------------------------------------------------------------------------------------


def test_a_difference_that_may_be_chance_is_called_so(tmp_path):
    folder = make_slate_run(tmp_path / "run", gains=(60.0, 0.5))
    frame = pl.read_parquet(folder / "metrics.parquet")
    off = pl.col("seed").cast(pl.Float64) - 1.0
    frame = frame.with_columns(
        pl.when(pl.col("measure") == "engagement (B)").then(pl.col("value") + off).otherwise("value")
    )
    frame.write_parquet(folder / "metrics.parquet")
    said = slate_tables.verdicts(load(folder))
    assert "+60.0" in said[1] and "chance" not in said[1]
    assert said[2].startswith("B, without feedback: +0.5") and "which may be chance" in said[2]


def test_a_world_without_tension_is_called_so(tmp_path):
    flat = load(make_slate_run(tmp_path / "flat", policies={**POLICIES, "optimum": 1040.5}))
    assert "there is no tension" in slate_tables.verdicts(flat)[-1]
    tense = load(make_slate_run(tmp_path / "tense"))
    assert not any("tension" in said for said in slate_tables.verdicts(tense))


def test_platforms_that_do_what_a_fixed_policy_does_are_found_out(tmp_path):
    run = load(make_slate_run(tmp_path / "run", gains=(90.0, 90.0)))
    (said,) = [said for said in slate_tables.verdicts(run) if "exactly as much" in said]
    assert "as choc and myopic for the same users" in said


# -- faults ------------------------------------------------------------------------------------------------------------


def test_faults_that_are_on_are_said_before_the_numbers_and_one_by_one(tmp_path):
    faults = tuple({"key": f"slates.faults: {name}", "name": f"a {name}", "what": "wrong"} for name in "vwxyz")
    page = page_of(make_slate_run(tmp_path / "all", faults=faults))
    assert "5 faults of the published code are on" in page.words[: page.words.index("Platforms and coordinator")]
    assert all(one["key"] in page.words for one in faults)
    some = load(make_slate_run(tmp_path / "some", faults=faults[:2]))
    assert "Faults of the published code: a v and a w" in describe.caveats(some)
    assert [row["key"] for row in slate_tables.faults_table(some).rows] == ["slates.faults: v", "slates.faults: w"]


def test_a_run_without_faults_says_nothing_of_them(one):
    assert slate_tables.faults_table(one[0]) is None and "faults of the published code" not in one[2].words


# -- what crossed ------------------------------------------------------------------------------------------------------


def test_what_crossed_is_told_by_round_and_by_batch(one):
    run = one[0]
    rounds, batches = 120 * STAY, 120 * STAY // 10
    assert (times_asked(run, "look"), times_asked(run, "batch")) == (rounds, batches)
    acting, learning, every, tells = words.ledger_words(run)
    assert f"84 bytes up and 100 bytes down in each of {rounds:,} rounds" in acting
    assert f"5.26 kB up and 3.1 kB down in each of {batches:,} batches of 32 transitions" in learning
    up = rounds * 84 + batches * (2 * 2561 + 137)
    assert every.startswith(f"In all: {wording.size(up)} up")
    assert tells.startswith("What it tells: B receives targets of A.") and "divided by 15, plus 0.9 times" in tells
    targets = row_of(slate_tables.crossed_table(run), "message", "Targets")
    assert (targets["when"], targets["each"], targets["turn"]) == ("batch", "1", "137 bytes")
    assert targets["total"] == wording.size(batches * 137)


def test_nobody_is_told_that_targets_tell_where_all_have_feedback(tmp_path):
    run = load(make_slate_run(tmp_path / "run", feedback="all"))
    assert not any(line.startswith("What it tells") for line in words.ledger_words(run))


def test_messages_of_secure_sums_are_told_apart(tmp_path):
    folder = make_slate_run(tmp_path / "run", platforms=3)
    more = [Entry(0, "secure sum: keys", "Advertisement", "parties", "server", 30, 85)]
    Ledger([*ledger(3, 120 * STAY, 120 * STAY), *more]).write(folder / "ledger.jsonl")
    said = words.ledger_words(load(folder))
    assert said[2] == "So that sums are secret: 255 bytes up and 0 bytes down in each of 10 secure sums."


@pytest.mark.parametrize(("central", "says"), [(False, "Nothing crossed."), (True, "one learner sees")])
def test_platforms_that_do_not_federate_send_nothing(tmp_path, central, says):
    folder = make_slate_run(tmp_path / "run", protocol="slateq", central=central)
    assert says in " ".join(words.ledger_words(load(folder)))
    page = page_of(folder)
    assert "coordinator" not in page.words[: page.words.index("How they learnt")].replace("and coordinator", "")


def test_noise_on_values_is_a_number_and_targets_are_said_to_have_none(tmp_path):
    page = page_of(make_slate_run(tmp_path / "run", epsilon=2.0))
    assert "(ε) 80.00 2.00 for each list of values" in page.words


# -- runs that lack something ------------------------------------------------------------------------------------------


def test_an_unfinished_run_is_shown_as_far_as_it_got(tmp_path):
    folder = make_slate_run(tmp_path / "run", done=False)
    frame = pl.read_parquet(folder / "metrics.parquet")
    frame.filter(pl.col("round") <= 60 * STAY).write_parquet(folder / "metrics.parquet")
    page = page_of(folder)
    assert f"Unfinished: {60 * STAY:,} of {120 * STAY:,} rounds so far" in page.words
    assert slate_tables.platforms_table(load(folder)).columns[-1].key == "regret"  # no threshold yet


def test_a_run_without_fixed_policies_has_a_page_without_differences(tmp_path):
    folder = make_slate_run(tmp_path / "run", policies={})
    page = page_of(folder)
    assert "difference to" not in page.words and "B, without feedback" in page.words
    assert [c.key for c in slate_tables.platforms_table(load(folder)).columns] == ["who", "value"]


def test_one_seed_has_no_interval(tmp_path):
    run = load(make_slate_run(tmp_path / "run", seeds=1))
    assert slate_tables.final_engagement(run, "engagement").half is None
    assert "One seed: no interval." in slate_tables.platforms_table(run).notes[0]
    assert "(one seed, no interval)" in slate_tables.verdicts(run)[0]


def test_a_bad_file_is_named(tmp_path):
    for trouble in ["missing", "cut"]:
        for name in ["slates.json", "baselines.json"]:
            folder = make_slate_run(tmp_path / "run", seeds=1, users=20)
            if trouble == "missing":
                (folder / name).unlink()
            else:
                (folder / name).write_bytes((folder / name).read_bytes()[:-20])
            with pytest.raises(RunError, match=re.escape(name)):
                load(folder)


def test_a_file_of_another_schema_says_what_it_must_hold(tmp_path):
    for name, change, says in [
        ("slates.json", lambda s: s.pop("world"), "must hold 'platforms', 'feedback', 'world'"),
        ("slates.json", lambda s: s.pop("results"), "at the end 'results'"),
        ("slates.json", lambda s: s.update(feedback=[True]), "1 feedback of 2 platforms"),
        ("baselines.json", lambda b: b["baselines"][0]["runs"].pop(), "runs of random are 1, not 2"),
        ("baselines.json", lambda b: b["baselines"][0].update(runs=[[1.0], [2.0]]), "must hold for each policy"),
    ]:
        folder = make_slate_run(tmp_path / "run", seeds=2, users=20)
        changed(folder, name, change)
        with pytest.raises(RunError, match=re.escape(says)):
            load(folder)


# -- several runs, terminals, machines ---------------------------------------------------------------------------------


def test_runs_are_compared_platform_by_platform(tmp_path):
    one, other = make_slate_run(tmp_path / "one"), make_slate_run(tmp_path / "two", gains=(70.0, 30.0))
    runs = load_runs([one, other])
    table = comparison_table(runs, most_telling=True)
    assert {row["measure"] for row in table.rows} == {"engagement", "engagement (A)", "engagement (B)"}
    assert {row["split"] for row in table.rows} == {"test"}
    found = {row["measure"]: row["difference"].mean for row in table.rows if row["run"] == "two"}
    assert found == {
        "engagement": pytest.approx(0),
        "engagement (A)": pytest.approx(10),
        "engagement (B)": pytest.approx(-10),
    }
    assert re.fullmatch(r"\d{4}\.\d ± \d\.\d", table.text(table.rows[2], table.columns[3]))  # a decimal is enough
    page = Page(write_comparison(load_runs([one, other]), tmp_path / "out").read_text(encoding="utf-8"))
    assert page.tags.count("svg") == 3
    equal = budget_table(runs, ["engagement"])
    assert [row["rounds"] for row in equal.rows] == [str(120 * STAY)] * 2


def test_runs_with_other_users_are_another_question(tmp_path):
    one, other = make_slate_run(tmp_path / "one"), make_slate_run(tmp_path / "two", candidates=100)
    rows = comparison_table(load_runs([one, other])).rows
    assert all(row["difference"] is None for row in rows)
    assert any(row["measure"] == "engagement (A), recsim users, N = 100, n = 3" for row in rows)


def test_json_has_every_table_and_the_terminal_the_sentences(one, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    show(one[0], one[0].path / "report.html", as_json=True)
    told = json.loads(capsys.readouterr().out)
    assert [row["who"] for row in told["final"]] == ["all platforms", "A, with feedback", "B, without feedback"]
    assert told["platforms"] == [{"name": "A", "feedback": True}, {"name": "B", "feedback": False}]
    assert len(told["policies"]) == 5 and told["faults"] == []
    show(one[0], one[0].path / "report.html", as_json=False)
    out = capsys.readouterr().out
    assert "against random slates" in out and "B receives targets of A" in " ".join(out.split())
    assert max(map(len, out.splitlines()[:20])) <= 80
