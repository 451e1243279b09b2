"""``fedrank slates``."""

import json

import pytest

from fedrank.cli.main import call


def test_logs_are_judged_in_a_table_and_as_json(tmp_path, capsys):
    assert call(["slates", "evaluate", str(tmp_path / "logs"), "--example"]) == 0
    said = capsys.readouterr().out
    assert "choosy" in said and "snips" in said and "Made up" in said and "6,000 rows judged" in said
    assert all(len(line) <= 80 for line in said.splitlines() if "platform" in line or "even" in line)
    even = str(tmp_path / "logs" / "even.csv")
    assert call(["slates", "evaluate", even, "--policy", "uniform", "best-2", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["learnt_from_rows"] == 3000
    first, second = found["results"]
    assert (first["policy"], first["platform"], second["policy"]) == ("uniform", "even", "best-2")
    assert first["ips"] == first["logged"] and second["effective_rows"] < 1000
    assert second["dr"]["low"] < second["dr"]["value"] < second["dr"]["high"]
    mine = tmp_path / "mine.csv"
    mine.write_text("item_id,probability\n3,1\n")
    assert call(["slates", "evaluate", even, "--policy", str(mine)]) == 0
    assert "6,000 rows judged." in capsys.readouterr().out, "nobody learns, so all rows are judged"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--policy", "best-99"], "there are 20 items"),
        (["--policy", "nobody"], "no such policy"),
        (["--learn", "1"], "between 0 and 1"),
        (["--learn", "0.00001"], "no row to learn from"),
        (["--example"], "one new folder"),
    ],
)
def test_what_is_refused(tmp_path, capsys, words, said):
    assert call(["slates", "evaluate", str(tmp_path / "logs"), "--example", "--json"]) == 0
    capsys.readouterr()
    assert call(["slates", "evaluate", str(tmp_path / "logs"), *words]) == 1
    assert said in capsys.readouterr().err
