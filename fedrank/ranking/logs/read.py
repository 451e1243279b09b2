"""Click logs from files of any size, as arrays of seven bytes a result.

A log has a row for each result that was shown, in CSV, TSV, Parquet or JSON lines::

    session, query, document, position, click [, page, user, propensity, feature, feature, …]

or a row for each session, with lists by rank (``query_id``, ``url_ids``, ``clicks``); or it is a folder of User
Behavior Insights (UBI), JSON lines of queries and events as OpenSearch's and other engines' plugins write them. Files
are read in batches; of all rows of one query, document and features the features are kept once.

Queries that differ in capitals or spaces alone are one, also where they are ids.

Rules, each of which is counted in :attr:`ClickLog.left_out` where it applies:

* A log without sessions has one wherever the query changes or positions do not ascend.
* A log without positions has them by the order of a session's rows; a row without one in a log that has them is left
  out, and so is a position beyond :attr:`LogFormat.deepest`.
* With pages, a result's position is ``(page − 1) · page_size + position``.
* A document that a session shows twice counts once, clicked if either was; a second document at one place is left out.
* Bots: sessions of at least five results, all clicked, and sessions of users with more than
  :attr:`LogFormat.most_searches`.
"""

from __future__ import annotations

import gzip
import itertools
import lzma
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool, Float32, Float64, Int, UInt8, UInt32, UInt64

from fedrank.core.compiled import njit
from fedrank.core.errors import ConfigError, DataError, FedrankError, FormatError, MissingDataError
from fedrank.core.lazy import OptionalModule
from fedrank.ranking.logs.columns import DEEPEST, LogFormat

pl: Any = OptionalModule("polars", "logs", "Reading a click log")

#: Rows that are read at a time.
_BATCH = 250_000
#: A session with this many results, all clicked, is a bot's.
_ALL_CLICKED = 5
#: Columns of a log that are never features.
_OTHERS = ("timestamp", "time", "date", "rank")
_YES = ("1", "true", "yes", "t", "y", "1.0", "ja", "j", "oui", "si", "sí")
_NO = ("0", "false", "no", "f", "n", "0.0", "", "nein", "non")
_MISSING = "values of {} that are missing or not finite, taken as 0"
#: Rows by which columns are judged as features, and fewest of a kind that say anything.
_LOOKED_AT, _FEWEST = 100_000, 20
#: Share that is nearly all; one that is more than a few; share of showings in which a feature of a result may change.
_NEARLY, _SOME, _MOST_CHANGED = 0.95, 0.05, 0.5
#: Lines of a CSV file of which separator and decimal sign are seen.
_SEEN = 1000


@dataclass(frozen=True, eq=False)
class ClickLog:
    """Sessions of a click log. A *pair* is a query and a document with the features that it had when it was shown.

    Attributes:
        offsets: int64 [sessions + 1]; the results of session i are the rows ``offsets[i]:offsets[i + 1]``.
        pair: int32 [rows], number of the pair.
        position: uint8 [rows], from 1.
        clicked: bool [rows].
        draw: uint32 [sessions], the user's or else the session's random number, by which parts are drawn.
        query: int32 [pairs], number of the pair's query.
        features: float32 [pairs, f]; f is 0 where the log has none.
        names: Names of the features.
        propensity: float64 [positions + 1], mean of the logged propensities by position; None: the log has none.
        left_out: What was left out and why -> how many, of rows unless it says sessions.
        odd_columns: Column -> why it is no feature; of a feature, what may be wrong with it.
    """

    offsets: Int[np.ndarray, " sessions_1"]
    pair: Int[np.ndarray, " rows"]
    position: UInt8[np.ndarray, " rows"]
    clicked: Bool[np.ndarray, " rows"]
    draw: UInt32[np.ndarray, " sessions"]
    query: Int[np.ndarray, " pairs"]
    features: Float32[np.ndarray, "pairs f"]
    names: tuple[str, ...] = ()
    propensity: Float64[np.ndarray, " positions"] | None = None
    left_out: dict[str, int] = field(default_factory=dict)
    odd_columns: dict[str, str] = field(default_factory=dict)

    @property
    def n_sessions(self) -> int:
        """Number of sessions, each a list of results for one query."""
        return len(self.draw)

    @property
    def depth(self) -> int:
        """Deepest position that a result stands at, counted from 1."""
        return int(self.position.max(initial=0))

    def odd_features(self, are: bool) -> list[str]:
        """Odd columns that are features, or those that are none, and the reason: one text for each reason."""
        found: dict[str, list[str]] = {}
        for name, why in self.odd_columns.items():
            if (name in self.names) == are:
                found.setdefault(why, []).append(name)
        return [f"{', '.join(names)}: {why}" for why, names in found.items()]

    def facts(self) -> dict[str, int | float]:
        """Numbers that say what is in the log."""
        places = self.position.astype(np.int64) + 256 * self.pair.astype(np.int64)
        positions_of = np.bincount(np.unique(places) // 256, minlength=len(self.query))
        return {
            "sessions": self.n_sessions,
            "queries": len(np.unique(self.query[np.unique(self.pair)])),
            "results shown": len(self.pair),
            "pairs of query and document": int((positions_of > 0).sum()),
            "pairs at several positions": int((positions_of > 1).sum()),
            "deepest position": self.depth,
            "clicks": int(self.clicked.sum()),
            "features": len(self.names),
        }

    def part(self, kept: Bool[np.ndarray, " sessions"]) -> ClickLog:
        """Some of the sessions; pairs keep their numbers."""
        return self._rows(np.repeat(kept, np.diff(self.offsets)))

    def up_to(self, usable: Bool[np.ndarray, " positions"]) -> ClickLog:
        """The results at usable positions; ``usable[k]`` is about position k, and positions beyond are not usable."""
        return self._rows(np.pad(usable, (0, max(self.depth + 1 - len(usable), 0)))[self.position])

    def _rows(self, rows: Bool[np.ndarray, " rows"]) -> ClickLog:
        if rows.all():
            return self
        counts = _count_rows_kept(rows, self.offsets)
        left = counts > 0
        offsets = np.concatenate([[0], np.cumsum(counts[left])])
        kept = (self.pair[rows], self.position[rows], self.clicked[rows], self.draw[left])
        about = self.names, self.propensity, self.left_out, self.odd_columns
        return ClickLog(offsets, *kept, self.query, self.features, *about)


def read_log(source: Any, form: LogFormat = LogFormat(), features: Any = None) -> ClickLog:
    """Read a click log.

    Args:
        source: A file (.csv, .tsv, .parquet, .jsonl, .ndjson, also packed as .gz or .xz), a folder of UBI, or a frame
            of polars.
        form: Meaning of the columns.
        features: A table of features beside the log, in any of these forms, with the columns of the document and of
            the query or the session.

    Raises:
        MissingDataError: There is no such file.
        FormatError: Something in it cannot be read; says what and where.
        DataError: A column is missing, or nothing is left.
        MissingExtraError: Polars is not installed.
    """
    called = str(source) if isinstance(source, str | Path) else "the log"
    frame = _scan(source, form)
    columns = frame.collect_schema().names()
    if missing := [name for name in (form.query, form.document, form.click) if name not in columns]:
        raise DataError(
            f"{called} has no column {', '.join(missing)}; it has {', '.join(columns)}. Name its columns, such as "
            "--format.query, --format.document, --format.click."
        )
    beside = None
    if features is not None:
        frame, beside = _join(frame, _scan(features, form), form)
    return _Builder(frame, form, called, beside).log()


def is_log(path: Path, form: LogFormat = LogFormat()) -> bool:
    """True if a path is a click log by its columns, or a folder of UBI by its files; needs polars."""
    try:
        return {form.query, form.document, form.click} <= set(_scan(path, form).collect_schema().names())
    except (MissingDataError, FormatError, pl.exceptions.PolarsError, OSError):
        return False


def _scan(source: Any, form: LogFormat) -> Any:
    """A lazy frame of a source."""
    if hasattr(source, "lazy"):
        return source.lazy()
    path = Path(source).expanduser()
    if not path.exists():
        raise MissingDataError("there is no such file or folder.", path)
    try:
        frame = _scan_ubi(path, form) if path.is_dir() else _scan_file(path)
        frame.collect_schema()  # what a cut file's end has is looked for here
    except FedrankError:
        raise
    except (pl.exceptions.PolarsError, lzma.LZMAError, OSError, EOFError) as cause:
        raise FormatError(f"cannot be read: {str(cause).splitlines()[0]}.", path) from cause
    return frame


def _scan_file(path: Path) -> Any:
    suffixes = [suffix.lower() for suffix in path.suffixes]
    kind = next((one for one in reversed(suffixes) if one not in (".gz", ".xz", ".zst")), "")
    if kind in (".parquet", ".pq"):
        return pl.scan_parquet(path)
    if kind in (".jsonl", ".ndjson", ".json"):
        return pl.scan_ndjson(path, infer_schema_length=1000)
    if kind in (".csv", ".tsv", ".txt"):
        options = {"infer_schema_length": 10_000, **_dialect(path, "," if kind == ".csv" else "\t")}
        if suffixes[-1] == ".xz":
            with lzma.open(path) as unpacked:
                return _lists(pl.read_csv(unpacked.read(), **options).lazy(), path)
        return _lists(pl.scan_csv(path, **options), path)
    raise FormatError("a click log is .csv, .tsv, .parquet, .jsonl, or a folder of UBI's queries and events.", path)


def _dialect(path: Path, usual: str) -> dict[str, Any]:
    """Separator and decimal sign of a CSV file: German and French spreadsheets write ``1,5;2``."""
    opened = {".gz": gzip.open, ".xz": lzma.open}.get(path.suffix.lower(), open)
    if path.suffix.lower() == ".zst":
        return {"separator": usual}
    try:
        with opened(path, "rt", encoding="utf-8") as file:
            lines = [line.rstrip("\r\n") for line in itertools.islice(file, _SEEN)]
    except UnicodeDecodeError as cause:
        raise FormatError(
            f"byte 0x{cause.object[cause.start]:02x} is not UTF-8; save the file as UTF-8.", path
        ) from cause
    separator = max((usual, ";", "\t"), key=lines[0].count) if lines else usual
    cells = {cell.strip('" ') for line in lines[1:] for cell in line.split(separator)} if separator != "," else set()
    commas = {cell for cell in cells if re.fullmatch(r"-?\d+,\d+", cell)}
    points = any(re.fullmatch(r"-?\d+\.\d+", cell) for cell in cells)
    if commas and not points and all(re.fullmatch(r"-?[1-9]\d{0,2},\d{3}", cell) for cell in commas):
        raise FormatError(
            f"{min(commas)} may be a thousand or a decimal number; write numbers without commas for thousands, or "
            "decimal commas with another number of digits.", path
        )  # fmt: skip
    return {"separator": separator, "decimal_comma": bool(commas) and not points}


def _lists(frame: Any, path: Path) -> Any:
    """A frame with a row for each result, of one that may have a row for each session and lists by rank."""
    columns = frame.collect_schema().names()
    if not {"url_ids", "clicks"} <= set(columns):
        return frame
    if "query_id" not in columns:
        raise FormatError(
            f"a log of lists has the columns query_id, url_ids and clicks; got {', '.join(columns)}.", path
        )
    texts = {name: pl.col(name).cast(pl.String).str.strip_chars().str.split(" ") for name in ("url_ids", "clicks")}
    lists = frame.select("query_id", **texts).with_row_index("session")
    odd = lists.filter(pl.col("url_ids").list.len() != pl.col("clicks").list.len()).head(1).collect()
    if len(odd):
        shown, flags = (int(odd[name].list.len()[0] or 0) for name in ("url_ids", "clicks"))
        raise FormatError(
            f"{shown} results and {flags} clicks; each result has a click, 0 or 1.", path, int(odd["session"][0]) + 2
        )
    return (
        lists.with_columns(position=pl.int_ranges(1, pl.col("url_ids").list.len() + 1))
        .explode("url_ids", "clicks", "position")
        .rename({"query_id": "query", "url_ids": "document", "clicks": "click"})
    )


def _scan_ubi(folder: Path, form: LogFormat) -> Any:
    """Results of searches in UBI's queries and events, of which a folder has a file or several each."""
    found = {}
    for kind in ("queries", "events"):
        files = sorted(path for path in folder.iterdir() if kind in path.name and "json" in path.name)
        if not files:
            raise MissingDataError(f"a folder of UBI has a file of JSON lines whose name has {kind!r} in it.", folder)
        frame = pl.scan_ndjson(files, infer_schema_length=1000)
        # Dumps of an index have each document in _source.
        if "_source" in frame.collect_schema().names():
            frame = frame.select(pl.col("_source").struct.unnest())
        found[kind] = frame
    for kind, needed in (("queries", ("query_id", "user_query", "query_response_hit_ids")),
                         ("events", ("query_id", "action_name", "event_attributes"))):  # fmt: skip
        columns = found[kind].collect_schema().names()
        if missing := [name for name in needed if name not in columns]:
            raise FormatError(f"UBI's {kind} have {', '.join(needed)}; {', '.join(missing)} is missing.", folder)
    shown = (
        found["queries"]
        .select(
            pl.col("query_id").alias(form.session),
            pl.col("user_query").alias(form.query),
            pl.col("client_id" if "client_id" in found["queries"].collect_schema().names() else "query_id").alias(
                form.user
            ),
            pl.col("query_response_hit_ids").alias(form.document),
        )
        .filter(pl.col(form.document).list.len() > 0)
        .with_columns(pl.int_ranges(1, pl.col(form.document).list.len() + 1).alias(form.position))
        .explode(form.document, form.position)
        .with_columns(pl.col(form.document).cast(pl.String))
    )
    clicks = (
        found["events"]
        .filter(pl.col("action_name").is_in(list(form.click_actions)))
        .select(
            pl.col("query_id").alias(form.session),
            pl.col("event_attributes")
            .struct.field("object")
            .struct.field("object_id")
            .cast(pl.String)
            .alias(form.document),
        )
        .unique()
        .with_columns(pl.lit(value=True).alias(form.click))
    )
    return shown.join(clicks, on=[form.session, form.document], how="left", maintain_order="left").with_columns(
        pl.col(form.click).fill_null(value=False)
    )


def _join(frame: Any, table: Any, form: LogFormat) -> tuple[Any, Any]:
    """The log with features beside it: joined where they are of sessions, else the table itself, of queries."""
    columns = table.collect_schema().names()
    owner = form.session if form.session in columns else form.query
    if form.document not in columns or owner not in columns:
        raise DataError(
            f"a table of features needs the columns {form.document} and {form.query} or {form.session}; it has "
            f"{', '.join(columns)}."
        )
    if owner == form.query:
        return frame, table
    texts = [pl.col(name).cast(pl.String) for name in (form.session, form.document)]
    joined = frame.with_columns(texts).join(
        table.with_columns(texts), on=[form.session, form.document], how="left", maintain_order="left"
    )
    return joined, None


class _Builder:
    """Reads a lazy frame batch by batch into the arrays of a :class:`ClickLog`."""

    def __init__(self, frame: Any, form: LogFormat, called: str, beside: Any):
        self.form, self.called, self.left_out = form, called, {}
        self.schema = frame.collect_schema()
        self.frame, self.beside = frame, beside
        has = self.schema.names().__contains__
        self.has_session, self.has_user, self.has_page = has(form.session), has(form.user), has(form.page)
        self.has_position = has(form.position)
        if not self.has_position and not self.has_session:
            raise DataError(
                f"{called} has neither sessions nor positions, so that nothing says where a list ends; name one of the "
                "columns with --format.session or --format.position."
            )
        if self.has_page and not form.page_size:
            raise ConfigError(f"{called} has pages; say with --format.page-size how many results a page has.")
        self.propensity = np.zeros((2, DEEPEST + 1))
        self.names = () if beside is not None else _feature_names(self.schema, form, called)
        self.odd_columns: dict[str, str] = {}
        if form.features is None and beside is None:
            others = [name for name in self.schema.names() if name not in {*self._columns()}]
            self.odd_columns = {name: _why_none(self.schema[name]) for name in others}

    def log(self) -> ClickLog:
        pairs, queries = _Numbers(), _Numbers()
        parts = tuple(_Growing(kind) for kind in (np.int32, np.uint8, bool, bool, np.uint64, np.uint64))
        keys: list[np.ndarray] = []
        query_of: list[np.ndarray] = []
        features: list[np.ndarray] = []
        last: tuple[int, int] = (0, 0)  # key and position of the row before
        first_row = 0
        columns = [name for name in self._columns() if name in self.schema.names()]
        for batch in self._batches(columns):
            rows = self._clean(batch, first_row)
            first_row += len(batch)
            if not len(rows["click"]):
                continue
            if not len(pairs):
                rows["features"] = rows["features"][:, self._choose(rows)]
            values = rows["features"]
            pair_keys = _mix(rows["query"], rows["document"])
            if values.shape[1]:
                pair_keys = _mix_features(pair_keys, values)
            pair, fresh = pairs.number(pair_keys)
            query_of.append(queries.number(rows["query"][fresh])[0])
            features.append(values[fresh])
            if self.beside is not None:
                keys.append(pair_keys[fresh])
            starts, last = self._starts(rows, last)
            made = (pair, rows["position"], rows["click"], starts, rows["session"][starts], rows["user"][starts])
            for column, values in zip(parts, made, strict=True):
                column.extend(values)
        if not len(parts[0].whole):
            raise DataError(f"{self.called} has no row that can be used: {self._said()}.")
        offsets, pair, position, clicked, draw = self._assemble(tuple(column.whole for column in parts))
        query, table = np.concatenate(query_of), np.concatenate(features)
        names = self.names
        if self.beside is not None:
            table, names = self._beside_features(np.concatenate(keys))
        if not self.has_position:
            self._refuse_positions(pair, position, table, names)
        sums, rows = self.propensity
        known = np.where(rows > 0, sums / np.maximum(rows, 1), 0.0) if rows.any() else None
        about = names, known, self.left_out, self.odd_columns
        return ClickLog(offsets, pair, position, clicked, draw, query, table, *about)

    def _choose(self, rows: dict[str, np.ndarray]) -> Bool[np.ndarray, " features"]:
        """Mask of the columns that are features, by the log's first rows; odd ones are remembered with the reason.

        Columns that were named as features stay.
        """
        pair = _mix(rows["query"], rows["document"])
        search = rows["session"] if self.has_session else np.cumsum(self._starts(rows, (0, 0))[0])
        query, pair, search, click = (one[:_LOOKED_AT] for one in (rows["query"], pair, search, rows["click"]))
        _, first, number = np.unique(search, return_index=True, return_inverse=True)
        of_search, of_pair, next_search = _following(search), _following(pair), _following(query[first])
        owner = np.unique(number[of_search[0]], return_inverse=True)[1]
        kept = np.ones(len(self.names), bool)
        for k, column in enumerate(rows["features"][:_LOOKED_AT].T):
            if _tells_clicks(column, click, rows["position"][:_LOOKED_AT]):
                why, kept[k] = "it tells by itself what was clicked, as what is written after a click does", False
            elif _share_changed(next_search, column[first]) > _SOME + 3 * _share_changed(of_search, column, owner):
                why, kept[k] = "one value for all results of a search, and another for the next one", False
            elif _share_changed(of_pair, column) > _MOST_CHANGED:
                why = "it changes from one showing of a result to the next; each counts as another result then"
            else:
                continue
            self.odd_columns[self.names[k]] = why
        if self.form.features is not None:
            kept[:] = True
        for name in itertools.compress(self.names, ~kept):
            self.left_out.pop(_MISSING.format(name), None)
        self.names = tuple(itertools.compress(self.names, kept))
        return kept

    def _refuse_positions(self, pair: np.ndarray, position: np.ndarray, table: np.ndarray, names: Any) -> None:
        """A feature that is the position tells a ranker to repeat the logged ranking."""
        for name, values in zip(names, table.T, strict=True):
            if position.max() > 1 and np.array_equal(values[pair], position):
                raise DataError(
                    f"{self.called}: {name} counts the results of each session. Name it as the position, "
                    f"--format.position {name}, or choose the features with --format.features."
                )

    def _columns(self) -> Iterator[str]:
        form = self.form
        yield from (form.session, form.query, form.document, form.position, form.click, form.user, form.page)
        yield from (form.propensity, *self.names)

    def _batches(self, columns: list[str]) -> Iterator[Any]:
        try:
            yield from self.frame.select(columns).collect_batches(chunk_size=_BATCH, maintain_order=True)
        except (pl.exceptions.PolarsError, OSError) as cause:
            raise FormatError(f"{self.called} cannot be read: {str(cause).splitlines()[0]}.") from cause

    def _clean(self, batch: Any, first_row: int) -> dict[str, np.ndarray]:
        """Arrays of a batch's usable rows."""
        form = self.form
        for name in (form.query, form.document):
            batch = self._without(batch, batch[name].is_not_null(), f"rows without a {name}")
        if self.has_position:
            position = batch[form.position].cast(pl.Float64, strict=False)
            self._check(position.is_not_null() | batch[form.position].is_null(), batch, form.position, "a number",
                        first_row)  # fmt: skip
            batch = batch.with_columns(position.fill_nan(None).alias(form.position))
            batch = self._without(batch, batch[form.position].is_not_null(), "rows without a position")
            position = batch[form.position]
            self._check((position >= 1) & (position == position.floor()), batch, form.position,
                        "a whole number of at least 1; add 1 to positions that count from 0", first_row)  # fmt: skip
            if self.has_page:
                page = batch[form.page].cast(pl.Float64, strict=False).fill_null(1)
                batch = batch.with_columns((position + (page - 1) * form.page_size).alias(form.position))
            deepest = batch[form.position] <= form.deepest
            batch = self._without(batch, deepest, f"rows at positions beyond {form.deepest}")
            places = batch[form.position].cast(pl.UInt8).to_numpy()
        else:
            places = np.zeros(len(batch), np.uint8)
        if form.propensity in batch.columns:
            known = batch[form.propensity].cast(pl.Float64, strict=False)
            self._check((known > 0) & (known <= 1), batch, form.propensity, "above 0 and at most 1", first_row)
            self.propensity += [np.bincount(places, known, DEEPEST + 1), np.bincount(places, None, DEEPEST + 1)]
        zeros = np.zeros(len(batch), np.uint64)
        return {
            "query": _hash(_fold_case(batch[form.query])),
            "document": _hash(batch[form.document]),
            "position": places,
            "click": self._clicks(batch, first_row),
            "session": _hash(batch[form.session]) if self.has_session else zeros,
            "user": _hash(batch[form.user]) if self.has_user else zeros,
            "features": self._features(batch),
        }

    def _without(self, batch: Any, kept: Any, why: str) -> Any:
        lost = len(batch) - int(kept.sum())
        if not lost:
            return batch
        self.left_out[why] = self.left_out.get(why, 0) + lost
        return batch.filter(kept)

    def _check(self, right: Any, batch: Any, name: str, what: str, first_row: int) -> None:
        if bool(right.fill_null(value=False).all()):
            return
        row = int((~right.fill_null(value=False)).arg_true()[0])
        raise FormatError(f"{self.called}, row {first_row + row + 1}: {name} must be {what}, got {batch[name][row]!r}.")

    def _clicks(self, batch: Any, first_row: int) -> np.ndarray:
        column = batch[self.form.click]
        if column.dtype == pl.Boolean:
            return column.fill_null(value=False).to_numpy()
        if column.dtype.is_numeric():
            filled = column.fill_null(0)
            self._check(filled >= 0, batch, self.form.click, "a number of clicks, at least 0", first_row)
            return (filled > 0).to_numpy()
        words = column.cast(pl.String).fill_null("").str.strip_chars().str.to_lowercase()
        yes = words.is_in(_YES)
        self._check(yes | words.is_in(_NO), batch, self.form.click, "1, 0, true, false, yes or no", first_row)
        return yes.to_numpy()

    def _features(self, batch: Any) -> np.ndarray:
        if not self.names:
            return np.zeros((len(batch), 0), np.float32)
        return self._numbers(batch, self.names)

    def _numbers(self, batch: Any, names: tuple[str, ...]) -> np.ndarray:
        """Columns as numbers, 0 where one is missing."""
        kinds = {name: batch.schema[name] for name in names if not _is_number(batch.schema[name])}
        for name, kind in kinds.items():
            if kind not in (pl.String, pl.Categorical, pl.Enum):
                raise FormatError(f"{self.called}: {name}, named as a feature, must be a number, got a {kind}.")
        texts = [pl.col(name).cast(pl.String) for name in kinds]
        found = batch.select(names).with_columns(texts).cast(pl.Float32, strict=False)
        for name in names:
            if found[name].null_count() > batch[name].null_count():
                text = batch[name].filter(found[name].is_null() & batch[name].is_not_null())[0]
                raise FormatError(f"{self.called}: {name}, named as a feature, must be a number, got {text!r}.")
        values = np.ascontiguousarray(found.to_numpy(), np.float32)
        odd = ~np.isfinite(values)
        if odd.any():
            for name, count in zip(names, odd.sum(axis=0).tolist(), strict=True):
                if count:
                    why = _MISSING.format(name)
                    self.left_out[why] = self.left_out.get(why, 0) + count
            values = np.where(odd, np.float32(0), values)
        return values

    def _starts(self, rows: dict[str, np.ndarray], last: tuple[int, int]) -> tuple[np.ndarray, tuple[int, int]]:
        """Rows of a batch with which a session begins: bool [rows]; and key and position of the last row."""
        key = rows["session"] if self.has_session else rows["query"]
        before = np.concatenate([[np.uint64(last[0])], key[:-1]])
        starts = key != before
        if not self.has_session:
            place = rows["position"]
            starts |= place <= np.concatenate([[last[1]], place[:-1]])
        return starts, (int(key[-1]), int(rows["position"][-1]))

    def _assemble(self, columns: tuple[np.ndarray, ...]) -> tuple[np.ndarray, ...]:
        """Offsets, pairs, positions, clicks and random numbers of the sessions, without what is left out."""
        pair, position, clicked, starts, session, user = columns
        starts[0] = True
        offsets = np.append(np.flatnonzero(starts), len(pair)).astype(np.int64)
        del starts
        if self.has_session and len(np.unique(session)) < len(session):  # rows of a session stand apart
            owner = np.unique(session, return_inverse=True)[1]
            order = np.argsort(np.repeat(owner, np.diff(offsets)), kind="stable")
            pair, position, clicked = pair[order], position[order], clicked[order]
            session, first = np.unique(session, return_index=True)
            lengths = np.bincount(owner, np.diff(offsets)).astype(np.int64)
            user, offsets = user[first], np.concatenate([[0], np.cumsum(lengths)])
        if not self.has_position:
            place = np.arange(len(pair)) - np.repeat(offsets[:-1], np.diff(offsets)) + 1
            position = np.minimum(place, DEEPEST).astype(np.uint8)
        owner = user if self.has_user else session
        if not self.has_session and not self.has_user:
            owner = np.arange(len(offsets) - 1, dtype=np.uint64)
        bots = np.zeros(len(offsets) - 1, bool)
        if self.has_user:
            _, inverse, searches = np.unique(user, return_inverse=True, return_counts=True)
            bots = searches[inverse] > self.form.most_searches
        draw = (_mix(owner, np.full(len(owner), 77, np.uint64)) >> np.uint64(32)).astype(np.uint32)
        most = _ALL_CLICKED if self.form.all_clicked else DEEPEST + 1
        kept, twice, places, robots = _compact(pair, position, clicked, offsets, bots, self.form.deepest, most)
        for why, lost in (
            ("rows of a document that its session shows twice", twice),
            ("rows at a place that its session has taken already, or too deep", places),
            ("sessions of bots", robots),
        ):
            if lost:
                self.left_out[why] = lost
        filled = np.diff(kept) > 0
        if not filled.any():
            raise DataError(f"{self.called} has no session that can be used: {self._said()}.")
        rows = int(kept[-1])
        return (np.append(kept[:-1][filled], rows), pair[:rows], position[:rows], clicked[:rows], draw[filled])

    def _said(self) -> str:
        return ", ".join(f"{count:,} {why}" for why, count in self.left_out.items()) or "it is empty"

    def _beside_features(self, keys: np.ndarray) -> tuple[np.ndarray, tuple[str, ...]]:
        """Features of the pairs with these keys from the table beside the log."""
        names = _feature_names(self.beside.collect_schema(), self.form, "the table of features")
        order = np.argsort(keys)
        out, seen = np.zeros((len(keys), len(names)), np.float32), np.zeros(len(keys), bool)
        for batch in self.beside.collect_batches(chunk_size=_BATCH):
            owners = _mix(_hash(_fold_case(batch[self.form.query])), _hash(batch[self.form.document]))
            place = np.minimum(np.searchsorted(keys, owners, sorter=order), len(keys) - 1)
            rows = order[place]
            hit = keys[rows] == owners
            values = self._numbers(batch, names)
            out[rows[hit]], seen[rows[hit]] = values[hit], True
        if not seen.all():
            self.left_out["pairs without features, taken as 0"] = int((~seen).sum())
        return out, names


def _feature_names(schema: Any, form: LogFormat, called: str) -> tuple[str, ...]:
    if form.features is not None:
        if missing := [name for name in form.features if name not in schema.names()]:
            raise DataError(f"{called} has no column {', '.join(missing)}, named as features.")
        return form.features
    other = {form.session, form.query, form.document, form.position, form.click, form.user, form.page}
    other |= {form.propensity, *_OTHERS}
    return tuple(name for name, kind in schema.items() if name not in other and _is_number(kind))


def _is_number(kind: Any) -> bool:
    return kind.is_numeric() or kind == pl.Boolean


def _why_none(kind: Any) -> str:
    """The reason that a column is no feature, by its type."""
    if _is_number(kind):
        return "by its name a time or a rank"
    return "a time" if kind.is_temporal() else "text; features are numbers, such as 19.90, or 1 for yes and 0 for no"


def _following(key: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Rows that follow another one of the same key, and those that they follow."""
    order = np.argsort(key, kind="stable")
    same = key[order][1:] == key[order][:-1]
    return order[1:][same], order[:-1][same]


def _share_changed(
    following: tuple[np.ndarray, np.ndarray], values: np.ndarray, owner: np.ndarray | None = None
) -> float:
    """Share of rows, or of their owners, with another value than that of the row before; NaN of few rows."""
    row, before = following
    if len(row) < _FEWEST:
        return np.nan
    changed = values[row] != values[before]
    return float((changed if owner is None else np.bincount(owner, changed) > 0).mean())


def _tells_clicks(values: np.ndarray, clicked: np.ndarray, position: np.ndarray) -> bool:
    """True if nearly all rows with another value than the commonest were clicked, or if values order by clicks.

    The order is looked at within each position: by a good score lists are sorted, and clicks stand at their top.
    """
    different, counts = np.unique(values, return_counts=True)
    other = values != different[counts.argmax()]
    if min(other.sum(), clicked.sum(), (~clicked).sum()) < _FEWEST:
        return False
    if clicked[other].mean() > _NEARLY > 2 * clicked[~other].mean():
        return True
    # Pairs of a click and none in which the click has the higher value, half of those with one value: the AUC.
    higher = pairs = 0.0
    for at in np.unique(position):
        here = position == at
        _, place, counts = np.unique(values[here], return_inverse=True, return_counts=True)
        clicks = np.bincount(place, clicked[here], len(counts))
        none = counts - clicks
        higher += clicks @ (np.cumsum(none) - none / 2)
        pairs += clicks.sum() * none.sum()
    return bool(pairs and abs(higher / pairs - 0.5) > _NEARLY - 0.5)


class _Growing:
    """An array that grows at its end; a list of parts would stand in memory twice when it is joined."""

    def __init__(self, kind: Any):
        self._values, self._length = np.empty(1 << 20, kind), 0

    def extend(self, values: np.ndarray) -> None:
        end = self._length + len(values)
        if end > len(self._values):
            bigger = np.empty(max(2 * len(self._values), end), self._values.dtype)
            bigger[: self._length] = self._values[: self._length]
            self._values = bigger
        self._values[self._length : end] = values
        self._length = end

    @property
    def whole(self) -> np.ndarray:
        """All values that were added, in their order: one-dimensional, a view of what is kept."""
        return self._values[: self._length]


def _fold_case(queries: Any) -> Any:
    """Queries in small letters with single spaces: no query is another one for its capitals."""
    return queries.cast(pl.String).str.to_lowercase().str.replace_all(r"\s+", " ").str.strip_chars()


def _hash(column: Any) -> UInt64[np.ndarray, " rows"]:
    return column.cast(pl.String).hash(0).to_numpy()


_ODD = np.uint64(0x9E3779B97F4A7C15)


def _mix(one: UInt64[np.ndarray, " rows"], other: UInt64[np.ndarray, " rows"]) -> UInt64[np.ndarray, " rows"]:
    """A hash of two hashes (the finaliser of SplitMix64)."""
    with np.errstate(over="ignore"):
        z = one * _ODD + other
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))


@njit(cache=True, nogil=True)
def _mix_features(keys, features):
    out = np.empty_like(keys)
    bits = features.view(np.uint32)
    for row in range(len(keys)):
        z = keys[row]
        for column in range(bits.shape[1]):
            z = (z ^ np.uint64(bits[row, column])) * np.uint64(0x9E3779B97F4A7C15)
            z ^= z >> np.uint64(29)
        out[row] = z
    return out


class _Numbers:
    """Numbers hashes from 0 in the order in which they come first."""

    def __len__(self) -> int:
        return self._count

    def __init__(self) -> None:
        self._keys, self._numbers, self._count = np.zeros(1 << 16, np.uint64), np.full(1 << 16, -1, np.int32), 0

    def number(self, keys: UInt64[np.ndarray, " rows"]) -> tuple[np.ndarray, np.ndarray]:
        """The numbers of hashes, int32 [rows], and the rows in which a new one comes first."""
        while 2 * (self._count + len(keys)) > len(self._keys):
            old, held = self._keys, self._numbers >= 0
            bigger = np.zeros(2 * len(old), np.uint64), np.full(2 * len(old), -1, np.int32)
            _move(old[held], self._numbers[held], *bigger)
            self._keys, self._numbers = bigger
        out, first = np.empty(len(keys), np.int32), np.empty(len(keys), np.int64)
        count = _enter(keys, self._keys, self._numbers, self._count, out, first)
        fresh, self._count = first[: count - self._count], count
        return out, fresh


@njit(cache=True, nogil=True)
def _enter(keys, table, numbers, count, out, first):
    mask, fresh = np.uint64(len(table) - 1), 0
    for row in range(len(keys)):
        key = keys[row]
        place = (key * np.uint64(0x9E3779B97F4A7C15) >> np.uint64(20)) & mask
        while numbers[place] >= 0 and table[place] != key:
            place = (place + np.uint64(1)) & mask
        if numbers[place] < 0:
            table[place], numbers[place] = key, count
            first[fresh] = row
            count, fresh = count + 1, fresh + 1
        out[row] = numbers[place]
    return count


@njit(cache=True, nogil=True)
def _move(keys, values, table, numbers):
    mask = np.uint64(len(table) - 1)
    for row in range(len(keys)):
        place = (keys[row] * np.uint64(0x9E3779B97F4A7C15) >> np.uint64(20)) & mask
        while numbers[place] >= 0:
            place = (place + np.uint64(1)) & mask
        table[place], numbers[place] = keys[row], values[row]


@njit(cache=True, nogil=True)
def _count_rows_kept(rows, offsets):
    """Kept rows of each session; NumPy's reduceat would copy all rows as whole numbers first."""
    counts = np.zeros(len(offsets) - 1, np.int64)
    for session in range(len(counts)):
        for row in range(offsets[session], offsets[session + 1]):
            counts[session] += rows[row]
    return counts


@njit(cache=True, nogil=True)
def _compact(pair, position, clicked, offsets, bots, deepest, most):
    """Move the rows that are kept to the front; returns the new offsets, and numbers of what is left out."""
    kept = np.zeros(len(offsets), np.int64)
    end, twice, places, robots = 0, 0, 0, 0
    for session in range(len(offsets) - 1):
        begin = end
        clicks = 0
        for row in range(offsets[session], offsets[session + 1]):
            state = 0
            for other in range(begin, end):
                if pair[other] == pair[row]:
                    clicked[other] |= clicked[row]
                    state = 1
                    break
                if position[other] == position[row]:
                    state = 2
            if state == 0 and position[row] > deepest:
                state = 2
            twice += state == 1
            places += state == 2
            if state == 0:
                pair[end], position[end], clicked[end] = pair[row], position[row], clicked[row]
                end += 1
        for row in range(begin, end):
            clicks += clicked[row]
        if bots[session] or (end - begin >= most and clicks == end - begin):
            robots += 1
            end = begin
        kept[session + 1] = end
    return kept, twice, places, robots
