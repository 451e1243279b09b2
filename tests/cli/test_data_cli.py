"""``fedrank data`` as a person and as a program see it."""

import json
import subprocess
import sys

import pytest

from fedrank.cli.data import app
from fedrank.core.errors import DataError, FormatError, MissingDataError, UnknownNameError
from fedrank.ranking.logs.learn import learn_from_log


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDRANK_DATA", str(tmp_path))
    return tmp_path


def run(capsys, *tokens):
    app(list(tokens), exit_on_error=False, result_action="return_value")
    return capsys.readouterr().out


@pytest.fixture
def files(tmp_path):
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "train.txt").write_text("2 qid:1 1:0.5 2:7\n0 qid:1 1:1.5 2:7\n0 qid:2 1:1 2:7\n")
    (folder / "test.txt").write_text("1 qid:3 1:-4 2:7\n")
    return folder


def test_list(capsys, cache):
    (cache / "mq2008").mkdir()
    rows = {row["name"]: row for row in json.loads(run(capsys, "list", "--json"))}
    assert rows["mq2008"]["here"] and not rows["mq2007"]["here"] and rows["generated"]["here"]
    assert rows["mslr-web10k"]["features"] == 136
    text = run(capsys, "list")
    assert "mq2007" in text and "69,623" in text and "generated" in text


def test_show(capsys):
    text = run(capsys, "show", "mq2008")
    assert "15,211 documents" in text and "fedrank data get mq2008" in text and "@article{qin2013letor4," in text
    facts = json.loads(run(capsys, "show", "Yahoo-Set1", "--json"))
    assert facts["queries"] == 29_921 and facts["here"] is None and facts["citation"] == "chapelle2011yahoo"
    assert "Generated" in run(capsys, "show", "generated")
    with pytest.raises(UnknownNameError, match="Did you mean"):
        run(capsys, "show", "mq208")


def test_get(capsys, cache):
    (cache / "MQ2007").mkdir()
    assert json.loads(run(capsys, "get", "mq2007", "--json"))["folder"] == str(cache / "MQ2007")
    assert str(cache / "MQ2007") in run(capsys, "get", "mq2007")
    assert "no download" in run(capsys, "get", "generated")
    with pytest.raises(MissingDataError, match="Ask Yahoo"):
        run(capsys, "get", "yahoo-set2")


def test_check(capsys, files):
    found = json.loads(run(capsys, "check", str(files), "--json"))
    assert found["name"] == "mine" and found["normalise"] == "query-minmax"
    assert found["parts"]["train"] == {
        "queries": 2,
        "queries without a relevant document": 1,
        "documents": 3,
        "documents a query, fewest": 1,
        "documents a query, most": 2,
        "labels": {"0": 2, "1": 0, "2": 1},
        "features": 2,
        "constant features": [2],
        "lowest feature value": 0.5,
        "highest feature value": 7.0,
    }
    assert found["parts"]["test"]["lowest feature value"] == -4
    assert found["notes"] == ["The validation part is not here."]
    text = run(capsys, "check", str(files))
    assert "0: 2, 1: 0, 2: 1" in text and "query-minmax" in text and "Note: The validation part" in text


def test_check_of_generated_data_needs_no_normalisation(capsys):
    found = json.loads(run(capsys, "check", "generated", "--json"))
    assert found["normalise"] == "none" and "Generated data" in found["notes"][0]


def test_check_names_file_and_line(capsys, files):
    (files / "test.txt").write_text("1 qid:3 1:-4 2:7\n1 qid:3 1:nan\n")
    with pytest.raises(FormatError, match=r"test.txt:2: the value of feature 1"):
        run(capsys, "check", str(files))


def test_check_of_a_click_log_says_what_is_in_it_and_refuses_as_learning_does(capsys, tmp_path):
    log, bad = tmp_path / "log.csv", tmp_path / "bad.csv"
    lines = ["session,query,document,position,click,x", "1,q,a,1,1,.1", "1,q,b,2,0,.2", "2,q,b,1,0,.2", "2,q,a,2,1,.1"]
    log.write_text("\n".join([*lines, "3,r,a,1,0,.3", "4,r,a,1,yes,.3"]) + "\n")
    found = json.loads(run(capsys, "check", str(log), "--json"))
    assert [found[name] for name in ("kind", "sessions", "queries", "results shown", "clicks")] == ["log", 4, 2, 6, 3]
    assert (found["pairs of query and document"], found["pairs at several positions"]) == (3, 2)
    assert found["feature_names"] == ["x"]
    bad.write_text("query,document,position,click\nq,a,1,maybe\n")
    with pytest.raises(DataError) as refused:
        run(capsys, "check", str(bad))
    with pytest.raises(DataError) as same:
        learn_from_log(bad)
    assert str(refused.value) == str(same.value)


def test_the_module_is_quick_to_import():
    heavy = "[m for m in ('jax', 'numpy', 'sklearn', 'pooch', 'rich.table') if m in sys.modules]"
    code = f"import sys, fedrank.cli.data; print({heavy})"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "clinics.csv"
    path.write_text("clinic,age,town,ill\nnorth,50,5,no\nnorth,40,5,yes\nsouth,,6,no\nsouth,30,7,yes\n")
    return path


def test_list_and_show_name_tables_of_silos_by_what_they_have(capsys, cache):
    (cache / "heart-disease").mkdir()
    rows = {row["name"]: row for row in json.loads(run(capsys, "list", "--json"))}
    heart = rows["heart-disease"]
    assert (heart["kind"], heart["silos"], heart["rows"], heart["here"]) == ("silos", 4, 920, True)
    assert rows["mq2008"]["kind"] == "ranking" and rows["health-insurance"]["rows"] == 8802
    assert "heart-disease" in run(capsys, "list")
    text = run(capsys, "show", "health-insurance")
    assert "4 silos, 8,802 rows" in text and "queries" not in text and "write.csv" in text
    assert json.loads(run(capsys, "show", "heart-disease", "--json"))["kind"] == "silos"
    with pytest.raises(UnknownNameError, match="Did you mean 'heart-disease'"):
        run(capsys, "show", "heart-desease")
    with pytest.raises(MissingDataError, match=r"processed.va.data"):
        (cache / "heart-disease").rmdir()
        run(capsys, "get", "heart-disease")


def test_check_reads_a_table_of_silos(capsys, table):
    columns = ("--silo", "clinic", "--label", "ill")
    found = json.loads(run(capsys, "check", str(table), *columns, "--json"))
    assert found["features"] == ["age", "town"] and found["label"] == "ill = yes"
    assert found["silos"]["south"] == {
        "rows": 2,
        "label 1": 1,
        "share of label 1": 0.5,
        "rows with a gap": 1,
        "constant or missing features": ["age"],
    }
    assert found["silos"]["north"]["constant or missing features"] == ["town"]
    text = run(capsys, "check", str(table), *columns, "--positive", "no", "--drop", "town")
    assert "north" in text and "Label 1: ill = no. Features, 1: age." in text
    with pytest.raises(UnknownNameError, match=r"no column of clinics.csv named 'label'"):
        run(capsys, "check", str(table))


@pytest.fixture
def texts(tmp_path):
    folder = tmp_path / "notes"
    folder.mkdir()
    (folder / "documents.jsonl").write_text(
        '{"id": "a", "title": "Wings", "text": "A wing in a slipstream"}\n{"id": "b", "text": "heat"}\n'
    )
    (folder / "queries.jsonl").write_text('{"id": "p", "text": "lift of wings"}\n{"id": "q", "text": "snow"}\n')
    (folder / "qrels.txt").write_text("p 0 a 2\np 0 b 0\n")
    return folder


def test_list_and_show_name_text_collections_by_what_they_have(capsys, cache):
    (cache / "text" / "cisi").mkdir(parents=True)
    rows = {row["name"]: row for row in json.loads(run(capsys, "list", "--json"))}
    cisi = rows["cisi"]
    assert (cisi["kind"], cisi["documents"], cisi["queries"], cisi["judged"]) == ("texts", 1460, 112, 76)
    assert cisi["judgements"] == 3114 and cisi["here"] and not rows["vaswani"]["here"]
    text = run(capsys, "list")
    assert "judged pairs" in text and "11,429" in text
    text = run(capsys, "show", "cranfield")
    assert "1,400 documents, 225 queries" in text and "1,837 judged pairs, grades 0 to 4" in text
    assert "fedrank data get cranfield" in text and "Cleverdon" in text and "features" not in text
    with pytest.raises(MissingDataError, match=r"put cacm.all, query.text and qrels.text there"):
        run(capsys, "get", "cacm")
    with pytest.raises(UnknownNameError, match="Did you mean 'vaswani'"):
        run(capsys, "show", "vaswany")


def test_check_summarises_a_text_collection(capsys, texts):
    for path in (texts, texts / "documents.jsonl"):
        found = json.loads(run(capsys, "check", str(path), "--json"))
        assert found == {
            "name": "notes",
            "kind": "texts",
            "documents": 2,
            "documents with a title": 1,
            "words of a body, median": 1.5,
            "words of a title, median": 0.5,
            "different words": 5,
            "queries": 2,
            "queries without a relevant document": 1,
            "judged pairs": 2,
            "grades": {"0": 1, "1": 0, "2": 1},
            "notes": [],
        }
    text = run(capsys, "check", str(texts))
    assert "notes" in text and "0: 1, 1: 0, 2: 1" in text and "judged pairs" in text
    (texts / "qrels.txt").write_text("p 0 c 2\n")
    with pytest.raises(FormatError, match=r"qrels.txt:1: no judgement .* 'p' and 'c'"):
        run(capsys, "check", str(texts))


def test_check_of_a_named_collection_that_is_not_here_says_how_to_get_it(capsys):
    with pytest.raises(MissingDataError, match="fedrank data get adi"):
        run(capsys, "check", "adi")


def test_list_says_how_to_get_what_is_not_here(capsys, cache):
    (cache / "mslr-web10k").mkdir()
    rows = {row["name"]: row for row in json.loads(run(capsys, "list", "--json"))}
    assert (
        rows["mslr-web30k"]["get"] == "fedrank data get mslr-web30k" and "redistribute" in rows["mslr-web30k"]["terms"]
    )
    assert rows["yahoo-set1"]["get"].startswith("Ask Yahoo") and rows["yahoo-set1"]["home"].startswith("https://")
    text = " ".join(run(capsys, "list").split())
    assert "fedrank data get mslr-web30k" in text and "fedrank data get mslr-web10k" not in text
    assert rows["yahoo-set1"]["home"] in text


def test_check_warns_of_labels_that_are_all_0(capsys, files, monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    (files / "train.txt").write_text("0 qid:1 1:0.5\n0 qid:1 1:1\n")
    (warning,) = json.loads(run(capsys, "check", str(files), "--json"))["warnings"]
    assert "'train'" in warning and warning in run(capsys, "check", str(files))
