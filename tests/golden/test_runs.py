"""Tiny runs give the recorded numbers, within what another processor's arithmetic may change.

The recording was made on one machine; ``tests/golden/runs`` says how two versions of the code are compared bit for bit.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from golden.runs.cases import CASES, QUICK
from golden.runs.compare import differences, failing, main, table
from golden.runs.digest import digest
from golden.runs.record import record, select, to_json
from safetensors.numpy import save_file

RECORDED = Path(__file__).parent / "runs" / "recorded.json"
OTHERS = [case.name for case in CASES if case.name not in QUICK and not case.real]
#: Tests that the other cases are divided among, which may run at once.
PARTS = 12
REAL = [case.name for case in CASES if case.real]


@pytest.fixture(scope="session")
def recording():
    return json.loads(RECORDED.read_text(encoding="utf-8"))


def _same(names, recording):
    cache = os.environ.get("JAX_COMPILATION_CACHE_DIR")
    ours = record(select(names), quiet=True, cache=Path(cache) if cache else None)
    found = differences({name: recording[name] for name in names}, ours, exact=False)
    assert not failing(found), "\n" + table(found)


def test_every_case_is_in_the_recording_and_no_other(recording):
    assert set(recording) == {case.name for case in CASES}
    assert len({case.name for case in CASES}) == len(CASES)
    assert not any(key.startswith("status") for one in recording.values() for key in one.get("output", {}))


def test_quick_cases_give_the_recorded_numbers(recording):
    _same(QUICK, recording)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_all_cases_give_the_recorded_numbers(recording, part):
    _same(OTHERS[part::PARTS], recording)


@pytest.mark.slow
@pytest.mark.realdata
def test_cases_with_real_data_give_the_recorded_numbers(recording):
    if not os.environ.get("FEDRANK_DATA"):
        pytest.skip("real data are needed: set FEDRANK_DATA")
    _same(REAL, recording)


# -- what a difference is --------------------------------------------------------------------------------------------


def _folder(path: Path, *, weight=0.5, value=0.25, sent=9, epsilon=4.0, cell="1.5", where="run", column="value"):
    """A case's folder as a run leaves it, with one number of each kind."""
    run = path / where
    (run / "weights").mkdir(parents=True)
    save_file({"weight": np.array([[weight, 1.0]], np.float32)}, run / "weights" / "seed0.safetensors")
    row = {"seed": 0, "round": 2, "split": "test", "measure": "nDCG(dcg='exp-log2')@10", column: value}
    pl.DataFrame([row, row | {"round": 1}]).write_parquet(run / "metrics.parquet")
    line = {"round": 0, "exchange": "train", "sender": "server", "receiver": "parties", "messages": 2, "bytes": sent}
    (run / "ledger.jsonl").write_text(json.dumps(line) + "\n")
    (run / "privacy.json").write_text(json.dumps({"epsilon": epsilon, "words": ["ε = 4"]}))
    (run / "report.html").write_text(f"<table><tr><td>nDCG(dcg='exp-log2')@10</td><td>{cell}</td></tr></table>")
    (run / "environment.json").write_text(json.dumps({"seconds": 3.0 + float(weight)}))
    (path / "status.json").write_text(json.dumps([{"status": 0, "out": "", "errors": "", "seconds": 1.0}]))
    return digest(path)


@pytest.mark.parametrize(
    ("changed", "kind"),
    [
        ({"weight": np.nextafter(np.float32(0.5), np.float32(1))}, "weights"),
        ({"value": np.nextafter(0.25, 1)}, "metrics"),
        ({"sent": 10}, "ledger"),
        ({"epsilon": np.nextafter(4.0, 5)}, "privacy"),
        ({"cell": "1.6"}, "pages"),
    ],
)
def test_the_last_bit_of_a_number_is_a_difference_of_its_kind(tmp_path, changed, kind):
    before, after = {"a": _folder(tmp_path / "1")}, {"a": _folder(tmp_path / "2", **changed)}
    found = differences(before, after, exact=True)
    assert [name for name, lines in found["a"].items() if lines] == [kind]
    assert failing(found) == (kind != "pages") and failing(found, pages=True)
    within = differences(before, after, exact=False)
    assert failing(within, pages=True) == (kind in ("ledger", "pages"))


@pytest.mark.parametrize("changed", [{"weight": 0.501}, {"value": 0.251}, {"sent": 10}, {"epsilon": 4.001}])
def test_more_than_the_tolerance_is_a_difference(tmp_path, changed):
    before, after = {"a": _folder(tmp_path / "1")}, {"a": _folder(tmp_path / "2", **changed)}
    assert failing(differences(before, after, exact=False))


def test_a_report_on_privacy_has_the_numbers_of_recordings_made_when_its_shape_was_another(tmp_path):
    """Every ε of the older shape is looked for, also one that is gone or of which there are two."""

    def made(name, content):
        (tmp_path / name).mkdir()
        _folder(tmp_path / name / "case")
        (tmp_path / name / "case" / "run" / "privacy.json").write_text(json.dumps(content))
        return {"a": digest(tmp_path / name / "case")}

    promises = [
        {"unit": unit, "epsilon": epsilon, "delta": 0.0, "basis": "x", "scope": ""}
        for unit, epsilon in (("message", 4.0), ("user", 7.0), ("user", 8.0))
    ]
    new = {"mechanism": "noise", "epsilon_round": 4.0, "promises": promises, "details": {"scale": 2.0}}
    old = {"epsilon_message": 4.0, "epsilon_round": 4.0, "epsilon_user_pld": 7.0, "epsilon_user_basic": 8.0, "scale": 2}
    before = made("old", old)
    assert not failing(differences(before, made("new", new), exact=True))
    for k in range(3):
        fewer = made(f"fewer{k}", new | {"promises": promises[:k] + promises[k + 1 :]})
        other = made(
            f"other{k}", new | {"promises": [p | {"epsilon": p["epsilon"] + (p is promises[k])} for p in promises]}
        )
        assert failing(differences(before, fewer, exact=False)) and failing(differences(before, other, exact=False))


def test_files_that_moved_are_found_by_content_and_files_that_are_gone_are_not(tmp_path):
    before, moved = {"a": _folder(tmp_path / "1")}, {"a": _folder(tmp_path / "2", where="runs/first")}
    assert not failing(differences(before, moved, exact=True), pages=True)
    for kind in ("weights", "metrics", "ledger", "privacy"):
        gone = {"a": {name: items for name, items in before["a"].items() if name != kind}}
        assert failing(differences(before, gone, exact=True)) and failing(differences(gone, before, exact=False))


def test_names_alone_that_differ_are_said_to(tmp_path):
    before, after = {"a": _folder(tmp_path / "1")}, {"a": _folder(tmp_path / "2", column="worth")}
    found = differences(before, after, exact=True)
    assert failing(found) and "worth" in table(found)


def test_the_command_tells_equal_from_different(tmp_path, capsys):
    for name, weight in (("one", 0.5), ("two", 0.5), ("three", 0.75)):
        (tmp_path / f"{name}.json").write_text(to_json({"a": _folder(tmp_path / name, weight=weight)}))
    one, two, three = (str(tmp_path / f"{name}.json") for name in ("one", "two", "three"))
    assert main([one, two, "--exact", "--pages"]) == 0
    assert main([one, three]) == 1
    assert "weight" in capsys.readouterr().out
