"""``fedrank slates evaluate``."""

import json

import pytest

from fedrank.cli.main import call


def test_logs_are_judged_in_a_table_and_as_json(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")  # a table is as wide as this
    assert call(["slates", "evaluate", str(tmp_path / "logs"), "--example"]) == 0
    said = capsys.readouterr().out
    assert "choosy" in said and "sips" in said and "Made up" in said and "2,000 slates judged" in said
    assert all(len(line) <= 80 for line in said.splitlines() if "platform" in line or "even" in line)
    even = str(tmp_path / "logs" / "even.csv")
    assert call(["slates", "evaluate", even, "--policy", "uniform", "best-3", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["learnt_from_slates"] == 1000
    first, second = found["results"]
    assert (first["policy"], first["platform"], second["policy"]) == ("uniform", "even", "best-3")
    assert first["sips"]["value"] == pytest.approx(first["logged"]["value"])
    assert (first["slates"], first["rows"]) == (1000, 3000)
    assert second["effective_slates"] < 1000 and second["cdr"]["low"] < second["cdr"]["value"] < second["cdr"]["high"]
    mine = tmp_path / "mine.csv"
    mine.write_text("item_id,probability\n3,0.5\n4,0.25\n5,0.25\n")
    assert call(["slates", "evaluate", even, "--policy", str(mine)]) == 0
    assert "2,000 slates judged." in capsys.readouterr().out, "no policy learns, so all are judged"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--policy", "best-99"], "there are 20 items"),
        (["--policy", "nobody"], "no such policy"),
        (["--learn", "1"], "between 0 and 1"),
        (["--learn", "0.00001"], "no slate to learn from"),
        (["--example"], "one new folder"),
    ],
)
def test_what_is_refused(tmp_path, capsys, words, said):
    assert call(["slates", "evaluate", str(tmp_path / "logs"), "--example", "--json"]) == 0
    capsys.readouterr()
    assert call(["slates", "evaluate", str(tmp_path / "logs"), *words]) == 1
    assert said in capsys.readouterr().err
