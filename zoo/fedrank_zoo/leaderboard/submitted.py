"""Rows that others submit: a CSV with a line for each seed and division, checked before it is taken.

What a line says is checked for form, names, ranges, seeds and budget, and its evidence for what it claims: a run's
directory is read, and its ranker scored again. A link to a run elsewhere cannot be checked here, and the page says so.

A file may be signed (Ed25519, by a key as silos have it). Rows then show the key's first eight characters, and a
submitter's name that was signed once takes no file without that key's signature.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import math
import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fedrank.core.errors import ConfigError, DataError, FedrankError, UnknownNameError
from fedrank.core.privacy_report import PrivacyReport, Unit
from fedrank.core.trees import Json, flat
from fedrank.engine.checkpoint import write_atomically
from fedrank.engine.model import read_model_of_run
from fedrank.engine.run_folder import RunFolder
from fedrank.engine.settings import as_dict
from fedrank.ranking.build import splits_of
from fedrank.ranking.clicks.cascade import USERS
from fedrank.ranking.evaluate import Measurement
from fedrank.silos.studies.keys import KEY, is_signed, make_key, read_key
from fedrank_zoo.leaderboard.cell import judged_by
from fedrank_zoo.leaderboard.grid import ATTACKS, FIRST_SEED, HETEROGENEITY, MEASURE, Block, Grid, Part
from fedrank_zoo.leaderboard.standings import BUDGETS, Row, epsilon_words

#: Columns that a file must have, in the order in which they are documented.
COLUMNS = (
    "method",
    "submitter",
    "data",
    "division",
    "clicks",
    "heterogeneity",
    "epsilon",
    "attack",
    "budget",
    "seed",
    "interactions",
    "bytes",
    MEASURE,
    "evidence",
)
#: Columns that it may have.
OPTIONAL = ("RR@10", "expected", "online")
#: Fewest seeds of a row: with two, an interval says nothing.
FEWEST_SEEDS = 3
#: Values that are equal but for how they were written down.
_CLOSE = 5e-4
_LINK = re.compile(r"https://\S+ sha256:[0-9a-f]{64}")


@dataclass(frozen=True)
class Line:
    """One line of a submission.

    Attributes:
        number: Its number in the file, from 1.
        method: What the method is called.
        submitter: Who submits it.
        block: The circumstances.
        division: Name of the division of the data.
        budget: One of :data:`~fedrank_zoo.leaderboard.standings.BUDGETS`.
        seed: Of the run.
        interactions: Interactions of the run.
        bytes: Bytes that devices sent; None: not said.
        values: By measure.
        evidence: A run's directory, or a link with a checksum.
    """

    number: int
    method: str
    submitter: str
    block: Block
    division: str
    budget: str
    seed: int
    interactions: int
    bytes: int | None
    values: Mapping[str, float]
    evidence: str

    @property
    def is_link(self) -> bool:
        """True if the evidence is a link, which is not checked."""
        return bool(_LINK.fullmatch(self.evidence))


def read_lines(path: Path, grid: Grid) -> list[Line]:
    """The lines of a submission, each checked by itself and all of them together.

    Args:
        path: The CSV file.
        grid: The leaderboard that it is submitted to.

    Raises:
        DataError: Something is wrong; says in which line, what came and what is wanted.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise DataError(f"cannot be read ({error.strerror}).", path) from error
    except UnicodeDecodeError as error:
        raise DataError("is not text in UTF-8; save it as CSV in UTF-8.", path) from error
    if "\0" in text:
        raise DataError("is not a CSV file: it has a zero byte.", path)
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        heads = [head.strip() for head in next(reader, [])]
        _check_heads(heads, path)
        lines = []
        for cells in reader:
            if not any(cell.strip() for cell in cells):
                continue
            if len(cells) != len(heads):
                raise DataError(f"has {len(cells)} cells, the header {len(heads)}.", path, reader.line_num)
            try:
                lines.append(_line(dict(zip(heads, map(str.strip, cells), strict=True)), reader.line_num, grid))
            except FedrankError as error:
                raise DataError(str(error), path, reader.line_num) from error
    except csv.Error as error:
        raise DataError(f"is not CSV: {error}.", path, reader.line_num) from error
    if not lines:
        raise DataError("has no lines below its header.", path)
    _check_together(lines, path, grid)
    return lines


def _check_heads(heads: Sequence[str], path: Path) -> None:
    known = (*COLUMNS, *OPTIONAL)
    if missing := [name for name in COLUMNS if name not in heads]:
        raise DataError(f"lacks the columns {', '.join(missing)}; a file has: {', '.join(COLUMNS)}.", path, 1)
    for name in heads:
        if name not in known:
            raise DataError(str(UnknownNameError("column", name, known)), path, 1)
    if len(set(heads)) < len(heads):
        raise DataError("names a column twice.", path, 1)


def _line(cells: Mapping[str, str], number: int, grid: Grid) -> Line:
    for name in ("method", "submitter", "evidence"):
        if not 1 <= len(cells[name]) <= 300 or not cells[name].isprintable():
            raise ConfigError(f"{name} must be 1 to 300 printable characters, got {cells[name][:40]!r}.")
    if cells["method"].startswith("labels:"):
        raise ConfigError("method must not begin with 'labels:', which is said of rankers trained on labels.")
    data = _one_of(cells, "data", dict.fromkeys(part.data for part in grid.parts))
    division = _one_of(cells, "division", [part.name for part in grid.parts_of(data)])
    epsilon = None
    if cells["epsilon"] == epsilon_words(math.inf):
        epsilon = math.inf
    elif cells["epsilon"] != "none":
        epsilon = _number(cells, "epsilon", 0.0, 1000.0)
        if epsilon == 0:
            raise ConfigError("epsilon must be above 0, or 'none'.")
    block = Block(
        data,
        _one_of(cells, "clicks", USERS.names()),
        _one_of(cells, "heterogeneity", HETEROGENEITY),
        epsilon,
        _one_of(cells, "attack", ATTACKS),
    )
    budget = _one_of(cells, "budget", BUDGETS)
    seed = _whole(cells, "seed", FIRST_SEED, 2**32 - 1, f"seeds below {FIRST_SEED} were used in development")
    interactions = _whole(cells, "interactions", 1, grid.terms.budget, "that is the budget of interactions")
    most = grid.terms.upload if budget == "bytes" else 10**15
    sent = None
    if cells["bytes"] or budget == "bytes":
        sent = _whole(cells, "bytes", 0, most, "that is the budget of bytes" if budget == "bytes" else "")
    values = {name: _number(cells, name, 0.0, 1.0) for name in (MEASURE, *OPTIONAL) if cells.get(name)}
    if MEASURE not in values:
        raise ConfigError(f"{MEASURE} must be a number from 0 to 1, got nothing.")
    method, submitter, evidence = cells["method"], cells["submitter"], cells["evidence"]
    return Line(number, method, submitter, block, division, budget, seed, interactions, sent, values, evidence)


def _one_of(cells: Mapping[str, str], name: str, known: Sequence[str] | Mapping[str, object]) -> str:
    if cells[name] not in known:
        raise UnknownNameError(name, cells[name], known)
    return cells[name]


def _number(cells: Mapping[str, str], name: str, low: float, high: float) -> float:
    try:
        value = float(cells[name])
    except ValueError:
        value = math.nan
    if not low <= value <= high:
        raise ConfigError(f"{name} must be a number from {low:g} to {high:g}, got {cells[name]!r}.")
    return value


def _whole(cells: Mapping[str, str], name: str, low: int, high: int, why: str) -> int:
    said = f" ({why})" if why else ""
    if not re.fullmatch(r"\d{1,18}", cells[name]) or not low <= int(cells[name]) <= high:
        raise ConfigError(f"{name} must be a whole number from {low:,} to {high:,}{said}, got {cells[name]!r}.")
    return int(cells[name])


def _group(line: Line) -> tuple[str, str, Block, str]:
    return line.method, line.submitter, line.block, line.budget


def _groups(lines: Sequence[Line]) -> dict[tuple[str, str, Block, str], list[Line]]:
    groups: dict[tuple[str, str, Block, str], list[Line]] = {}
    for line in lines:
        groups.setdefault(_group(line), []).append(line)
    return groups


def _check_together(lines: Sequence[Line], path: Path, grid: Grid) -> None:
    """Refuse rows without all divisions, with few seeds, or with a seed twice."""
    for (method, _, block, budget), members in _groups(lines).items():
        about = f"{method!r} on {block.data} ({block.clicks}, {budget})"
        seeds: dict[str, set[int]] = {part.name: set() for part in grid.parts_of(block.data)}
        for line in members:
            if line.seed in seeds[line.division]:
                raise DataError(f"{about} has seed {line.seed} of {line.division} twice.", path, line.number)
            seeds[line.division].add(line.seed)
        if missing := [name for name, found in seeds.items() if not found]:
            raise DataError(f"{about} lacks {', '.join(missing)}: every division of a data set is wanted.", path)
        first = next(iter(seeds.values()))
        if any(found != first for found in seeds.values()):
            raise DataError(f"{about} has other seeds on one division than on another; use the same on all.", path)
        if len(first) < FEWEST_SEEDS:
            raise DataError(f"{about} has {len(first)} seeds; at least {FEWEST_SEEDS} are wanted.", path)


# ----------------------------------------------------------------------------------------------------------- evidence


def check_evidence(lines: Sequence[Line], path: Path, grid: Grid) -> None:
    """Read the runs that lines point to, and score their rankers again.

    Args:
        lines: Of :func:`read_lines`.
        path: The file that they stand in; runs' paths are relative to it.
        grid: The leaderboard.

    Raises:
        DataError: A run is not there, unfinished, of something else, or did not reach what a line says.
    """
    for line in lines:
        if line.is_link:
            continue
        folder = (path.parent / line.evidence).resolve()
        if not (folder / "config.toml").is_file():
            raise DataError(
                f"evidence must be the directory of a run, or 'https://… sha256:…' with the checksum of an archive of "
                f"it; {line.evidence!r} is neither.",
                path,
                line.number,
            )
        try:
            part = next(part for part in grid.parts_of(line.block.data) if part.name == line.division)
            _check_run(line, folder, part)
        except FedrankError as error:
            raise DataError(f"evidence {line.evidence}: {error}", path, line.number) from error


def _check_run(line: Line, folder: Path, part: Part) -> None:
    if not (folder / "done.json").exists():
        raise DataError("the run is not finished.")
    config = RunFolder(folder).reopen()
    settings = {key: list(v) if isinstance(v, tuple) else v for key, v in flat(as_dict(config))}
    wanted: dict[str, Json] = {**part.settings, "clicks": line.block.clicks}
    wanted |= {"share": "uniform", "devices.users": [], "devices.amounts": "equal", "attack.share": 0.0}
    wanted |= HETEROGENEITY[line.block.heterogeneity] | ATTACKS[line.block.attack]
    for key, value in wanted.items():
        if settings.get(key, value) != value:
            raise DataError(f"the line says {key} = {value!r}, the run has {settings[key]!r}.")
    if not config.seed <= line.seed < config.seed + config.seeds:
        raise DataError(f"the run has the seeds {config.seed} to {config.seed + config.seeds - 1}, not {line.seed}.")
    if line.block.epsilon is not None:
        promised = PrivacyReport.from_json(json.loads((folder / "privacy.json").read_text())).epsilon(Unit.USER)
        if promised > line.block.epsilon * (1 + 1e-9):
            raise DataError(f"the line says ε = {line.block.epsilon:g} of a user, the run promises {promised:g}.")
    splits = splits_of(config)
    judged = judged_by(splits)
    last = RunFolder(folder).read_metrics().where(split=judged, seed=line.seed, measure=MEASURE).sort("round")
    if not len(last):
        raise DataError(f"the run has no {MEASURE} of seed {line.seed} on its {judged} part.")
    row = last[-1:].dicts()[0]
    for name, said, measured in (
        ("interactions", line.interactions, row["interactions"]),
        ("bytes", line.bytes, row["bytes_up"]),
    ):
        if said is not None and said != measured:
            raise DataError(f"the line says {said:,} {name}, the run has {measured:,}.")
    model = read_model_of_run(folder, line.seed)
    scores = [model.score(q.features, np.repeat(q.qids, q.lengths)) for q in splits.parts().values()]
    measurement = Measurement(splits, None, (), (MEASURE,), config.evaluation.tie_orders)
    values = measurement.per_query(np.concatenate(scores)[None])[MEASURE][0]
    scored = float(values[np.array(measurement.queries["split"]) == judged].mean())
    for whose, value in (("the run's measures", row["value"]), ("its ranker, scored again,", scored)):
        if abs(value - line.values[MEASURE]) > _CLOSE:
            raise DataError(f"the line says {MEASURE} {line.values[MEASURE]:.4f}, {whose} have {value:.4f}.")


# --------------------------------------------------------------------------------------------------------- signatures


def sign(path: Path, folder: Path) -> str:
    """Sign a submission: write ``<file>.signature`` beside it.

    Args:
        path: The CSV file.
        folder: Of the key; it is made where there is none.

    Returns:
        The public key.

    Raises:
        DataError: The file cannot be read.
        FormatError: The folder's key is none.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise DataError(f"cannot be read ({error.strerror}).", path) from error
    key = read_key(folder / KEY) if (folder / KEY).exists() else make_key(folder / KEY)
    signed = {"key": key.public, "signature": key.sign(_signed_content(content))}
    write_atomically(_signature_of(path), json.dumps(signed).encode())
    return key.public


def _signature_of(path: Path) -> Path:
    return path.with_name(path.name + ".signature")


def _signed_content(content: bytes) -> dict[str, Json]:
    return {"kind": "rows of a leaderboard", "sha256": hashlib.sha256(content).hexdigest()}


def signer_of(path: Path) -> str:
    """The public key that signed a submission; empty: it is not signed.

    Raises:
        DataError: The signature is not one of this file.
    """
    file = _signature_of(path)
    if not file.exists():
        return ""
    try:
        signed = json.loads(file.read_bytes())
        good = is_signed(_signed_content(path.read_bytes()), signed["signature"], signed["key"])
    except (ValueError, TypeError, KeyError, AttributeError):
        good = False
    if not good:
        raise DataError(f"is not what {file.name} signs; sign it again, or delete the signature.", path)
    return signed["key"]


def _check_names(lines: Sequence[Line], path: Path, signer: str, folder: Path, grid: Grid) -> None:
    """Refuse a submitter's name that another key has signed before, also in other letters of the same kind."""
    names = {_folded(line.submitter) for line in lines}
    for kept in sorted((folder / "submitted").glob("*.csv")):
        if (other := signer_of(kept)) and other != signer:
            taken = [line.submitter for line in read_lines(kept, grid) if _folded(line.submitter) in names]
            if taken:
                raise DataError(
                    f"{taken[0]!r} has signed rows here with the key {other[:8]}; "
                    f"this file is {f'signed with {signer[:8]}' if signer else 'not signed'}.",
                    path,
                )


def _folded(name: str) -> str:
    """A name as names are compared: in one case, and in one form of each letter."""
    return " ".join(unicodedata.normalize("NFKC", name).casefold().split())


# ------------------------------------------------------------------------------------------------------------ merging


def submit(path: Path, folder: Path, grid: Grid) -> list[Row]:
    """Check a submission and keep it beside a leaderboard.

    Args:
        path: The CSV file.
        folder: The leaderboard's.
        grid: What the leaderboard is of.

    Returns:
        Its rows.

    Raises:
        DataError: Something is wrong with it; nothing is kept.
    """
    lines, signer = read_lines(path, grid), signer_of(path)
    _check_names(lines, path, signer, folder, grid)
    check_evidence(lines, path, grid)
    name = re.sub(r"[^a-z0-9]+", "-", f"{lines[0].submitter} {lines[0].method}".lower()).strip("-")[:60]
    content = path.read_bytes()
    kept = folder / "submitted" / f"{name}-{hashlib.sha256(content).hexdigest()}.csv"
    if signer:
        write_atomically(_signature_of(kept), _signature_of(path).read_bytes())
    write_atomically(kept, content)
    return rows_of(lines, signer)


def submitted_rows(folder: Path, grid: Grid) -> list[Row]:
    """The rows of all submissions that are kept beside a leaderboard, read again."""
    return [
        row
        for path in sorted((folder / "submitted").glob("*.csv"))
        for row in rows_of(read_lines(path, grid), signer_of(path))
    ]


def rows_of(lines: Sequence[Line], signer: str = "") -> list[Row]:
    """Rows of the leaderboard from the lines of a submission: each seed's mean over divisions.

    Args:
        lines: Of :func:`read_lines`.
        signer: The public key that signed them; empty: none.
    """
    out = []
    for (method, submitter, block, budget), members in _groups(lines).items():
        by_seed: dict[str, dict[int, float]] = {}
        for measure in (MEASURE, *OPTIONAL):
            if all(measure in line.values for line in members):
                for seed in sorted({line.seed for line in members}):
                    values = [line.values[measure] for line in members if line.seed == seed]
                    by_seed.setdefault(measure, {})[seed] = float(np.mean(values))
        checked = "linked, not checked" if any(line.is_link for line in members) else "run and ranker checked"
        out.append(
            Row(
                method,
                f"submitted, {f'signed with {signer[:8]}' if signer else 'not signed'}, by {submitter}",
                block,
                budget,
                tuple(dict.fromkeys(line.division for line in members)),
                by_seed,
                interactions=max(line.interactions for line in members),
                bytes=max(line.bytes or 0 for line in members),
                evidence=f"{members[0].evidence} ({checked})",
            )
        )
    return out
