"""Off-policy evaluation: estimates of what a policy would have earned, with intervals, from platforms' logs.

A log says what a platform showed, with which probability, and what that earned. Its form is that of the Open Bandit
Dataset (Saito et al., NeurIPS Datasets and Benchmarks 2021): comma-separated text with a line of names, and a row for
each item that was shown::

    timestamp, slate_id, item_id, position, click, propensity_score, pscore_cascade

``propensity_score`` is the probability with which the platform showed this item at this position. Rows with one
``slate_id`` are a slate; ``pscore_cascade`` is the probability of this item together with those above it, so that the
last one's is the slate's. A log without both columns, such as Open Bandit's, has slates of one item: every row by
itself. ``position`` and ``timestamp`` may be missing: one position then, and the order of the file. Other columns are
passed over.

A policy is the chance of each item at each position, the same for all users. Where logged slates never have an item
twice, nor has the policy's: items above are left out and the chances of the others scaled up (Plackett-Luce). The model
of the doubly robust estimates is the mean reward of each item at each position. Counts are sums, so that platforms that
show the same items learn one model together without a row of their logs leaving them.

Of the item at place l of a slate of L, with reward r_l, let w_l be π(item at l) / propensity_score, how much more often
the policy would have shown it there; w_1:l the same of it and all items above; q̂_l the model. Sums are over l, and the
mean is over slates::

    logged   Σ r_l                      what was earned
    ips      Σ w_l r_l                  independent: users look at each place by itself (Li et al., KDD 2018)
    snips    the same over Σ w_l        self-normalised (Swaminathan & Joachims, NeurIPS 2015)
    rips     Σ w_1:l r_l                reward interaction: items above count too (McInerney et al., KDD 2020)
    sips     w_1:L Σ r_l                standard: whatever users do
    dm       Σ E_π q̂_l                  direct: as good as the model
    dr       Σ E_π q̂_l + w_l (r_l − q̂_l)      doubly robust under what ips assumes (Dudík et al., ICML 2011)
    cdr      Σ w_1:l (r_l − Q̂_l) + w_1:l−1 E_π Q̂_l   the same under what rips does (Kiyohara et al., WSDM 2022)

Q̂_l is q̂_l and what the model expects of the places below. If users do as they assume, ips, rips, sips, dr and cdr are
unbiased, whatever the model; snips is consistent, and dm as good as the model. rips is the form of Kiyohara et al.;
McInerney et al. normalise it. With slates of one item ips, rips and sips are the same, and dr and cdr.

All follow from Σ f fᵀ with f what a slate adds to each of these sums, to Σ w_l, to Σ w_1:L, and to the counts of slates
and items: a *summary* of 66 numbers. Summaries of platforms add up to that of all their slates, so that they judge a
policy together without a row leaving them. Slates are independent units. Intervals are of the normal approximation,
with the variance of a ratio by the delta method; they trust neither few clicks nor a policy that the log hardly shows,
which is what the effective numbers are for.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Bool, Float64, Int64, Shaped

from fedrank.core.errors import ConfigError, DataError, FormatError, MissingDataError
from fedrank.core.frame import Frame, missing_in, type_of
from fedrank.data.lines import read_lines

ITEM, POSITION, CLICK, PROPENSITY, TIME = "item_id", "position", "click", "propensity_score", "timestamp"
SLATE, CASCADE = "slate_id", "pscore_cascade"
#: Columns that a log must have.
NEEDED = (ITEM, CLICK, PROPENSITY)
#: Endings of the files of a folder that are tried.
_ENDINGS = (".csv", ".csv.gz", ".csv.bz2", ".csv.xz")
#: Most pairs of item and position, so that tables of them fit into the memory.
MOST_CELLS = 10_000_000


@dataclass(frozen=True, eq=False)
class Log:
    """Log of one platform, in the order of time.

    Attributes:
        name: The platform.
        items: What was shown, places in ``item_ids``.
        positions: Where, places in ``position_ids``.
        rewards: What it earned: 1 for a click, 0 for none, or any number.
        propensity: The probability with which the platform showed it there, in (0, 1].
        item_ids: Identifiers of the items, ascending.
        position_ids: Identifiers of the positions, ascending.
        slates: The slate of each row, counted from 0 in the order of the rows; empty for slates of one row.
        cascade: The probability with which the platform showed this item and those above it, in (0, 1]; empty for
            slates of one row, whose is the propensity.

    Raises:
        DataError: There is no row, columns differ in length, a number is out of range, or a slate lacks a position
            above another.
    """

    name: str
    items: Int64[np.ndarray, " rows"]
    positions: Int64[np.ndarray, " rows"]
    rewards: Float64[np.ndarray, " rows"]
    propensity: Float64[np.ndarray, " rows"]
    item_ids: Shaped[np.ndarray, " items"]
    position_ids: Shaped[np.ndarray, " positions"]
    slates: Int64[np.ndarray, " rows_or_none"] = dataclasses.field(default_factory=lambda: np.zeros(0, np.int64))
    cascade: Float64[np.ndarray, " rows_or_none"] = dataclasses.field(default_factory=lambda: np.zeros(0))

    def __post_init__(self):
        n = len(self.items)
        if single := not len(self.slates):
            object.__setattr__(self, "slates", np.arange(n))
            object.__setattr__(self, "cascade", self.propensity)
        columns = (self.positions, self.rewards, self.propensity, self.slates, self.cascade)
        if not n or any(len(part) != n for part in columns):
            raise DataError(f"log {self.name}: needs columns of one length with at least one row.")
        cells = len(self.item_ids) * len(self.position_ids)
        if not 1 <= cells <= MOST_CELLS:
            raise DataError(f"log {self.name}: items times positions must be in 1..{MOST_CELLS:,}, got {cells:,}.")
        for what, values, good, should in (
            (ITEM, self.items, _within(self.items, self.item_ids), "a place in item_ids"),
            (POSITION, self.positions, _within(self.positions, self.position_ids), "a place in position_ids"),
            (CLICK, self.rewards, np.isfinite(self.rewards), "finite"),
            (PROPENSITY, self.propensity, (self.propensity > 0) & (self.propensity <= 1), "above 0 and at most 1"),
            (CASCADE, self.cascade, (self.cascade > 0) & (self.cascade <= 1), "above 0 and at most 1"),
        ):
            _all_good(self.name, what, values, good, should)
        if not single:
            starts = np.diff(self.slates, prepend=-1)
            counted = ((starts == 0) | (starts == 1)) & (self.slates >= 0)
            _all_good(self.name, SLATE, self.slates, counted, "counted from 0 in the rows' order")
            place = np.arange(n) - np.flatnonzero(starts)[self.slates]
            should = "each once from the first on, in a slate"
            _all_good(self.name, POSITION, self.position_ids[self.positions], self.positions == place, should)
            above = np.where(place > 0, np.roll(self.cascade, 1), self.propensity)
            most = np.minimum(above, self.propensity) * (1 + _ROUNDED)
            should = "the probability of the item at a slate's first position, and falling, never above the item's own"
            good = (self.cascade <= most) & ((place > 0) | (self.cascade * (1 + _ROUNDED) >= self.propensity))
            _all_good(self.name, CASCADE, self.cascade, good, should)

    def __len__(self) -> int:
        """Number of slates: units of the estimates; rows without a ``slate_id`` are one each."""
        return int(self.slates[-1]) + 1

    def part(self, low: int, high: int) -> Log:
        """The slates from ``low`` to before ``high``."""
        rows = slice(*np.searchsorted(self.slates, (low, high)))
        columns = {name: getattr(self, name)[rows] for name in ("items", "positions", "rewards", "propensity")}
        if not self.whole():
            rows = slice(0)
        return dataclasses.replace(self, **columns, slates=self.slates[rows] - low, cascade=self.cascade[rows])

    def whole(self) -> bool:
        """True if a slate has more than one item."""
        return len(self) < len(self.items)

    def last(self) -> Int64[np.ndarray, " slates"]:
        """The last position of each slate."""
        return self.positions[np.flatnonzero(np.diff(self.slates, append=len(self)))]

    def repeats(self) -> bool:
        """True if a slate has an item twice."""
        return len(np.unique(self.slates * len(self.item_ids) + self.items)) < len(self.items)


def _within(places: np.ndarray, ids: np.ndarray) -> Bool[np.ndarray, " rows"]:
    return (places >= 0) & (places < len(ids))


def _all_good(name: str, what: str, values: np.ndarray, good: Bool[np.ndarray, " rows"], should: str) -> None:
    if not good.all():
        row = int(np.flatnonzero(~good)[0])
        raise DataError(f"log {name}: {what} must be {should}, got {values[row]} in row {row + 1}.")


def read_logs(paths: Iterable[str | os.PathLike[str]]) -> tuple[Log, ...]:
    """The logs of platforms that show the same items, one a file.

    Args:
        paths: Files, plain or packed; of a folder, all files with the columns of a log. A platform is named after its
            file. Items and positions are numbered over all of them: identifiers that are numbers in their order.

    Raises:
        DataError: A file is no log; says which line and why.
    """
    files: list[Path] = []
    for path in map(Path, paths):
        files += _logs_of(path) if path.is_dir() else [path]
    if not files:
        raise MissingDataError("give at least one log: a file, or a folder with some.")
    frames = [_frame(file) for file in files]
    names = [file.name.split(".csv")[0] for file in files]
    if len(set(names)) < len(names):
        names = [str(file) for file in files]
    items, item_ids = _number_ids([frame[ITEM] for frame in frames])
    positions, position_ids = _number_ids([frame[POSITION] for frame in frames])
    return tuple(
        Log(
            name,
            items[place],
            positions[place],
            frame[CLICK].astype(np.float64),
            frame[PROPENSITY].astype(np.float64),
            item_ids,
            position_ids,
            *_slate_columns(frame),
        )
        for place, (name, frame) in enumerate(zip(names, frames, strict=True))
    )


def _slate_columns(frame: Frame) -> tuple[np.ndarray, ...]:
    """``slates`` and ``cascade`` of a log in the order of its slates, if it has any."""
    if SLATE not in frame:
        return ()
    ids = frame[SLATE]
    return np.cumsum(np.append(False, ids[1:] != ids[:-1])), frame[CASCADE].astype(np.float64)


def _logs_of(folder: Path) -> list[Path]:
    found = []
    for file in sorted(folder.iterdir()):
        if file.name.endswith(_ENDINGS) and file.is_file():
            head = next(iter(read_lines(file)), b"").decode(errors="replace")
            if set(NEEDED) <= {name.strip().strip('"') for name in head.split(",")}:
                found.append(file)
    if not found:
        raise MissingDataError(f"no file of the folder has the columns {', '.join(NEEDED)}.", folder)
    return found


def _frame(file: Path) -> Frame:
    """The columns of a log in the order of time."""
    text = b"".join(read_lines(file))
    frame = _parse(text, file, (TIME, SLATE, ITEM, POSITION, CLICK, PROPENSITY, CASCADE))
    if missing := [name for name in NEEDED if name not in frame]:
        raise FormatError(f"a log needs the columns {', '.join(NEEDED)}; there is no {', '.join(missing)}.", file, 1)
    if not len(frame):
        raise FormatError("there is no row under the names of the columns.", file, 1)
    for name in frame:
        if gaps := missing_in(frame[name]).sum():
            raise FormatError(f"column {name} must have a value in every row; {gaps} rows have none.", file)
        if name in (CLICK, PROPENSITY, CASCADE) and type_of(frame[name]) is str:
            raise FormatError(f"column {name} must have numbers, got text.", file)
    frame = frame if POSITION in frame else frame.with_columns({POSITION: 1})
    frame = frame.sort(TIME) if TIME in frame else frame
    if SLATE not in frame:
        return frame
    if CASCADE not in frame:
        raise FormatError(
            f"a log with {SLATE} needs {CASCADE} too: the probability with which this item and those above it were "
            "shown; the product of theirs where each position was filled by itself.",
            file,
            1,
        )
    _, first, slates = np.unique(frame[SLATE], return_index=True, return_inverse=True)
    return frame[np.lexsort((frame[POSITION], first[slates]))]


def _parse(text: bytes, file: Path, names: Iterable[str]) -> Frame:
    try:
        return Frame.from_csv(text, names)
    except DataError as cause:
        raise FormatError(f"is no table of commas: {cause}", file) from cause


def _number_ids(columns: Sequence[np.ndarray]) -> tuple[list[Int64[np.ndarray, " rows"]], Shaped[np.ndarray, " ids"]]:
    """Columns of identifiers as places in the list of all, and that list; identifiers that are no numbers are text."""
    whole = all(type_of(column) is int for column in columns)
    values = [column if whole else column.astype(str) for column in columns]
    ids = np.unique(np.concatenate(values))
    return [np.searchsorted(ids, one) for one in values], ids


#: Column of a policy's file.
PROBABILITY = "probability"
#: How far probabilities of a position may be from 1 together.
_ROUNDED = 1e-3
#: Draws behind the probabilities of Thompson sampling.
DRAWS = 20_000
#: Numbers drawn at once.
_BLOCK = 2_000_000

#: π(item | position): columns sum to 1.
Table = Float64[np.ndarray, "items positions"]


def uniform(items: int, positions: int) -> Table:
    """Every item equally often."""
    return np.full((items, positions), 1.0 / items)


def best(means: Table, n: int) -> Table:
    """The ``n`` items of the highest mean reward at each position, equally often; of equal ones the first.

    Raises:
        ConfigError: There are not as many items.
    """
    if not 1 <= n <= len(means):
        raise ConfigError(f"best-{n}: there are {len(means)} items.")
    table = np.zeros_like(means)
    np.put_along_axis(table, np.argsort(-means, axis=0, kind="stable")[:n], 1.0 / n, axis=0)
    return table


def thompson(counted: Float64[np.ndarray, "2 items positions"], seed: int = 0, draws: int = DRAWS) -> Table:
    """Bernoulli Thompson sampling: the items of the highest rates that are drawn from what is known of each.

    Of an item shown n times with c clicks the rate is Beta(1 + c, 1 + n − c), whatever the position; the highest rate
    drawn is shown at the first position, the next at the second, and so on (as the policy of the Open Bandit Dataset).
    Probabilities are counted over draws.

    Args:
        counted: :func:`~fedrank_zoo.slate_logs.estimates.counts`, of clicks.
        seed: Of the draws.
        draws: Their number.

    Raises:
        ConfigError: Something other than clicks was earned, or there are fewer items than positions.
    """
    shown, clicks = counted.sum(axis=2)
    items, positions = counted.shape[1:]
    if (clicks < 0).any() or (clicks > shown).any():
        raise ConfigError("thompson is for clicks; what was earned is not between 0 and 1 a row.")
    if positions > items:
        raise ConfigError(f"thompson shows different items at {positions} positions, and there are {items}.")
    rng, table, left = np.random.default_rng(seed), np.zeros((items, positions)), draws
    while left:
        some = min(left, max(1, _BLOCK // items))
        rates = rng.beta(1.0 + clicks, 1.0 + shown - clicks, (some, items))
        highest = np.argsort(-rates, axis=1)[:, :positions]
        for position in range(positions):
            table[:, position] += np.bincount(highest[:, position], minlength=items)
        left -= some
    return table / draws


def read_policy(
    path: str | os.PathLike[str], item_ids: Shaped[np.ndarray, " items"], position_ids: Shaped[np.ndarray, " positions"]
) -> Table:
    """A policy from a file with the columns item_id, position and probability; what is missing has probability 0.

    Without a column ``position`` the probabilities are those of every position.

    Args:
        path: The file, comma-separated.
        item_ids: Identifiers of the items.
        position_ids: Identifiers of the positions.

    Raises:
        FormatError: It is no such file, names an unknown item or position, or the probabilities of a position are none.
    """
    file = Path(path)
    if not file.is_file():
        raise MissingDataError("there is no such policy: give uniform, best-N, thompson or a file.", file)
    frame = _parse(b"".join(read_lines(file)), file, (ITEM, POSITION, PROBABILITY))
    if missing := {ITEM, PROBABILITY} - set(frame.columns):
        raise FormatError(f"a policy needs the columns item_id and probability; there is no {min(missing)}.", file, 1)
    if type_of(frame[PROBABILITY]) not in (int, float) or any(missing_in(frame[name]).any() for name in frame):
        raise FormatError("every row needs a probability that is a number, and no cell may be empty.", file)
    values, table = frame[PROBABILITY].astype(np.float64), np.zeros((len(item_ids), len(position_ids)))
    rows = _places(frame, ITEM, item_ids, file)
    if POSITION in frame.columns:
        columns = _places(frame, POSITION, position_ids, file)
        twice = len(np.unique(np.stack([rows, columns]), axis=1)[0]) < len(rows)
        table[rows, columns] = values
    else:
        twice = len(np.unique(rows)) < len(rows)
        table[rows] = values[:, None]
    if twice:
        raise FormatError("an item has two probabilities at one position.", file)
    sums = table.sum(axis=0)
    if not (np.isfinite(table).all() and (table >= 0).all() and (np.abs(sums - 1) < _ROUNDED).all()):
        said = ", ".join(f"{one:.4g}" for one in sums[:5])
        raise FormatError(f"the probabilities of a position must be at least 0 and sum to 1, got sums {said}.", file)
    return table / sums


def _places(frame: Frame, name: str, ids: Shaped[np.ndarray, " ids"], file: Path) -> np.ndarray:
    values = frame[name].astype(str) if ids.dtype.kind == "U" else frame[name]
    if ids.dtype.kind != "U" and values.dtype.kind not in "iu":
        raise FormatError(f"column {name} must have whole numbers, as in the log.", file)
    places = np.minimum(np.searchsorted(ids, values), len(ids) - 1)
    if (wrong := ids[places] != values).any():
        raise FormatError(f"{name} {values[wrong][0]} is not in the logs.", file, int(np.argmax(wrong)) + 2)
    return places


#: Of a policy's chances at a position, less is rounding.
_NOTHING = 1e-9


@dataclass(frozen=True, eq=False)
class Policy:
    """A rule by which slates are filled from the first position on.

    Attributes:
        table: Chance of each item at each position; columns sum to 1.
        distinct: Items above are left out, and the chances of the others scaled up.

    Raises:
        ConfigError: Some of its slates run out of items.
    """

    table: Table
    distinct: bool = False

    def follow(
        self,
        position: int,
        above: Int64[np.ndarray, "slates above"],
        items: Int64[np.ndarray, " slates"],
        values: Float64[np.ndarray, " all_items"],
    ) -> tuple[Float64[np.ndarray, " slates"], Float64[np.ndarray, " slates"]]:
        """Chance of items at a position below others (−1: none), and the mean of the values of what it shows there."""
        column, scale = self.table[:, position], self._scale(position, above)
        taken = np.where((above >= 0) & self.distinct, column[above] * values[above], 0.0).sum(axis=1)
        again = (above == items[:, None]).any(axis=1) & self.distinct
        return np.where(again, 0.0, column[items] * scale), (column @ values - taken) * scale

    def _scale(self, position: int, above: Int64[np.ndarray, "slates above"]) -> Float64[np.ndarray, " slates"]:
        """One over the chances of the items that are left, which make up 1 then; 0 if none is left."""
        taken = np.where((above >= 0) & self.distinct, self.table[above, position], 0.0)
        left = 1.0 - taken.sum(axis=1)
        return np.divide(1.0, left, out=np.zeros_like(left), where=left > _NOTHING)

    @functools.cached_property
    def marginal(self) -> Table:
        """Chance that a slate has an item at a position: over all that can stand above, or as many draws as fit."""
        if not self.distinct:
            return self.table
        found, above, weights = self.table.copy(), np.zeros((1, 0), np.int64), np.ones(1)
        most = max(1, _BLOCK // len(found))
        for position in range(found.shape[1]):
            chances = np.outer(weights * self._scale(position, above), self.table[:, position])
            np.put_along_axis(chances, above, 0.0, axis=1)
            found[:, position] = chances.sum(axis=0)
            if found[:, position].sum() < 1.0 - _ROUNDED:
                raise ConfigError(f"the policy has too few items for slates of {position + 1} different ones.")
            slates, items = np.nonzero(chances)
            weights = chances[slates, items]
            if len(weights) > most:
                drawn = np.random.default_rng(0).choice(len(weights), most, p=weights / weights.sum())
                slates, items, weights = slates[drawn], items[drawn], np.full(most, 1.0 / most)
            above = np.concatenate([above[slates], items[:, None]], axis=1)
        return found


_SLATES, _ITEMS, _POSITIONS = 2000, 20, 3


def write_logs(folder: Path, seed: int = 0) -> None:
    """Write two logs of the same items: one platform shows them at random, the other rather those that it prefers.

    Users look from the first position on: after a click one in two leaves, so that rewards depend on the items above.

    Args:
        folder: Made if it is not there; the files are ``even.csv`` and ``choosy.csv``.
        seed: Of everything.
    """
    rng = np.random.default_rng(seed)
    rates = rng.beta(2.0, 30.0, (_ITEMS, _POSITIONS))
    folder.mkdir(parents=True, exist_ok=True)
    preferences = {"even": np.ones(_ITEMS), "choosy": np.exp(rng.normal(size=_ITEMS))}
    for name, weights in preferences.items():
        policy = Policy(np.repeat(weights[:, None] / weights.sum(), _POSITIONS, axis=1), distinct=True)
        items = np.argsort(rng.gumbel(np.log(weights), size=(_SLATES, _ITEMS)), axis=1)[:, : -_POSITIONS - 1 : -1]
        steps = [
            policy.follow(place, items[:, :place], items[:, place], np.zeros(_ITEMS))[0] for place in range(_POSITIONS)
        ]
        clicks = rng.random(items.shape) < rates[items, np.arange(_POSITIONS)]
        left = np.cumsum(clicks & (rng.random(items.shape) < 0.5), axis=1) - clicks > 0
        columns = {
            SLATE: np.repeat(np.arange(_SLATES), _POSITIONS),
            ITEM: items.ravel(),
            POSITION: np.tile(np.arange(_POSITIONS) + 1, _SLATES),
            CLICK: (clicks & ~left).astype(int).ravel(),
            PROPENSITY: policy.marginal[items, np.arange(_POSITIONS)].ravel(),
            CASCADE: np.cumprod(np.stack(steps, axis=1), axis=1).ravel(),
        }
        (folder / f"{name}.csv").write_text(Frame(columns).to_csv())


#: Rows that the mean above a mean counts as much as: of an item's positions, and of all items.
PRIOR = 10.0


def counts(logs: Iterable[Log]) -> Float64[np.ndarray, "2 items positions"]:
    """Number of times each item was shown at each position, and the sum of its rewards there, over all logs."""
    total: Float64[np.ndarray, "2 items positions"] | None = None
    for log in logs:
        shape = len(log.item_ids), len(log.position_ids)
        cells = log.items * shape[1] + log.positions
        one = np.stack([np.bincount(cells, weights, shape[0] * shape[1]) for weights in (None, log.rewards)])
        total = one.reshape(2, *shape) if total is None else total + one.reshape(2, *shape)
    assert total is not None, "no log"
    return total


def mean_rewards(
    counted: Float64[np.ndarray, "2 items positions"], prior: float = PRIOR
) -> Float64[np.ndarray, "items positions"]:
    """The mean reward of each item at each position, drawn to the item's own mean, and that to the mean of all.

    Args:
        counted: :func:`counts`.
        prior: Rows that the mean above counts as much as; above 0.
    """
    shown, earned = counted
    mean = earned.sum() / max(shown.sum(), 1.0)
    of_item = (earned.sum(axis=1) + prior * mean) / (shown.sum(axis=1) + prior)
    return (earned + prior * of_item[:, None]) / (shown + prior)


#: What a slate adds to each sum: f of the module.
TERMS = 11
_ONE, _SHOWN, _REWARD, _WEIGHT, _IPS, _MODEL, _ROBUST, _ABOVE, _WHOLE, _STANDARD, _CASCADE = range(TERMS)
#: Estimates by name, in the order of tables.
ESTIMATORS = ("ips", "snips", "rips", "sips", "dr", "cdr", "dm")
#: Parts of a log, each judged with the model of the others.
FOLDS = 3
#: Fewer clicks than this behind an estimate leave its interval without worth.
FEW = 10.0

Summary = Float64[np.ndarray, "terms terms"]


@dataclass(frozen=True)
class Estimate:
    """An estimate and its 95 % interval; ends are None where there is none.

    Attributes:
        value: The mean reward of a row.
        low: Lower end.
        high: Upper end.
    """

    value: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Judgement:
    """Estimates of the reward of one policy at one platform, or at all, for each item that is shown.

    Attributes:
        slates: Slates behind it.
        rows: Rows behind it.
        logged: What was earned a row.
        estimates: By name of :data:`ESTIMATORS`. ``dm`` has no interval: its error is the model's.
        gain: The estimate ``cdr`` less what was earned, of the same slates.
        weight: Mean of w_1:L with its interval: far from 1, the probabilities of the log are not those it was shown
            with, or the policy shows what the log never does.
        effective_slates: (Σ w_1:L)² / Σ w_1:L²: as many slates, were they shown by the policy itself, would tell as
            much.
        effective_clicks: The same of what slates add to ``rips``. Below :data:`FEW` no interval is worth anything.
        unseen: Share of what the policy shows that the log never shows at that position.
    """

    slates: int
    rows: int
    logged: Estimate
    estimates: dict[str, Estimate]
    gain: Estimate
    weight: Estimate
    effective_slates: float
    effective_clicks: float
    unseen: float


def judge(
    logs: Sequence[Log], table: Table, *, prior: float = PRIOR, folds: int = FOLDS, level: float = 0.95
) -> tuple[list[Judgement], Judgement]:
    """Estimates of the reward of a policy at each platform, and at all of them.

    The model of rewards is that of all platforms' counts; each part of every log is judged with the counts of the other
    parts, so that no slate is judged with a model that has seen it.

    Args:
        logs: Logs of platforms that show the same items; of no slate that the policy was learnt from.
        table: The policy.
        prior: As of :func:`~fedrank_zoo.slate_logs.estimates.mean_rewards`.
        folds: Parts, at least 2; each a stretch of time.
        level: Coverage of the intervals.

    Raises:
        DataError: A log has fewer slates than parts, or the policy is of other items.
        ConfigError: Folds, prior or level make no sense, or the policy has too few items for a slate.
    """
    if folds < 2 or not 0.0 < level < 1.0 or not 0.0 < prior < math.inf:
        raise ConfigError(
            f"needs at least 2 folds, a level in (0, 1) and a prior above 0, got {folds}, {level}, {prior}."
        )
    parts = [_folds(log, folds) for log in logs]
    counted = np.stack([counts(part[fold] for part in parts) for fold in range(folds)])
    total = counted.sum(axis=0)
    if table.shape != total.shape[1:]:
        raise DataError(f"the policy has {table.shape} items and positions, and the logs have {total.shape[1:]}.")
    policy = Policy(table, distinct=any(log.whole() for log in logs) and not any(log.repeats() for log in logs))
    models = [mean_rewards(total - one, prior) for one in counted]
    summaries = [np.sum([summary(part[fold], policy, models[fold]) for fold in range(folds)], axis=0) for part in parts]
    each = [
        judgement(one, _lowest([log]), _unseen_share(counts([log])[0], policy.marginal), level)
        for log, one in zip(logs, summaries, strict=True)
    ]
    return each, judgement(np.sum(summaries, axis=0), _lowest(logs), _unseen_share(total[0], policy.marginal), level)


def _folds(log: Log, folds: int) -> list[Log]:
    if len(log) < folds:
        raise DataError(f"log {log.name}: needs at least {folds} slates, got {len(log)}.")
    edges = np.linspace(0, len(log), folds + 1).astype(int).tolist()
    return [log.part(low, high) for low, high in itertools.pairwise(edges)]


def summary(log: Log, policy: Policy, model: Table) -> Summary:
    """Σ f fᵀ of a log's slates; see the module.

    Args:
        log: The slates.
        policy: The policy.
        model: Mean reward of each item at each position.
    """
    cells = log.slates, log.positions

    def fill(values: np.ndarray, empty: float) -> np.ndarray:
        whole = np.full((len(log), len(log.position_ids)), empty, values.dtype)
        whole[cells] = values
        return whole

    items, rewards, shown = fill(log.items, -1), fill(log.rewards, 0.0), fill(np.ones(len(log.items), bool), False)
    at = np.where(shown, items, 0), np.arange(items.shape[1])
    steps = [
        policy.follow(place, items[:, :place], at[0][:, place], model[:, place]) for place in range(items.shape[1])
    ]
    chosen, means = (np.stack(part, axis=1) for part in zip(*steps, strict=True))
    w = np.where(shown, policy.marginal[at], 0.0) / fill(log.propensity, 1.0)
    above = np.cumprod(np.where(shown, chosen, 1.0), axis=1) / fill(log.cascade, 1.0)
    before = np.pad(np.where(shown, above, 1.0)[:, :-1], ((0, 0), (1, 0)), constant_values=1.0)
    whole = above[np.arange(len(log)), log.last()]
    expected = np.where(shown, np.einsum("ip,ip->p", policy.marginal, model), 0.0)
    below = expected.sum(axis=1, keepdims=True) - np.cumsum(expected, axis=1)
    guess = np.where(shown, model[at], 0.0)
    weights = np.where(shown, above, 0.0)
    terms = (
        shown,
        rewards,
        w,
        w * rewards,
        expected,
        expected + w * (rewards - guess),
        weights * rewards,
        weights * (rewards - guess - below) + np.where(shown, before * (means + below), 0.0),
    )
    sums = dict(zip((_SHOWN, _REWARD, _WEIGHT, _IPS, _MODEL, _ROBUST, _ABOVE, _CASCADE), terms, strict=True))
    f = np.ones((TERMS, len(log)))
    for place, term in sums.items():
        f[place] = term.sum(axis=1)
    f[_WHOLE], f[_STANDARD] = whole, whole * f[_REWARD]
    return f @ f.T


def judgement(total: Summary, lowest: float = -math.inf, unseen: float = 0.0, level: float = 0.95) -> Judgement:
    """Estimates from a summary.

    Args:
        total: A summary, or the sum of several.
        lowest: The least that a row can earn; intervals end there.
        unseen: As of the result.
        level: Coverage of the intervals.
    """
    from scipy.stats import t

    n = total[_ONE, _ONE]
    means = total[_ONE] / n
    spread = (total / n - np.outer(means, means)) * (n / max(n - 1, 1))
    quantile = float(t.ppf(0.5 + level / 2, max(n - 1, 1)))
    unit = np.eye(TERMS)

    def ratio(above: np.ndarray, below: int = _SHOWN, low: float = lowest) -> Estimate:
        """Of sums, ``above`` of them over one of them, with the spread of a ratio."""
        if not means[below] > 0:
            return Estimate(math.nan)
        value = float(above @ means / means[below])
        gradient = (above - value * unit[below]) / means[below]
        half = quantile * math.sqrt(max(float(gradient @ spread @ gradient / n), 0.0)) if n > 1 else math.nan
        ends = (min(value, max(value - half, low)), value + half) if math.isfinite(half) else (None, None)
        return Estimate(value, *ends)

    def effective(place: int) -> float:
        return float(total[_ONE, place] ** 2 / total[place, place]) if total[place, place] > 0 else 0.0

    places = {"ips": _IPS, "rips": _ABOVE, "sips": _STANDARD, "dr": _ROBUST, "cdr": _CASCADE}
    found = {name: ratio(unit[place]) for name, place in places.items()}
    found |= {"snips": ratio(unit[_IPS], _WEIGHT), "dm": Estimate(ratio(unit[_MODEL]).value)}
    return Judgement(
        int(n),
        int(total[_ONE, _SHOWN]),
        ratio(unit[_REWARD]),
        {name: found[name] for name in ESTIMATORS},
        ratio(unit[_CASCADE] - unit[_REWARD], low=-math.inf),
        ratio(unit[_WHOLE], _ONE, 0.0),
        effective(_WHOLE),
        effective(_ABOVE),
        unseen,
    )


def _lowest(logs: Sequence[Log]) -> float:
    """0 where nothing was ever earned below it, as with clicks."""
    return 0.0 if all(float(log.rewards.min()) >= 0.0 for log in logs) else -math.inf


def _unseen_share(shown: Table, table: Table) -> float:
    """Share of the policy's choices at positions as often as they were shown that the log never made."""
    share = shown.sum(axis=0) / shown.sum()
    return float(np.sum(share * np.where(shown > 0, 0.0, table).sum(axis=0)))
