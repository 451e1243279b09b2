"""``fedrank privacy attack slates`` as a person and as a program see it. What is found:
tests/zoo/test_slate_leakage.py."""

import json
import math
import re

import pytest

from fedrank.cli.attack import app
from fedrank.core.errors import UnknownNameError
from fedrank.metrics.returns import MeanInterval
from fedrank_zoo.slate_attacks import suite as slate_leakage_suite
from fedrank_zoo.slate_attacks.page import write_page
from fedrank_zoo.slate_attacks.settings import MODES, SlateAttack
from fedrank_zoo.slate_attacks.suite import Leak


def run(capsys, *tokens):
    app(["slates", *tokens], exit_on_error=False, result_action="return_value")
    return capsys.readouterr().out


@pytest.fixture
def asked(monkeypatch):
    """What the command asks the suite for; the suite answers with two leaks."""
    calls = []
    sure, nothing = MeanInterval(1.0, 1.0, 1.0), MeanInterval(math.nan, math.nan, math.nan)
    half = MeanInterval(0.5, 0.25, 0.75)
    engagement = {"r2": half, "rank": nothing, "error": half, "blind": sure, "exact": half}
    found = [
        Leak("corrected", "coordinator", "clicks", "where the gradient is not 0", {"exact": sure, "blind": half}),
        Leak("corrected", "platform B", "engagement", "all messages", engagement),
    ]

    def attack(settings, said):
        calls.append(settings)
        return found

    monkeypatch.setattr(slate_leakage_suite, "attack_slates", attack)
    return calls


def test_each_finding_is_told_with_who_finds_what_and_how_well(capsys, asked):
    told = " ".join(run(capsys).split())
    clicks, engagement = re.findall(r"• (corrected: [^•]*?)\. (?=[•R])", told)
    assert clicks.startswith("corrected: coordinator, by where the gradient is not 0, finds clicks in 100.0 %")
    assert "guessing: 50.0 %" in clicks and "interval" not in clicks
    assert "R² = 0.500" in engagement and engagement.endswith("0.250 to 0.750") and "nan" not in told
    assert f"corrected: {MODES['corrected']}." in told
    assert asked == [SlateAttack()] and asked[0].modes == tuple(MODES)


def test_a_program_gets_the_same_as_json_and_every_setting_reaches_the_attack(capsys, asked):
    whole = ("--seeds", "3", "--seed", "5", "--episodes", "8", "--candidates", "6", "--slate", "2", "--platforms", "3")
    real = ("--epsilon", "2", "--clip", "0.5", "--target-epsilons", "4", "1")
    nets = ("--time-budget", "30", "--local-widths", "8", "4", "--federated-widths", "2", "--batch", "7")
    text = run(capsys, "--modes", "corrected", "team", *whole, *real, *nets, "--json")
    content = json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    sizes = dict(candidates=6, slate=2, platforms=3, time_budget=30, batch=7)
    widths = dict(local_widths=(8, 4), federated_widths=(2,))
    noise = dict(epsilon=2.0, clip=0.5, target_epsilons=(4.0, 1.0))
    assert asked == [SlateAttack(("corrected", "team"), seeds=3, seed=5, episodes=8, **sizes, **widths, **noise)]
    assert content["platforms"] == 3 and content["seed"] == 5
    clicks, engagement = content["leaks"]
    assert clicks["exact"] == {"mean": 1.0, "low": 1.0, "high": 1.0} and "r2" not in clicks
    assert engagement["rank"]["mean"] is None and engagement["r2"]["high"] == 0.75
    assert "clicks in 100.0 %" in clicks["words"] and "R² = 0.500" in engagement["words"]


def test_a_page_opens_with_what_another_platform_reads(capsys, asked, tmp_path):
    page = tmp_path / "attack.html"
    assert f"page: {page}" in run(capsys, "--out", str(page)).replace("\n", "")
    text = page.read_text(encoding="utf-8")
    sentence = re.search('<p class="sentence">(.*?)</p>', text)[1]
    assert "platform B reads 50.0 % of the variance of A’s engagement" in sentence
    assert "coordinator finds clicks in 100.0 % of cases; guessing finds 50.0 %" in sentence
    numbers = re.search('<dl class="numbers">(.*?)</dl>', text)[1]
    assert "0.500" in numbers and "0.250 to 0.750" in numbers and numbers.count("<dt>") == 2
    assert 'aria-label="R² of the best guess' in text and "nan" not in text and text.count("<tr>") == 3
    assert asked


def test_a_page_of_clicks_only_has_no_chart(tmp_path):
    sure, half = MeanInterval(1.0, 1.0, 1.0), MeanInterval(0.5, math.nan, math.nan)
    leak = Leak("corrected", "coordinator", "clicks", "where the gradient is not 0", {"exact": sure, "blind": half})
    text = write_page([leak], SlateAttack(seeds=1), tmp_path / "attack.html").read_text(encoding="utf-8")
    assert "<svg" not in text and "nan" not in text


def test_a_mode_that_does_not_exist_is_refused(capsys):
    with pytest.raises(UnknownNameError, match="published"):
        run(capsys, "--modes", "secret")
