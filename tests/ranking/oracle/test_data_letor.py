"""The LETOR reader on files written here, value by value and fault by fault."""

import bz2
import gzip
import io
import lzma

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_svmlight_file

from fedrank.core.errors import ConfigError, DataError, FormatError, MissingDataError
from fedrank.ranking.data import letor
from fedrank.ranking.data.queries import concatenate

GOOD = b"""\
# a comment of its own
2 qid:10 1:0.5 2:0.25 3:1 # docid = A
0 qid:10 1:0 3:-2.5

1 qid:7 2:1e-3   # no first, no third
0 qid:seven 1:3.0 2:4.0 3:5.0
"""


def write(path, content):
    path.write_bytes(content)
    return path


@pytest.fixture
def good(tmp_path):
    return write(tmp_path / "good.txt", GOOD)


def check_good(queries):
    expected = np.array([[0.5, 0.25, 1], [0, 0, -2.5], [0, 1e-3, 0], [3, 4, 5]], np.float32)
    np.testing.assert_array_equal(queries.features, expected)
    assert queries.labels.tolist() == [2, 0, 1, 0]
    assert queries.offsets.tolist() == [0, 2, 3, 4]
    assert queries.qids.tolist() == ["10", "7", "seven"]


def test_read(good):
    queries = letor.read(good)
    check_good(queries)
    assert queries.name == str(good)
    assert letor.read(good, name="mine").name == "mine"


def test_packed_files_are_known_by_their_content(tmp_path):
    for suffix in [".txt", ".anything"]:
        for pack in [gzip.compress, bz2.compress, lzma.compress]:
            check_good(letor.read(write(tmp_path / f"file{suffix}", pack(GOOD))))


def test_windows_line_ends_and_no_last_line_end(tmp_path):
    check_good(letor.read(write(tmp_path / "w", GOOD.replace(b"\n", b"\r\n"))))
    check_good(letor.read(write(tmp_path / "n", GOOD.rstrip(b"\n"))))


def test_labels_may_be_written_as_floats(tmp_path):
    assert letor.read(write(tmp_path / "f", b"1.0 qid:1 1:1\n")).labels.tolist() == [1]


def test_zero_based(tmp_path):
    path = write(tmp_path / "z", b"1 qid:1 0:7 2:9\n0 qid:1 1:8\n")
    expected = [[7, 0, 9], [0, 8, 0]]
    assert letor.read(path).features.tolist() == expected
    assert letor.read(path, zero_based=True).features.tolist() == expected
    with pytest.raises(FormatError, match=r":1: feature index 0 is outside 1..2"):
        letor.read(path, zero_based=False)
    one = write(tmp_path / "o", b"1 qid:1 1:7\n")
    assert letor.read(one).features.tolist() == [[7]]
    assert letor.read(one, zero_based=True).features.tolist() == [[0, 7]]


def test_where_indices_begin_is_decided_over_all_parts(tmp_path):
    sparse = write(tmp_path / "a", b"1 qid:1 1:7\n")
    full = write(tmp_path / "b", b"1 qid:2 0:5 3:6\n")
    first, second = letor.read_parts([sparse, full])
    assert first.features.tolist() == [[0, 7, 0, 0]] and second.features.tolist() == [[5, 0, 0, 6]]


def test_n_features(good):
    assert letor.read(good, n_features=5).features.shape == (4, 5)
    with pytest.raises(FormatError, match=r"good.txt:2: feature index 3 is outside 1..2"):
        letor.read(good, n_features=2)


def test_files_read_together_have_the_same_features(tmp_path):
    a = write(tmp_path / "a", b"1 qid:1 1:7\n")
    b = write(tmp_path / "b", b"0 qid:2 2:3\n0 qid:3 1:1\n")
    both = concatenate(letor.read_parts([a, b]), "ab")
    assert both.features.tolist() == [[7, 0], [0, 3], [1, 0]] and both.qids.tolist() == ["1", "2", "3"]
    with pytest.raises(DataError, match="query 1 occurs in two parts"):
        concatenate(letor.read_parts([a, write(tmp_path / "c", b"0 qid:1 1:0\n")]))


def test_groups(tmp_path):
    data = write(tmp_path / "rank.train", b"1 1:7\n0 2:8\n# note\n2 1:9\n")
    sizes = write(tmp_path / "rank.train.query", b"1\n2\n")
    queries = letor.read(data, groups=sizes)
    assert queries.features.tolist() == [[7, 0], [0, 8], [9, 0]]
    assert queries.offsets.tolist() == [0, 1, 3] and queries.qids.tolist() == ["1", "2"]
    for content, match in (
        (b"1\n1\n", "add up to 2 rows"),
        (b"1\nx\n", "query:2: the size .* got 'x'"),
        (b"0\n3\n", "query:1: the size"),
        (b"", "empty"),
    ):
        with pytest.raises(FormatError, match=match):
            letor.read(data, groups=write(tmp_path / "wrong.query", content))
    with pytest.raises(FormatError, match=r":1: this row has a qid"):
        letor.read(write(tmp_path / "both", b"1 qid:1 1:7\n"), groups=sizes)
    with pytest.raises(FormatError, match=r"rank.train:1: .*qid:NAME; got '1:7'.*groups"):
        letor.read(data)


HEAD = b"1 qid:1 1:1 2:2\n# note\n"  # so that faults lie on line 3 or after


def test_faults_are_reported_with_file_and_line(tmp_path):
    for rest, line, match in [
        (b"qid:1 1:1 2:2\n", 3, "label is missing"),
        (b"1:1 2:2\n", 3, "label is missing"),
        (b"one qid:1 1:1\n", 3, "label must be a number, got 'one'"),
        (b"-1 qid:1 1:1\n", 3, "0 or above, got -1"),
        (b"0.5 qid:1 1:1\n", 3, "whole number, 0 or above, got 0.5"),
        (b"nan qid:1 1:1\n", 3, "got nan"),
        (b"inf qid:1 1:1\n", 3, "got inf"),
        (b"1 1:1 2:2\n", 3, "qid:NAME; got '1:1'"),
        (b"1 qid: 1:1\n", 3, "qid:NAME; got 'qid:'"),
        (b"1\n", 3, "got nothing"),
        (b"1 qid:1 1:nan\n", 3, "feature 1 is not a finite"),
        (b"0 qid:1 1:1\n\n1 qid:1 2:inf\n", 5, "feature 2 is not a finite"),
        (b"1 qid:1 1:1e39\n", 3, "not a finite 32-bit number"),
        (b"1 qid:1 1:x\n", 3, "value of feature 1 must be a number, got 'x'"),
        (b"1 qid:1 x:1\n", 3, "expected index:value, got 'x:1'"),
        (b"1 qid:1 junk\n", 3, "expected index:value, got 'junk'"),
        (b"1 qid:1 -3:1\n", 3, "index -3 is out of range"),
        (b"1 qid:1 99999999999:1\n", 3, "out of range"),
        (b"1 qid:1 2:1 1:1\n", 3, "must ascend, got 1 after 2"),
        (b"1 qid:1 2:1 2:1\n", 3, "feature 2 occurs twice"),
        (b"1 qid:2 1:1\n0 qid:1 1:1\n", 4, "query 1 are not next to each other: it began at line 1"),
        (b"1 qid:2 1:1\n0 qid:3 1:1\n0 qid:2 1:1\n", 5, "query 2 are not next to each other: it began at line 3"),
        (b"1 qid:1 1:1 2:", 3, "number, got ''. The file ends with this line"),
        (b"1 qid:1 1:1 2", 3, "got '2'. The file ends with this line"),
        (b"1 qi", 3, "got 'qi'. .*The file ends with this line"),
        (b"1 qid:1 1:1 2:1\n1 qid:1 1:1", 4, "ends early, .* after 1 features"),
        (b"1 qid:1 1:1 2:1 # doc A\n1 qid:1 1:1 2:1", 4, "ends early"),
        (b"\x00\x01\x02\xff\x00", 3, "binary"),
        (b"\xff\xfe\xfd\xfc\n", 3, "label must be a number"),
    ]:
        path = write(tmp_path / "bad.txt", HEAD + rest)
        with pytest.raises(FormatError, match=match) as caught:
            letor.read(path)
        assert (caught.value.path, caught.value.line) == (path, line)
        assert str(caught.value).startswith(f"{path}:{line}: ")


def test_lines_are_those_of_the_unpacked_text(tmp_path):
    for pack in [gzip.compress, bz2.compress, lzma.compress]:
        with pytest.raises(FormatError) as caught:
            letor.read(write(tmp_path / "bad.gz", pack(HEAD + b"1 qid:1 1:x\n")))
        assert caught.value.line == 3


def test_max_label(good):
    check_good(letor.read(good, max_label=2))
    with pytest.raises(FormatError, match=r"good.txt:2: .* at most 1, 0 or above, got 2"):
        letor.read(good, max_label=1)


def test_cut_packed_files(tmp_path):
    for pack in [gzip.compress, bz2.compress, lzma.compress]:
        rng = np.random.default_rng(0)
        rows = [f"{i % 3} qid:{i // 50} 1:{rng.random()} 2:{rng.random()}\n" for i in range(500)]
        packed = pack("".join(rows).encode())
        assert letor.read(write(tmp_path / "whole", packed)).n_documents == 500
        with pytest.raises(FormatError, match="cut or damaged after line"):
            letor.read(write(tmp_path / "cut", packed[: len(packed) // 2]))


def test_damaged_gzip(tmp_path):
    packed = bytearray(gzip.compress(GOOD))
    packed[-6] ^= 0xFF  # the checksum
    with pytest.raises(FormatError, match="cut or damaged"):
        letor.read(write(tmp_path / "damaged.gz", bytes(packed)))


def test_files_of_another_kind(tmp_path):
    for content, match in [
        (b"", "the file is empty"),
        (b"# nothing\n\n", "no rows"),
        (gzip.compress(b"", mtime=0), "no rows"),
        (b"1 qid:1\n", "no row has a feature"),
        (b"PK\x03\x04....", "zip archive"),
        (b"Rar!\x1a\x07\x00", "rar archive"),
        (b"<!DOCTYPE html>\n<html>", "is this a LETOR file"),
    ]:
        with pytest.raises(FormatError, match=match):
            letor.read(write(tmp_path / "other", content))


def test_no_file(tmp_path):
    with pytest.raises(MissingDataError, match="no such file"):
        letor.read(tmp_path / "none.txt")
    with pytest.raises(MissingDataError, match="folder"):
        letor.read(tmp_path)


@pytest.mark.parametrize("settings", [{"n_features": 0}, {"max_label": -1}])
def test_settings_are_checked(good, settings):
    with pytest.raises(ConfigError, match="at least"):
        letor.read(good, **settings)


def test_old_line_ends_and_a_byte_order_mark_change_nothing(tmp_path):
    check_good(letor.read(write(tmp_path / "mac", GOOD.replace(b"\n", b"\r"))))
    check_good(letor.read(write(tmp_path / "mark", b"\xef\xbb\xbf" + GOOD)))
    check_good(letor.read(write(tmp_path / "packed", gzip.compress(b"\xef\xbb\xbf" + GOOD.replace(b"\n", b"\r")))))
    with pytest.raises(FormatError, match=r"mac2:3: the label must be a number"):
        letor.read(write(tmp_path / "mac2", b"1 qid:1 1:1 # a\r0 qid:1 1:1 # b\rx qid:1 1:1\r"))


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_wide_characters_are_refused_by_name(tmp_path, encoding):
    with pytest.raises(FormatError, match="UTF-16"):
        letor.read(write(tmp_path / "wide", ("\ufeff" + GOOD.decode()).encode(encoding)))


def test_an_index_that_is_none_is_refused_with_its_line(tmp_path, monkeypatch):
    path = write(tmp_path / "huge", GOOD + b"1 qid:9 1:1 999999999:0.5\n")
    with pytest.raises(FormatError, match=r"huge:7: feature index 999999999 .* 1,000,000 features at most"):
        letor.read(path)
    monkeypatch.setattr(letor, "_memory", lambda: 1e6)
    path = write(tmp_path / "large", GOOD + b"1 qid:9 1:1 900000:0.5\n")
    with pytest.raises(FormatError, match=r"large:7: .* 5 documents; this machine has 0.0 GB"):
        letor.read(path)
    monkeypatch.setattr(letor, "_memory", lambda: 5 * 4 * 900_000)
    assert letor.read(path).n_features == 900_000


def test_this_machine_says_how_much_memory_it_has():
    assert letor._memory() > 1e8


_number = st.one_of(
    st.floats(-1e30, 1e30).map(repr),
    st.integers(-999, 999).map("{:+d}".format),
    st.decimals(-2, 2, places=6).map(str),
    st.sampled_from(["1e-300", "5e-46", ".5", "7.", "1E3", "1_0", "-0", "0.1e-6", "16777217", "3.4028235e38"]),
)
_feature = st.tuples(st.integers(0, 60), _number, st.sampled_from(["", "0", "00"]), st.sampled_from([" ", "  ", "\t"]))
_row = st.tuples(
    st.sampled_from(["0", "1", "2.0", "+3", "4e0"]),
    st.lists(_feature, min_size=1, max_size=8, unique_by=lambda feature: feature[0]).map(sorted),
    st.sampled_from(["", "#docid = a 1:2", " # 9:9", "\t"]),
)


@given(st.lists(_row, min_size=1, max_size=5), st.booleans(), st.sampled_from([1, 2, 256]))
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_numbers_are_those_of_scikit_learn_bit_by_bit(tmp_path, monkeypatch, rows, named, block):
    monkeypatch.setattr(letor, "_BLOCK", block)
    lines = [
        f"{label} {'qid:1 ' * named}{''.join(f'{gap}{pad}{i}:{value}' for i, value, pad, gap in features)}{end}\n"
        for label, features, end in rows
    ]
    text = "".join(lines).encode()
    sizes = None if named else write(tmp_path / "sizes", f"{len(rows)}\n".encode())
    found = letor.read(write(tmp_path / "file", text), zero_based=True, groups=sizes)
    matrix, labels = load_svmlight_file(io.BytesIO(text), dtype=np.float32, zero_based=True)
    expected = matrix.toarray()
    assert found.features.dtype == expected.dtype and found.features.tobytes() == expected.tobytes()
    assert found.labels.tolist() == labels.tolist()


def test_what_scikit_learn_refuses_is_refused_with_its_line(tmp_path, monkeypatch):
    monkeypatch.setattr(letor, "_BLOCK", 4)
    for fault in (
        "1 2:3:4",
        "1:2:3 4",
        "1: 2 :3",
        "2:1 3",
        "1.0:5",
        "1e0:2",
        "1:1 1:2",
        "3:1 2:1",
        "1:2+3 4:",
        "1:1\0",
    ):
        lines = [f"1 qid:1 1:{number} 5:1\n" for number in range(20)]
        lines[10] = f"1 qid:1 {fault}\n"
        text = "".join(lines).encode()
        with pytest.raises((ValueError, OverflowError)):
            load_svmlight_file(io.BytesIO(text), dtype=np.float32, zero_based=True)
        with pytest.raises(FormatError) as caught:
            letor.read(write(tmp_path / "fault", text))
        assert caught.value.line == 11
