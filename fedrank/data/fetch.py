"""Download a data set of the catalogue from its own home, check it, and unpack it into the cache folder."""

from __future__ import annotations

import shutil
import tarfile
import tempfile
import zipfile
from pathlib import Path

from fedrank.core.errors import ChecksumError, DataError, MissingDataError
from fedrank.data.catalogue import PARTS, DataSet, Download
from fedrank.data.folders import cache_folder, locate, place_of
from fedrank.data.lines import verify


def fetch(entry: DataSet, root: Path | None = None, progress: bool = False) -> Path:
    """Get a set: the first of its addresses that answers; where it is here already, nothing is done.

    An archive with a known checksum is checked before it is unpacked, any other by the checksums of the files
    in it. What fails a check is thrown away: either the whole set is there afterwards, or nothing.

    Args:
        entry: The set.
        root: Folder that holds the sets, instead of the cache folder.
        progress: Whether to draw a progress bar on stderr.

    Returns:
        The set's folder.

    Raises:
        MissingDataError: It cannot be downloaded; says what to do by hand.
        ChecksumError: What came is not the published set; says what was expected and what came.
        DataError: The archive is damaged.
    """
    root = cache_folder() if root is None else root
    place = place_of(entry, root)
    if place is not None:
        return place
    target = root / entry.folders[0]
    if not entry.downloads:
        raise MissingDataError(
            f"{entry.title} cannot be downloaded by a program. {entry.by_hand} There: {target}. Home: {entry.home}"
        )
    root.mkdir(parents=True, exist_ok=True)
    failures = []
    # Beside the target, so that moving it there at the end is one step of the file system.
    with tempfile.TemporaryDirectory(prefix=".fetch-", dir=root) as temporary:
        for download in entry.downloads:
            try:
                archive = _retrieve(download, Path(temporary), progress)
            except OSError as cause:  # all of requests' errors are
                failures.append(f"{download.url}: {cause}")
                continue
            content = Path(temporary) / "content"
            _unpack(archive, content)
            if not download.checksum:
                _verify_files(entry, content)
            content.rename(target)
            return target
    raise MissingDataError(
        "\n".join([f"{entry.title} could not be downloaded.", *failures, f"By hand: {entry.by_hand} There: {target}."])
    )


def _retrieve(download: Download, folder: Path, progress: bool) -> Path:
    import pooch

    # What pooch has to say on the way is in the errors below, or is the progress bar.
    pooch.get_logger().setLevel("ERROR")
    name = download.url.rsplit("/", 1)[-1]
    bar = _Bar(name) if progress else None
    try:
        path = pooch.retrieve(
            download.url,
            known_hash=download.checksum or None,
            fname=name,
            path=folder,
            # Larger pieces than pooch's kilobyte; its types know no progress bar but its own.
            downloader=pooch.HTTPDownloader(progressbar=bar or False, chunk_size=1 << 16),  # type: ignore[arg-type]
        )
    except ValueError as cause:
        if isinstance(cause, OSError):  # some of requests' errors are both
            raise
        raise ChecksumError(f"{download.url} is not the published archive. {cause}") from cause
    finally:
        if bar is not None:
            bar.close()  # pooch leaves it open when a connection is lost
    return Path(path)


class _Bar:
    """A progress bar on stderr with the methods that pooch calls."""

    def __init__(self, name: str):
        from rich.console import Console
        from rich.progress import BarColumn, DownloadColumn, Progress, TransferSpeedColumn

        columns = ("{task.description}", BarColumn(), DownloadColumn(), TransferSpeedColumn())
        self._bar = Progress(*columns, console=Console(stderr=True))
        self._task = self._bar.add_task(name, total=None)
        self._bar.start()

    @property
    def total(self) -> float | None:
        return self._bar.tasks[0].total

    @total.setter
    def total(self, size: int) -> None:
        self._bar.update(self._task, total=size or None)

    def update(self, step: int) -> None:
        self._bar.update(self._task, advance=step)

    def reset(self) -> None:
        self._bar.update(self._task, completed=0)

    def close(self) -> None:
        self._bar.stop()


def _unpack(archive: Path, folder: Path) -> None:
    try:
        if zipfile.is_zipfile(archive):
            with zipfile.ZipFile(archive) as packed:
                packed.extractall(folder)
        elif tarfile.is_tarfile(archive):
            with tarfile.open(archive) as packed:
                packed.extractall(folder, filter="data")  # refuses links and paths that lead out of the folder
        else:
            with open(archive, "rb") as file:
                start = file.read(40)
            raise DataError(f"this is neither a zip nor a tar archive; it begins with {start!r}.", archive.name)
    except (zipfile.BadZipFile, tarfile.TarError, EOFError) as cause:
        shutil.rmtree(folder, ignore_errors=True)
        raise DataError(f"the archive is cut or damaged ({cause}); get it again.", archive.name) from cause


def _verify_files(entry: DataSet, folder: Path) -> None:
    """Check every file found: of every fold, or by its name where a set has no folds and parts."""
    proved = 0
    if entry.kind != "ranking":
        for path in folder.rglob("*"):
            proved += path.is_file() and verify(path, entry.checksums.get(path.name, ()))
    folds = 0 if entry.kind != "ranking" else PARTS if entry.folds > 1 else 1
    for fold in range(1, folds + 1):
        try:
            located = locate(folder, fold, entry.prefix)
        except MissingDataError:
            continue
        for files in located.files.values():
            for part, path in files.items():
                proved += verify(path, entry.checksums_of(part, fold))
    if not proved:
        raise ChecksumError(f"nothing in the archive of {entry.title} could be verified; it is not the published set.")
