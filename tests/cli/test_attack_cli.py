"""``fedrank privacy attack`` as a person and as a program see it."""

import json
import re

import pytest

from fedrank.cli.attack import app
from fedrank.core.errors import ConfigError, RunError

QUICK = ("--trials", "200", "--vocabulary", "1000", "--z", "12", "--z1", "5")


def run(capsys, *tokens):
    app(["sketch", *tokens], exit_on_error=False, result_action="return_value")
    return capsys.readouterr().out


def test_the_table_sets_measured_beside_promised_with_a_verdict(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")
    text = run(capsys, *QUICK)
    lines = {tuple(re.split(r" {2,}", line)[:2]): line for line in text.splitlines()}
    assert "broken" in lines["distinguish", "paper"] and "0.622" in lines["distinguish", "paper"]
    assert "holds" in lines["distinguish", "publish-once"]
    assert "broken (control)" in lines["distinguish", "independent 1/ε"]
    assert "no question leaves the querier" in text


def test_a_program_gets_the_same_as_json(capsys):
    content = json.loads(run(capsys, *QUICK, "--modes", "paper", "--epsilon", "1", "--seed", "4", "--json"))
    assert content["epsilon"] == 1.0 and content["seed"] == 4 and content["z1"] == 5
    first = content["findings"][0]
    assert first["attack"] == "distinguish" and first["measured"] == 1.0 and first["broken"] is True
    assert {one["mode"] for one in content["findings"]} == {
        "paper", "icde", "jos", "jos, two silos", "decoys drawn anew, PK kept",
        "one partition kept per term", "independent 1/ε",
    }  # fmt: skip


def test_the_default_shape_of_published_sketches_can_be_attacked(capsys):
    quick = ("--trials", "200", "--vocabulary", "1000")
    content = json.loads(run(capsys, *quick, "--modes", "publish-once", "--z", "1", "--w", "4096", "--json"))
    assert content["z1"] is None and all(one["mode"] == "publish-once" for one in content["findings"])
    assert "z₁" not in run(capsys, *quick, "--modes", "publish-once", "--z", "1", "--w", "4096")


def test_a_page_opens_with_which_promises_hold(capsys, tmp_path):
    page = tmp_path / "new" / "attack.html"
    content = json.loads(run(capsys, *QUICK, "--out", str(page), "--json"))
    offered = [one for one in content["findings"] if not one["control"]]
    broken = [one for one in offered if one["broken"]]
    text = page.read_text(encoding="utf-8")
    sentence = re.search('<p class="sentence">(.*?)</p>', text)[1]
    assert (
        text.count("<h1>") == 1 and f"Of {len(offered)} promises" in sentence and f" {len(broken)} do not" in sentence
    )
    assert "In mode paper documents are not protected" in sentence
    numbers = re.search('<dl class="numbers">(.*?)</dl>', text)[1]
    assert f"<b>{len(broken)} of {len(offered)}</b>" in numbers and numbers.count("<dt>") <= 4
    assert 'aria-label="Share of right guesses' in text and text.count("<tr>") == len(content["findings"]) + 1
    assert f"page: {page}" in run(capsys, *QUICK, "--modes", "paper", "--out", str(page)).replace("\n", "")


def test_a_page_that_cannot_be_written_is_said(capsys, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(RunError, match="cannot be written"):
        run(capsys, *QUICK, "--modes", "publish-once", "--out", str(tmp_path / "file" / "attack.html"))


def test_a_setting_that_cannot_be_is_refused(capsys):
    with pytest.raises(ConfigError, match=r"z1 must be in 1\.\.29"):
        run(capsys, "--z1", "30")
