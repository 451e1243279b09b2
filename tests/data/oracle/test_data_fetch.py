"""Downloads from a server on this machine: whole, cut, wrong, and absent."""

import hashlib
import http.server
import io
import tarfile
import threading
import zipfile
from dataclasses import replace

import pytest

from fedrank.core.errors import ChecksumError, DataError, MissingDataError
from fedrank.data import load
from fedrank.data.catalogue import DataSet, Download
from fedrank.data.fetch import fetch

ROW = b"1 qid:1 1:0.5\n"


def zipped(content=ROW):
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr("Set/train.txt", content)
    return stream.getvalue()


def tarred(name="train.txt"):
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as archive:
        info = tarfile.TarInfo(name)
        info.size = len(ROW)
        archive.addfile(info, io.BytesIO(ROW))
    return stream.getvalue()


FILES = {
    "/set.zip": zipped(),
    "/edited.zip": zipped(b"0 qid:1 1:0.5\n"),
    "/half.zip": zipped()[: len(zipped()) // 2],
    "/set.tar.gz": tarred(),
    "/escape.tar.gz": tarred("../escaped.txt"),
    "/page.zip": b"<html>Please log in</html>",
}


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        if self.path == "/hangup.zip":  # promises more than it sends
            self.send_response(200)
            self.send_header("Content-Length", "100000")
            self.end_headers()
            self.wfile.write(FILES["/set.zip"])
            return
        body = FILES.get(self.path)
        self.send_response(404 if body is None else 200)
        self.end_headers()
        self.wfile.write(body or b"")

    def log_message(self, *args):
        pass


@pytest.fixture(scope="module")
def server():
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as running:
        thread = threading.Thread(target=running.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{running.server_port}"
        running.shutdown()
        thread.join()


@pytest.fixture(autouse=True)
def direct(monkeypatch):
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


ENTRY = DataSet(
    name="set",
    title="Set",
    home="https://example.org",
    terms="None.",
    queries=1,
    documents=1,
    features=1,
    grades=2,
    folds=1,
    folders=("set",),
    by_hand="Ask for it.",
)
GENUINE = f"md5:{hashlib.md5(ROW).hexdigest()}"


def entry(*urls, checksum="", files=None):
    known = {"train": (GENUINE,)} if files is None else files
    return replace(ENTRY, downloads=tuple(Download(url, checksum) for url in urls), checksums=known)


def sha256(path):
    return "sha256:" + hashlib.sha256(FILES[path]).hexdigest()


def empty(folder):
    return not folder.exists() or not list(folder.iterdir())


@pytest.mark.parametrize("path", ["/set.zip", "/set.tar.gz"])
@pytest.mark.parametrize("by", ["archive", "files"])
def test_whole(server, tmp_path, path, by):
    wanted = entry(server + path, checksum=sha256(path), files={}) if by == "archive" else entry(server + path)
    place = fetch(wanted, tmp_path)
    assert place == tmp_path / "set" and load(place, "ranking").train.labels.tolist() == [1]
    assert [child.name for child in tmp_path.iterdir()] == ["set"]
    # What is here is not fetched again: the address may be dead by then.
    assert fetch(replace(wanted, downloads=(Download("http://127.0.0.1:9/x.zip"),)), tmp_path) == place


def test_wrong_archive_says_expected_and_got(server, tmp_path):
    with pytest.raises(ChecksumError) as caught:
        fetch(entry(f"{server}/edited.zip", checksum=sha256("/set.zip")), tmp_path)
    assert sha256("/set.zip") in str(caught.value)
    assert sha256("/edited.zip").removeprefix("sha256:") in str(caught.value)
    assert empty(tmp_path)


def test_wrong_file_in_an_unknown_archive(server, tmp_path):
    with pytest.raises(ChecksumError, match=rf"expected {GENUINE}.*got md5:"):
        fetch(entry(f"{server}/edited.zip"), tmp_path)
    with pytest.raises(ChecksumError, match="nothing in the archive"):
        fetch(entry(f"{server}/set.zip", files={}), tmp_path)
    assert empty(tmp_path)


def test_cut_archive(server, tmp_path):
    with pytest.raises(ChecksumError, match="expected"):
        fetch(entry(f"{server}/half.zip", checksum=sha256("/set.zip")), tmp_path)
    with pytest.raises(DataError, match=r"half\.zip"):
        fetch(entry(f"{server}/half.zip"), tmp_path)
    assert empty(tmp_path)


def test_connection_lost_and_page_gone(server, tmp_path):
    with pytest.raises(MissingDataError) as caught:
        fetch(entry(f"{server}/hangup.zip", f"{server}/none.zip", "http://127.0.0.1:9/x.zip"), tmp_path)
    message = str(caught.value)
    assert "hangup.zip: " in message and "IncompleteRead" in message
    assert "none.zip: 404" in message and "http://127.0.0.1:9/x.zip: " in message
    assert "By hand: Ask for it." in message and str(tmp_path / "set") in message
    assert empty(tmp_path)


def test_progress_goes_to_stderr(server, tmp_path, capsys):
    fetch(entry(f"{server}/set.zip"), tmp_path, progress=True)
    out, err = capsys.readouterr()
    assert out == "" and "set.zip" in err
    with pytest.raises(MissingDataError, match="IncompleteRead"):
        fetch(entry(f"{server}/hangup.zip"), tmp_path / "other", progress=True)


def test_the_next_address_is_tried(server, tmp_path):
    assert fetch(entry(f"{server}/none.zip", f"{server}/set.zip"), tmp_path).is_dir()


def test_a_page_instead_of_an_archive(server, tmp_path):
    with pytest.raises(DataError, match=r"neither a zip nor a tar.*Please log in"):
        fetch(entry(f"{server}/page.zip"), tmp_path)


def test_an_archive_cannot_write_outside(server, tmp_path):
    root = tmp_path / "root"
    with pytest.raises(DataError, match="outside"):
        fetch(entry(f"{server}/escape.tar.gz", checksum=sha256("/escape.tar.gz")), root)
    assert not (tmp_path / "escaped.txt").exists() and empty(root)


def test_by_request_only(tmp_path):
    with pytest.raises(MissingDataError, match="Ask for it"):
        fetch(ENTRY, tmp_path)
