"""A real SuperLink and three SuperNodes on this machine, each with one silo's file: a study, as in memory."""

import json

import pytest
from flower_links import linked
from studies import SILOS, codebook, csv, node, rows

from fedrank.silos.studies.codebook import Question, codebook_toml
from fedrank.silos.studies.coordinator import run_study

pytestmark = pytest.mark.minutes

QUESTIONS = (
    Question(name="risk", formula="ill ~ age + sex + stage"),
    Question(name="table", model="table", formula="~ age + sex | ill"),
)


def test_three_silos_get_what_one_table_would_give(tmp_path):
    pytest.importorskip("flwr", reason="needs flwr: pip install -e ./flower")
    book = codebook(*QUESTIONS)
    parts = {silo: rows(100, k) for k, silo in enumerate(SILOS)}
    for silo, part in parts.items():
        csv(part, tmp_path / f"{silo}.csv")
    nodes = [node(book, silo, part) for silo, part in parts.items()]
    expected = run_study(book, lambda asked: [one.answer(asked) for one in nodes])
    (tmp_path / "codebook.toml").write_text(codebook_toml(book))
    tables = [
        f'silo="{silo}" data="{tmp_path}/{silo}.csv" state-dir="{tmp_path}/node-{silo}" codebook-sha256="{book.sha}"'
        for silo in SILOS
    ]
    values = {"codebook": f"{tmp_path}/codebook.toml", "study-dir": f"{tmp_path}/study", "round-timeout": 60.0}
    with linked(tmp_path, "study", tables) as run:
        said = run(**values)
        assert f"round {expected.number} is done" in said
        again = run(**values)  # the study has ended: its results are written anew
        assert "results" in again and "is done" not in again
    found = json.loads((tmp_path / "study" / "results" / "results.json").read_text())["questions"]
    theirs = expected.progress["risk"].result.estimate
    assert [one["estimate"] for one in found[0]["coefficients"]] == theirs.tolist()
    assert (tmp_path / "study" / "results" / "report.html").exists()
    assert all((tmp_path / f"node-{silo}" / "book.jsonl").exists() for silo in SILOS)
