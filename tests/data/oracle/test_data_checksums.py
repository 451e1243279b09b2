"""Checksums against values that other programs print."""

import gzip

import pytest

from fedrank.core.errors import ChecksumError, ConfigError
from fedrank.data.lines import digest, verify

# `printf 'hello\n' | git hash-object --stdin`, `… | md5sum`, `… | sha256sum`
GIT = "ce013625030ba8dba906f756967f9e9ca394464a"
MD5 = "b1946ac92492d2347c6235b4d2611184"
SHA256 = "5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03"


def test_digest(tmp_path):
    for kind, value in [("git", GIT), ("md5", MD5), ("sha256", SHA256)]:
        plain, packed, windows = tmp_path / "a", tmp_path / "a.gz", tmp_path / "w"
        plain.write_bytes(b"hello\n")
        packed.write_bytes(gzip.compress(b"hello\n"))
        windows.write_bytes(b"hello\r\n")
        assert digest(plain, kind) == digest(packed, kind) == digest(windows, kind, unix=True) == value
        assert digest(windows, kind) != value
        for path in (plain, packed, windows):
            assert verify(path, [f"{kind}:{value}"])
            assert verify(path, [f"{kind}:{'0' * len(value)}", f"{kind}:{value}"])


def test_mismatch_says_expected_and_got(tmp_path):
    path = tmp_path / "S1.txt"
    path.write_bytes(b"hello\n")
    with pytest.raises(ChecksumError) as caught:
        verify(path, ["md5:0123", "git:4567"])
    message = str(caught.value)
    assert "expected md5:0123 or git:4567" in message
    assert f"got md5:{MD5}, git:{GIT}" in message and str(path) in message


def test_nothing_known_proves_nothing(tmp_path):
    path = tmp_path / "a"
    path.write_bytes(b"x")
    assert verify(path, []) is False


def test_unknown_kind(tmp_path):
    with pytest.raises(ConfigError, match="crc"):
        digest(tmp_path, "crc")
