"""Ids of ir-datasets as data: its own collections, made here of three files."""

import numpy as np
import pytest

from fedrank.core.errors import DataError, UnknownNameError
from fedrank.data import load

ir_datasets = pytest.importorskip("ir_datasets")


def test_an_id_is_read_as_its_package_reads_it(tmp_path):
    (tmp_path / "docs.tsv").write_text("d1\tred apple pie\nd2\tgreen car\nd3\tblue sky\n")
    (tmp_path / "queries.tsv").write_text("q1\tapple\nq2\tcar\n")
    (tmp_path / "qrels").write_text("q1 0 d1 2\nq1 0 d2 -1\nq2 0 d2 1\n")
    made = ir_datasets.create_dataset(
        docs_tsv=str(tmp_path / "docs.tsv"),
        queries_tsv=str(tmp_path / "queries.tsv"),
        qrels_trec=str(tmp_path / "qrels"),
    )
    ir_datasets.registry.register("fedrank-mine", made)
    found = load("ir_datasets:fedrank-mine", "texts")
    assert found.document_ids == ("d1", "d2", "d3") and found.bodies[1] == "green car" and found.queries[0] == "apple"
    np.testing.assert_array_equal(found.grades, [2, 0, 1])
    with pytest.raises(UnknownNameError, match="Did you mean 'vaswani'"):
        load("ir_datasets:vaswanni", "texts")
    with pytest.raises(DataError, match="data of ranking is needed"):
        load("ir_datasets:fedrank-mine", "ranking")
