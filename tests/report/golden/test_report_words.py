"""The sentences that a reader gets, word by word."""

import json

import pytest
from report_factory import make_run

from fedrank.report import describe
from fedrank.report.load import load
from fedrank.report.words import ledger_words, privacy_words


def test_the_ledger_in_words(tmp_path):
    # 10 devices × 6 rounds × 9 bytes up, × 189 bytes down.
    assert ledger_words(load(make_run(tmp_path / "run"))) == [
        "Exchange “try-perturbation”: the server sent each device 189 bytes (message Request), in each of 6 rounds.",
        "Exchange “try-perturbation”: each device sent the server 9 bytes (message Reply), in each of 6 rounds.",
        "10 devices and 6 rounds make 540 bytes up and 11.3 kB down, for one run of one seed; each of the other seeds "
        "moved as much. Transport (TCP, TLS, HTTP) comes on top.",
    ]


def test_privacy_in_words(tmp_path):
    # ε of an interaction: log(0.5 · 10 / 0.5) = log 10, odds change by 10; four interactions; six rounds.
    assert privacy_words(load(make_run(tmp_path / "run", p=0.5))) == [
        "Mechanism: randomised response. With probability 0.5 an interaction's value is reported as it is; otherwise "
        "one of the other 10 values is reported, each as likely. This happens on the device.",
        "One interaction: ε = 2.30, without any trust in the server. What is reported changes an observer's odds by a "
        "factor of at most 10.",
        "One message, which covers 4 interactions: ε = 9.21.",
        "One user who takes part in all 6 rounds: ε = 55.26 by adding up; 44.21 at δ = 1e-06 by privacy loss "
        "distributions. That allows a factor of e^44.21 on an observer's odds: too large to be a promise.",
    ]


def test_no_privatisation_in_words(tmp_path):
    run = load(make_run(tmp_path / "run", p=1))
    assert privacy_words(run)[0] == (
        "Nothing is randomised: each device reports its true values, and there is no bound on what they reveal (ε = ∞)."
    )


@pytest.mark.parametrize(
    ("settings", "caveats"),
    [
        ({}, []),
        ({"data": "generated"}, ["Generated data: no real collection"]),
        ({"done": False, "asked_rounds": 20}, ["Unfinished: 6 of 20 rounds so far"]),
        ({"asked_seeds": 5}, ["Fewer seeds than asked for: 2 of 5"]),
        (
            {"as_published": True},
            ["As published: users share the perturbation's random numbers, which biases the gradient"],
        ),
    ],
)
def test_caveats(tmp_path, settings, caveats):
    assert describe.caveats(load(make_run(tmp_path / "run", **settings))) == caveats


def test_a_run_without_ledger_and_privacy_says_so(tmp_path):
    folder = make_run(tmp_path / "run", done=False)
    for name in ("ledger.jsonl", "privacy.json", "messages.json", "model.json", "baselines.json"):
        (folder / name).unlink()
    run = load(folder)
    assert ledger_words(run) == ["The run has not written its ledger yet."]
    assert privacy_words(run) == ["The run has not written its privacy statement yet."]


def test_a_message_of_another_size_is_another_line(tmp_path):
    folder = make_run(tmp_path / "run")
    lines = (folder / "ledger.jsonl").read_text().splitlines()
    last = json.loads(lines[-1])
    last.update(bytes_each=11, bytes=11 * last["messages"])
    (folder / "ledger.jsonl").write_text("\n".join([*lines[:-1], json.dumps(last)]) + "\n")
    told = ledger_words(load(folder))
    assert any("9 bytes (message Reply), in each of 5 rounds" in line for line in told)
    assert any("11 bytes (message Reply), once" in line for line in told)
