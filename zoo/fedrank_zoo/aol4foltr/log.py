"""AOL4FOLTR: searches of 10,000 real users with their clicks and times (Gregoriadis, Kang, Pouwelse, CIKM 2025).

Two files. ``metadata.csv`` has a row a search: ``qid``, ``user_id``, ``timestamp``, ``query``, ``target_doc_id``,
``candidate_doc_ids``. ``letor.txt`` (55 GB; ``letor.txt.gz`` 9 GB) has 20 lines a search in the form
``label qid:Q 1:v … 103:v``; the label is 1 for what was clicked. Features are as they were measured.

Neither file is ever in memory as a whole. The first is scanned for the users that are asked for. The lines of their
searches are copied from the second to a file beside it, named after the choice, which the next call finds. In memory
are the searches of the chosen users, 8 kB each.

Features are normalised as the data set's own study does: query by query to [0, 1], but for the statistics that are the
same for all documents of a query (numbers 18–32, 75–77 and 93–95, counted from 0), whose range is that of all chosen
searches.
"""

from __future__ import annotations

import csv
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
from jaxtyping import Float32, Int

from fedrank.core.errors import ChecksumError, ConfigError, DataError, FormatError, MissingDataError
from fedrank.data.lines import read_lines, read_pieces
from fedrank.ranking.data.letor import read
from fedrank.ranking.data.queries import QuerySet

FEATURES = 103
#: Features whose range is taken over all searches.
GLOBAL = (*range(18, 33), *range(75, 78), *range(93, 96))
#: Checksums of the files as they are published (Zenodo record 15689455).
MD5 = {"letor.txt.gz": "75362ad22b58cdf2b1252ea325f6beb1", "metadata.csv": "bbd1cdfeec45120b9d8b0423dc5bd003"}
_COLUMNS = ("qid", "user_id", "timestamp")


@dataclass(frozen=True)
class UserLog:
    """Searches of some users in their order of time.

    Attributes:
        queries: The searches, one query each; label 1 is what was clicked.
        user: int [n], number of each search's user, 0 .. users − 1.
        time: int [n], microseconds since 1970, not falling.
        names: The users' ids in the data set.
    """

    queries: QuerySet
    user: Int[np.ndarray, " n"]
    time: Int[np.ndarray, " n"]
    names: tuple[str, ...]


def read_users(folder: str | Path, users: int = 100, without: tuple[str, ...] = ()) -> UserLog:
    """The searches of the users with the most of them.

    Args:
        folder: Where ``metadata.csv`` and ``letor.txt`` or ``letor.txt.gz`` lie.
        users: Number of users.
        without: Ids of users to leave out of these, as the published study leaves out 71845.

    Raises:
        MissingDataError: A file is missing.
        FormatError: Columns are missing, or a line is none.
        DataError: A search has no lines, or there is no such number of users.
    """
    folder = Path(folder)
    if users < 1:
        raise ConfigError(f"users must be at least 1, got {users}.")
    path = folder / "metadata.csv"
    if not path.is_file():
        raise MissingDataError("there is no such file; see fedrank data show aol4foltr.", path)
    searches: dict[str, set[str]] = {}
    for qid, user, _ in _events(path):
        searches.setdefault(user, set()).add(qid)
    most = sorted(searches, key=lambda user: (-len(searches[user]), user))[:users]
    chosen = [user for user in most if user not in without]
    if not chosen or len(searches) < users:
        raise DataError(f"{path} has {len(searches)} users; {users} were asked for, {len(chosen)} are left.")
    numbers = {name: number for number, name in enumerate(chosen)}
    first: dict[str, tuple[int, str, str]] = {}  # a query's first row: time, query, user
    for qid, user, time in _events(path):
        if user in numbers and qid not in first:
            first[qid] = _microseconds(time, path), qid, user
    events = sorted(first.values())
    qids = [qid for _, qid, _ in events]
    part = _lines_of(folder, set(qids), users, without)
    queries = read(part, n_features=FEATURES, max_label=1)
    place = {qid: number for number, qid in enumerate(queries.qids.tolist())}
    lost = [qid for qid in qids if qid not in place]
    if lost:
        raise DataError(f"{len(lost)} searches of metadata.csv have no lines in letor.txt, such as qid {lost[0]}.")
    queries = queries.select([place[qid] for qid in qids])
    return UserLog(
        _normalise_queries(queries),
        np.asarray([numbers[user] for _, _, user in events]),
        np.asarray([time for time, _, _ in events], np.int64),
        tuple(chosen),
    )


def _events(path: Path) -> Iterator[tuple[str, ...]]:
    """The query, user and time of each row of ``metadata.csv``, as text."""
    reader = csv.reader(line.decode("utf-8", "replace") for line in read_lines(path))
    names = next(reader, [])
    if missing := [name for name in _COLUMNS if name not in names]:
        raise FormatError(f"there is no column {', '.join(missing)}.", path, 1)
    places = [names.index(name) for name in _COLUMNS]
    try:
        for row in filter(None, reader):
            if len(row) != len(names):
                told = f"expected {len(names)} values as in the first line, got {len(row)}."
                raise FormatError(told, path, reader.line_num)
            yield tuple(row[place] for place in places)
    except csv.Error as cause:
        raise FormatError(f"this line cannot be read as CSV: {cause}.", path, reader.line_num) from cause


def _microseconds(text: str, path: Path) -> int:
    """Microseconds from 1970 to a time without a zone, such as ``2006-03-01 12:00:00``."""
    try:
        return (datetime.fromisoformat(text).replace(tzinfo=None) - datetime(1970, 1, 1)) // timedelta(microseconds=1)
    except ValueError as cause:
        raise FormatError(f"the timestamp {text!r} is no date and time.", path) from cause


def check_files(folder: str | Path) -> None:
    """Refuse files that are not the published ones, by their MD5 as stored; 10 GB are read.

    Raises:
        ChecksumError: A file is another.
        MissingDataError: A file is missing, or only an unpacked ``letor.txt`` is there, of which no checksum is known.
    """
    for name, expected in MD5.items():
        path = Path(folder) / name
        if not path.is_file():
            raise MissingDataError("there is no such file, and checksums are known of the published files only.", path)
        with open(path, "rb") as file:
            found = hashlib.file_digest(file, "md5").hexdigest()
        if found != expected:
            raise ChecksumError(f"{path} is not the published file: md5 {found}, published {expected}.")


def _lines_of(folder: Path, qids: set[str], users: int, without: tuple[str, ...]) -> Path:
    """A file with the lines of some searches; made once, under its name only when it is whole."""
    of = hashlib.sha256("\n".join(sorted(qids)).encode()).hexdigest()[:12]
    target = folder / f"letor-{users}-{of}.txt"
    if target.exists():
        return target
    source = next((folder / name for name in ("letor.txt", "letor.txt.gz") if (folder / name).is_file()), None)
    if source is None:
        raise MissingDataError("there is neither letor.txt nor letor.txt.gz; see fedrank data show aol4foltr.", folder)
    wanted = {qid.encode() for qid in qids}
    unfinished = target.with_suffix(".part")
    with open(unfinished, "wb") as out:
        for number, line in enumerate(read_pieces(source), start=1):
            words = line.split(b" ", 2)
            if len(words) < 3 or not words[1].startswith(b"qid:"):
                if line.strip():
                    raise FormatError("a line must begin with a label and qid:….", source, number)
                continue
            if words[1][4:] in wanted:
                out.write(line)
    if not unfinished.stat().st_size:
        unfinished.unlink()
        raise DataError(f"none of the {len(qids)} searches has lines in {source}.")
    unfinished.rename(target)
    return target


def _normalise_queries(queries: QuerySet) -> QuerySet:
    features = queries.features.astype(np.float64)
    starts, lengths = queries.offsets[:-1], queries.lengths
    low = np.repeat(np.minimum.reduceat(features, starts), lengths, axis=0)
    high = np.repeat(np.maximum.reduceat(features, starts), lengths, axis=0)
    for feature in GLOBAL:
        low[:, feature], high[:, feature] = features[:, feature].min(), features[:, feature].max()
    span = np.where(high > low, high - low, 1.0)
    scaled: Float32[np.ndarray, "documents features"] = ((features - low) / span).astype(np.float32)
    return QuerySet(scaled, queries.labels, queries.offsets, queries.qids, "aol4foltr", queries.generated)


def write_example(folder: str | Path, users: int = 6, searches: int = 40, seed: int = 0) -> None:
    """Write made-up files in the published form: users with different tastes, whose searches fall in different times.

    No number measured on them says anything about AOL4FOLTR.

    Args:
        folder: Made if it is not there.
        users: Number of users; the k-th has a k-th fewer searches.
        searches: Searches of the first user.
        seed: Seed.
    """
    folder, random = Path(folder), np.random.default_rng(seed)
    folder.mkdir(parents=True, exist_ok=True)
    events = sorted(
        (int(random.integers(0, 10**6)) + 10**6 * (user % 2), user)
        for user in range(users)
        for _ in range(max(4, searches - user * searches // (2 * users)))
    )
    common = random.normal(size=FEATURES)
    tastes = common + 0.5 * random.normal(size=(users, FEATURES))
    with (
        open(folder / "metadata.csv", "w", encoding="utf-8") as metadata,
        open(folder / "letor.txt", "w", encoding="utf-8") as letor,
    ):
        metadata.write("qid,user_id,timestamp,query,target_doc_id,candidate_doc_ids\n")
        for qid, (second, user) in enumerate(events):
            features = random.gamma(1.0, 5.0, (20, FEATURES)).round(3)
            features[:, GLOBAL] = features[0, GLOBAL]
            clicked = int(np.argmax(features @ tastes[user] + random.gumbel(scale=10.0, size=20)))
            ids = [f"d{qid}x{k}" for k in range(20)]
            when = np.datetime64("2006-03-01T00:00:00") + np.timedelta64(second, "s")
            stamp = str(when).replace("T", " ")
            candidates = "{" + ", ".join(f"'{name}'" for name in ids) + "}"
            metadata.write(f'{qid},{1000 + user},{stamp},"made up, {qid}",{ids[clicked]},"{candidates}"\n')
            for k in range(20):
                values = " ".join(f"{number}:{value}" for number, value in enumerate(features[k], start=1))
                letor.write(f"{int(k == clicked)} qid:{qid} {values}\n")
