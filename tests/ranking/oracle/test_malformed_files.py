"""Malformed files of ranking data: each is refused with one error that names the file, or read as it says here."""

import bz2
import gzip

import pytest

from fedrank.core.errors import FormatError
from fedrank.ranking.data.letor import read

GOOD = "1 qid:1 1:0.5 2:1 # a\n0 qid:1 1:0.1 2:0 # b\n2 qid:2 1:0.9 2:0.3\n"
TEXTS = {
    "no label": GOOD + "qid:3 1:1\n",
    "label is a word": GOOD + "good qid:3 1:1\n",
    "negative label": GOOD + "-1 qid:3 1:1\n",
    "half label": GOOD + "0.5 qid:3 1:1\n",
    "infinite label": GOOD + "inf qid:3 1:1\n",
    "label that is not a number": GOOD + "nan qid:3 1:1\n",
    "label beyond 32 bits": GOOD + "99999999999 qid:3 1:1\n",
    "label in scientific notation": GOOD + "1e0 qid:3 1:1\n",
    "no query": GOOD + "1 1:1 2:1\n",
    "query without an id": GOOD + "1 qid: 1:1\n",
    "query after the features": GOOD + "1 1:1 qid:3\n",
    "two queries in a row": GOOD + "1 qid:3 qid:4 1:1\n",
    "query begins again": GOOD + "1 qid:1 1:1\n",
    "query id that is text": GOOD + "1 qid:web-7 1:1\n",
    "query id in capitals": GOOD + "1 QID:3 1:1\n",
    "feature without an index": GOOD + "1 qid:3 :1\n",
    "feature without a value": GOOD + "1 qid:3 1:\n",
    "feature without a colon": GOOD + "1 qid:3 0.5\n",
    "feature that is a word": GOOD + "1 qid:3 1:high\n",
    "feature with two colons": GOOD + "1 qid:3 1:2:3\n",
    "feature that is not a number": GOOD + "1 qid:3 1:nan\n",
    "infinite feature": GOOD + "1 qid:3 1:inf\n",
    "feature beyond 32 bits": GOOD + "1 qid:3 1:1e300\n",
    "feature too small for 32 bits": GOOD + "1 qid:3 1:1e-300\n",
    "decimal comma": GOOD + "1 qid:3 1:0,5\n",
    "hexadecimal value": GOOD + "1 qid:3 1:0x10\n",
    "negative index": GOOD + "1 qid:3 -1:1\n",
    "index that is a word": GOOD + "1 qid:3 a:1\n",
    "index with a fraction": GOOD + "1 qid:3 1.5:1\n",
    "index far too large": GOOD + "1 qid:3 999999999:1\n",
    "index twice in a row": GOOD + "1 qid:3 1:1 1:2\n",
    "indices that fall": GOOD + "1 qid:3 2:1 1:2\n",
    "index 0 beside others": GOOD + "1 qid:3 0:1 1:2\n",
    "row without features": GOOD + "1 qid:3\n",
    "empty lines": GOOD.replace("\n", "\n\n"),
    "comment lines": "# made by hand\n" + GOOD,
    "tabs and double spaces": GOOD.replace(" ", "\t ", 2),
    "Windows line ends": GOOD.replace("\n", "\r\n"),
    "old Macintosh line ends": GOOD.replace("\n", "\r"),
    "no line end at the end": GOOD.rstrip("\n"),
    "a byte-order mark": "\ufeff" + GOOD,
    "all labels 0": GOOD.replace("2 qid", "0 qid").replace("1 qid:1 1:0.5", "0 qid:1 1:0.5"),
}
BYTES = {
    "nothing": b"",
    "blank lines only": b"\n\n\n",
    "comments only": b"# nothing\n",
    "UTF-16": GOOD.encode("utf-16"),
    "a cut .gz": gzip.compress(GOOD.encode())[:-9],
    "a damaged .bz2": bz2.compress(GOOD.encode())[:20] + b"xx" + bz2.compress(GOOD.encode())[22:],
    "a zip": b"PK\x03\x04" + b"0" * 40,
    "bytes of a picture": b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR",
    "zero bytes": b"\0" * 100,
    "a comma-separated table": b"label,qid,f1\n1,1,0.5\n",
    "JSON lines": b'{"label": 1, "qid": 1}\n',
    "a Latin-1 comment": GOOD.encode() + "1 qid:3 1:1 # Z\u00fcrich\n".encode("latin-1"),
    "a web page": b"<!DOCTYPE html><html>404</html>\n",
}

#: What is read all the same: queries, documents, features, the last document's label and features.
READ = {
    "label in scientific notation": (3, 4, 2, 1, [1.0, 0.0]),
    "query id that is text": (3, 4, 2, 1, [1.0, 0.0]),
    "feature too small for 32 bits": (3, 4, 2, 1, [0.0, 0.0]),
    "index 0 beside others": (3, 4, 3, 1, [1.0, 2.0, 0.0]),
    "row without features": (3, 4, 2, 1, [0.0, 0.0]),
    "empty lines": (2, 3, 2, 2, [0.8999999761581421, 0.30000001192092896]),
    "comment lines": (2, 3, 2, 2, [0.8999999761581421, 0.30000001192092896]),
    "tabs and double spaces": (2, 3, 2, 2, [0.8999999761581421, 0.30000001192092896]),
    "Windows line ends": (2, 3, 2, 2, [0.8999999761581421, 0.30000001192092896]),
    "old Macintosh line ends": (2, 3, 2, 2, [0.8999999761581421, 0.30000001192092896]),
    "a byte-order mark": (2, 3, 2, 2, [0.8999999761581421, 0.30000001192092896]),
    "all labels 0": (2, 3, 2, 0, [0.8999999761581421, 0.30000001192092896]),
    "a Latin-1 comment": (3, 4, 2, 1, [1.0, 0.0]),
}
#: What the error says of what is refused.
SAID = {
    "no label": (4, "the label is missing: the row begins with 'qi"),
    "label is a word": (4, "the label must be a number"),
    "negative label": (4, "the label must be a whole number"),
    "half label": (4, "the label must be a whole number"),
    "infinite label": (4, "the label must be a whole number"),
    "label that is not a number": (4, "the label must be a whole number"),
    "label beyond 32 bits": (4, "the label must be a whole number"),
    "no query": (4, "the label must be followed by the query"),
    "query without an id": (4, "the label must be followed by the query"),
    "query after the features": (4, "the label must be followed by the query"),
    "two queries in a row": (4, "expected index:value"),
    "query begins again": (4, "the rows of query 1 are not next to each othe"),
    "query id in capitals": (4, "the label must be followed by the query"),
    "feature without an index": (4, "expected index:value"),
    "feature without a value": (4, "the value of feature 1 must be a number"),
    "feature without a colon": (4, "expected index:value"),
    "feature that is a word": (4, "the value of feature 1 must be a number"),
    "feature with two colons": (4, "the value of feature 1 must be a number"),
    "feature that is not a number": (4, "the value of feature 1 is not a finite 32-bit"),
    "infinite feature": (4, "the value of feature 1 is not a finite 32-bit"),
    "feature beyond 32 bits": (4, "the value of feature 1 is not a finite 32-bit"),
    "decimal comma": (4, "the value of feature 1 must be a number"),
    "hexadecimal value": (4, "the value of feature 1 must be a number"),
    "negative index": (4, "feature index -1 is out of range"),
    "index that is a word": (4, "expected index:value"),
    "index with a fraction": (4, "expected index:value"),
    "index far too large": (4, "feature index 999999999 makes 999"),
    "index twice in a row": (4, "feature 1 occurs twice"),
    "indices that fall": (4, "feature indices must ascend"),
    "no line end at the end": (3, "the last line ends early"),
    "nothing": (None, "the file is empty"),
    "blank lines only": (None, "the file has no rows"),
    "comments only": (None, "the file has no rows"),
    "UTF-16": (1, "the text is UTF-16"),
    "a cut .gz": (None, "the packed file is cut or damaged after line"),
    "a damaged .bz2": (None, "the packed file is cut or damaged after line"),
    "a zip": (None, "this is a zip archive"),
    "bytes of a picture": (1, "the label must be a number"),
    "zero bytes": (1, "this is a binary file"),
    "a comma-separated table": (1, "the label must be a number"),
    "JSON lines": (1, "the label is missing: the row begins with '{\""),
    "a web page": (1, "the label must be a number"),
}


def written(tmp_path, name):
    path = tmp_path / "file.txt"
    path.write_bytes(BYTES[name] if name in BYTES else TEXTS[name].encode())
    return path


def test_refused(tmp_path):
    for name in SAID:
        line, said = SAID[name]
        with pytest.raises(FormatError) as caught:
            read(written(tmp_path, name))
        assert f"file.txt{'' if line is None else f':{line}'}: " in str(caught.value) and said in str(caught.value)


def test_read_all_the_same(tmp_path):
    for name in READ:
        queries = read(written(tmp_path, name))
        found = (queries.n_queries, queries.n_documents, queries.n_features, int(queries.labels[-1]))
        assert found == READ[name][:4]
        assert queries.features[-1].tolist() == pytest.approx(READ[name][4])


def test_every_file_is_listed():
    assert set(READ) | set(SAID) == set(TEXTS) | set(BYTES) and not set(READ) & set(SAID)
