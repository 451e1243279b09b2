"""The sentences that a reader gets, word by word."""

import json

import pytest
from report_factory import make_run

from fedrank.core.errors import RunError
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


def test_of_a_population_only_some_take_part_in_a_round(tmp_path):
    folder = make_run(tmp_path / "run")
    config = (folder / "config.toml").read_text(encoding="utf-8")
    (folder / "config.toml").write_text(f"population = 1000\n{config}", encoding="utf-8")
    said = ledger_words(load(folder))
    assert "10 of the devices sent the server 9 bytes (message Reply) each, in each of 6 rounds." in said[1]


def test_privacy_in_words(tmp_path):
    # ε of an interaction: log(0.5 · 10 / 0.5) = log 10, odds change by 10; four interactions; six rounds.
    said, trust, attacked = privacy_words(load(make_run(tmp_path / "run", p=0.5)))
    for words in (
        "with probability 0.5",
        "11 values",
        "ε = 2.3, without any trust in the server",
        "10 times as likely",
    ):
        assert words in said
    assert "4 interactions and has ε = 9.21" in said and "6 messages has, over the run, ε = 55.26 by basic" in said
    assert "little meaning" in said and "δ = 1e-06" in said
    assert trust == "Whom one has to trust for this: nobody."
    assert attacked.endswith(f"fedrank privacy audit {tmp_path / 'run'}")


def test_no_privatisation_in_words(tmp_path):
    said, trust = privacy_words(load(make_run(tmp_path / "run", p=1)))
    assert "no differential privacy" in said and "ε is infinite" in said and "everybody" in trust


def test_a_report_on_privacy_that_lacks_something_is_refused(tmp_path):
    for without in ["mechanism", "trust", "promises", "details", "words"]:
        folder = make_run(tmp_path / "run")
        content = json.loads((folder / "privacy.json").read_text())
        del content[without]
        (folder / "privacy.json").write_text(json.dumps(content))
        with pytest.raises(RunError, match=r"privacy\.json: must hold a report on privacy"):
            load(folder)


@pytest.mark.parametrize(
    ("settings", "caveats"),
    [
        ({}, []),
        ({"data": "generated"}, ["Generated data: no real collection"]),
        ({"done": False, "asked_rounds": 20}, ["Unfinished: 6 of 20 rounds so far"]),
        ({"asked_seeds": 5}, ["Fewer seeds than asked for: 2 of 5"]),
        ({"caveat": "As published: devices share random numbers"}, ["As published: devices share random numbers"]),
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
