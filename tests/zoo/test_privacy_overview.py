"""``fedrank privacy overview``: promises by their closed forms, protocol by protocol."""

import json
import math

from fedrank.cli.main import call
from fedrank.core.privacy_report import PrivacyReport, Promise, Unit
from fedrank_zoo.promises import DEFAULTS, Promised


def rows(capsys, *arguments):
    assert call(["privacy", "overview", *arguments, "--json"]) == 0
    return {(row["protocol"], row["mode"]): row for row in json.loads(capsys.readouterr().out)}


def test_the_modes_of_foltr_es_promise_what_their_settings_say(capsys):
    found = rows(capsys, "foltr-es", "pdgd")
    life = found["foltr-es", "defaults: a user's life"]
    assert (life["epsilon"], life["delta"], life["unit"], life["trust"]) == (1.0, 0.0, "user", "nobody")
    hidden = found["foltr-es", "a user's life, anonymous channel"]
    assert 0.99 < hidden["epsilon"] <= 1.0 and hidden["delta"] == 1e-6 and "anonymous channel" in hidden["trust"]
    # 250 rounds of 4 interactions of ε = ln(0.9 · 10 / 0.1) each, composed: less than their sum.
    assert 0.9 < found["foltr-es", "the paper's, an interaction"]["epsilon"] / (1000 * math.log(90)) < 1
    assert found["pdgd", "defaults"]["epsilon"] is None and found["pdgd", "defaults"]["trust"].startswith("everybody")


def test_an_attack_stands_beside_what_is_promised(capsys):
    found = rows(capsys, "foltr-es", "--audit", "--trials", "2000")["foltr-es", "defaults: a user's life"]["audited"]
    assert found["promised"] == 1.0 and 0.3 < found["shown"] <= 1.0 and found["trials"] == 2000


def test_what_is_shown_first_is_about_the_most_and_about_all_that_is_sent():
    promises = (
        Promise(Unit.INTERACTION, 0.1), Promise(Unit.USER, 2.0, scope="a part"), Promise(Unit.USER, math.inf),
        Promise(Unit.USER, 5.0, 1e-6), Promise(Unit.USER, 7.0),
    )  # fmt: skip
    one = Promised("mine", DEFAULTS, 3, PrivacyReport("noise", "nobody", promises))
    assert one.first == Promise(Unit.USER, 5.0, 1e-6)
    assert Promised("mine", DEFAULTS, 3, PrivacyReport.none(3)).first is None


def test_the_table_names_protocols_that_promise_nothing(capsys):
    assert call(["privacy", "overview", "pdgd", "mgd"]) == 0
    out = capsys.readouterr().out
    assert "mgd" in out and "pdgd" in out and "Promises nothing" in out


def test_an_unknown_protocol_is_refused(capsys):
    assert call(["privacy", "overview", "nothing-like-it"]) == 1
    assert "nothing-like-it" in capsys.readouterr().err
