"""A silo's node: it answers rounds from its own table, by the rules of the codebook, and keeps a book of what left it.

What a rule forbids is answered by as many numbers as ever, none of which is told, and the rule's name. The rules:

* *smallest cell*: a count of rows of levels that follows from the answers, above 0 and below the smallest cell, is not
  told: of pairs of columns, of interactions and their products, of bins of time with all of these, and of all columns
  where a model has few patterns of levels; nor are sums where fewer rows than that differ from a number's commonest
  value;
* *few rows weigh*: coefficients at which next to all of the weight is that of fewer rows than the smallest cell are not
  answered: their sums would be those of single rows;
* *rows* and *events for each coefficient*: a model of nearly as many coefficients as rows tells the rows;
* *differencing*: rows that some questions use and others do not are at least a smallest cell, for each choice of
  questions: sums of the questions added and subtracted tell theirs;
* *same bins*: counts of a column's values are by the bins of the first codebook that was answered;
* *same table*: answers of a question come from one state of the table's values;
* *plan*: only questions of the codebook's plan are answered, by the steps of their analyses with the settings that
  follow from the codebook, each for at most :data:`MOST_ROUNDS` rounds.

What they do not cover: sums of many rounds are equations about rows, and enough of them have one solution. A secure sum
hides a silo's own; a record's ε bounds what any of it tells.
"""

from __future__ import annotations

import functools
import hashlib
import io
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple
from zipfile import BadZipFile

import numpy as np
from jaxtyping import Bool, Float, UInt32
from threadpoolctl import ThreadpoolController

from fedrank.core.errors import ConfigError, DataError, FedrankError, FormatError, RunError
from fedrank.engine.checkpoint import lock_folder, write_atomically
from fedrank.silos.studies.codebook import Codebook, Question
from fedrank.silos.studies.formula import Design
from fedrank.silos.studies.keys import KEY, Key, add_masks, context_of, read_key
from fedrank.silos.studies.messages import Answer, Reply, Round
from fedrank.silos.studies.protocol import Ask, Rows
from fedrank.silos.studies.questions import TIME, Prepared, prepare
from fedrank.silos.studies.table import Block, Table, own_table

#: Libraries of linear algebra that have been loaded; to find them takes milliseconds.
_threads = functools.cache(ThreadpoolController)
#: Rounds of one question that a silo answers.
MOST_ROUNDS = 60
#: Seconds that a process waits for another one that writes into the silo's folder.
PATIENCE = 30.0
#: Largest number of an answer: one that is not finite cannot be written.
_MOST = 1e300


class _Guard:
    """Counts of the rows that pass by while an answer is computed, and what the rules say of them."""

    def __init__(self, prepared: Prepared, ask: Ask):
        self.prepared = prepared
        design = prepared.design
        self.n = self.all = self.events = 0
        self.cells: list[list[tuple[np.ndarray, np.ndarray]]] = [[] for _ in prepared.tables]
        about = {} if prepared.of_blocks else {name: design.codebook.column(name) for name in design.all_columns}
        self.numbers = [name for name, column in about.items() if column.range and name != design.time]
        self.usual: dict[str, float] = {}
        self.unusual = dict.fromkeys(self.numbers, 0)
        self.masks: list[np.ndarray] = []
        self.values = hashlib.sha256()
        self.points = np.zeros((0, 0))
        if prepared.weigh is not None and "theta" in ask.numbers:
            self.points = np.atleast_2d(ask.numbers["theta"])
        self.weights = np.zeros((2, 0, 0, 1))
        self.case_weights = np.zeros(2)

    def see(self, rows: Rows, complete: Bool[np.ndarray, " rows"], block: Block) -> None:
        """Count a block."""
        self.count(complete, block)
        design, bins, n = self.prepared.design, self.prepared.bins, len(rows.y)
        place, cells = np.zeros(n, int), 1
        if bins is not None:
            place = rows.stratum * (len(bins) + 1) + np.searchsorted(bins, rows.y, side="left")
            cells = design.n_strata() * (len(bins) + 1)
        for number, table in enumerate(self.prepared.tables):
            code = np.zeros(n, int)
            for name in table:
                if name == TIME:
                    code = code * (len(bins) + 1) + np.searchsorted(bins, rows.y, side="left")  # type: ignore[arg-type]
                else:
                    code = code * len(design.codebook.column(name).levels) + block[name][complete].astype(int)
            self.cells[number].append(np.unique(code, return_counts=True))
        for name in self.numbers if n else ():
            values = block[name][complete]
            if name not in self.usual:  # a value that more than half of the rows have is their median
                self.usual[name] = float(np.median(values))
            self.unusual[name] += int((values != self.usual[name]).sum())
        if len(self.prepared.outcome_levels) == 2:
            self.events += int(((rows.event if design.time else rows.y) > 0).sum())
        self.case_weights += rows.weight.sum(), rows.weight @ rows.weight
        if len(self.points):
            found = [self.prepared.weigh(theta, rows) for theta in self.points]  # type: ignore[misc] - there are points
            added = [[[np.bincount(place, w**k, cells) for w in of] for of in found] for k in (1, 2)]
            self.weights = np.array(added) + (self.weights if self.weights.size else 0)

    def count(self, complete: Bool[np.ndarray, " rows"], block: Block) -> None:
        """Count rows of which no more is looked at."""
        self.n += int(complete.sum())
        self.all += len(complete)
        self.masks.append(complete)
        for name in sorted(block):
            self.values.update(np.ascontiguousarray(block[name]).data)

    def broken_rule(self, book: Codebook) -> str:
        """The rule that forbids the answer, in words; empty where none does."""
        least, rules = book.rules.smallest_cell, book.rules
        small = f"smaller than the smallest cell, {least}"
        if self.n < max(least, 1):
            return f"smallest cell: the rows that have all values are fewer than {least}"
        for table, parts in zip(self.prepared.tables, self.cells, strict=True):
            codes, counts = (np.concatenate(one) for one in zip(*parts, strict=True))
            if (np.bincount(np.unique(codes, return_inverse=True)[1], counts) < least).any():
                return f"smallest cell: a cell of {' by '.join(table)} is {small}"
        for name, count in self.unusual.items():
            if 0 < count < least:
                return f"smallest cell: the rows without the commonest value of {name} are fewer than {least}"
        total, squares = self.case_weights
        if not self.prepared.of_blocks and total**2 <= least * squares * (1 - 1e-9):
            return f"few rows weigh: by their case weights fewer than {least} rows count"
        total, squares = self.weights
        # Rows that all but cancel leave rounding: of next to no weight at all nothing is told.
        few = ~((total**2 > least * squares * (1 - 1e-9)) & (total >= 1e-6 * least))
        if (few & ((squares != 0) | (self.prepared.bins is None))).any():  # a bin without rows has no weight
            return f"few rows weigh: at the coefficients that are asked for fewer than {least} rows carry the sums"
        parameters = self.prepared.parameters
        if parameters and self.n < rules.rows_per_parameter * parameters:
            need = rules.rows_per_parameter * parameters
            return f"rows for each coefficient: {parameters} coefficients need {need:g} rows"
        if parameters and len(self.prepared.outcome_levels) == 2:
            need = rules.events_per_parameter * parameters
            if self.events < need or (self.n - self.events < need and not self.prepared.design.time):
                return f"events for each coefficient: {parameters} coefficients need {need:g} rows of each outcome"
        return ""

    @property
    def mask(self) -> Bool[np.ndarray, " rows"]:
        """Mask of the rows that were used, over all rows of the table."""
        return np.concatenate(self.masks) if self.masks else np.zeros(0, bool)


class _RowSet(NamedTuple):
    """Rows that a question used: their mask over the table, a hash of all values of its columns, and its bins."""

    mask: Bool[np.ndarray, " rows"]
    values: str
    grids: Mapping[str, list[float]]


@dataclass(eq=False)
class Node:
    """One silo's node.

    Attributes:
        table: The silo's rows.
        folder: Where the book and the sets of rows that questions used are kept; None: in memory, for simulations.
            Several processes may use one: each reads it anew, and checks the rules anew, before it writes.
        agreed: Hash of the codebook that the silo agreed to.
        key: The silo's private key, where the codebook has keys.
    """

    table: Table
    folder: Path | None = None
    agreed: str = ""
    key: Key | None = None
    _used: dict[tuple[str, str], _RowSet] = field(default_factory=dict, init=False)
    _seen: dict[tuple[str, str], _RowSet] = field(default_factory=dict, init=False)
    _prepared: dict[str, Prepared] = field(default_factory=dict, init=False)
    _book: list[dict[str, Any]] = field(default_factory=list, init=False)
    _files: set[str] = field(default_factory=set, init=False)
    _whole: int = field(default=0, init=False)

    def __post_init__(self):
        self.agreed = self.agreed or self.table.codebook.sha
        if self.folder is None:
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        self._read()

    def _read(self) -> None:
        """Read the book and the sets of rows as they are in the folder now."""
        if self.folder is None:
            return
        path = self.folder / _BOOK
        try:
            content = path.read_bytes() if path.exists() else b""
            self._whole = content.rfind(b"\n") + 1  # after it a killed process's half
            self._book = [json.loads(line) for line in content[: self._whole].decode().splitlines()]
            for file in sorted(self.folder.glob("rows-*.npz")):
                if file.name in self._files:
                    continue
                kept = np.load(file)
                mask = np.unpackbits(kept["mask"], count=int(kept["rows"])).astype(bool)
                own = _RowSet(mask, str(kept["values"]), json.loads(str(kept["grids"])))
                self._used[str(kept["codebook"]), str(kept["question"])] = own
                self._files.add(file.name)
        except (ValueError, OSError, KeyError, EOFError, BadZipFile) as cause:
            raise FormatError(f"the silo's book cannot be read ({cause}); nothing is answered.", path) from cause

    def answer(self, asked: Round, *, record: bool = True) -> Answer:
        """Answer a round.

        Args:
            asked: The round.
            record: Write it into the book; else :meth:`record` does before the answer leaves.

        Raises:
            ConfigError: The round is of another codebook than the silo agreed to, or the silo's key is not the
                codebook's.
            DataError: The round asks for what no analysis of this version asks, or its coordinator did not sign it.
            RunError: As of :meth:`record`.
        """
        book = asked.codebook
        if book.sha != self.agreed:
            raise ConfigError(
                f"the round is of the codebook {book.sha[:12]}, and {self.table.silo} agreed to {self.agreed[:12]}; "
                "agree on one codebook, and begin the study again if it changed."
            )
        silo = self.table.silo
        if book.keys and (self.key is None or self.key.public != book.keys[silo]):
            raise ConfigError(
                f"the key of this folder is not the one that the codebook names for {silo}; name the silo whose "
                "folder it is, or agree on a codebook with its line (fedrank silos key)."
            )
        if not asked.is_signed:
            raise DataError("the round is not signed by the coordinator that the codebook names; nothing is answered.")
        self._seen = {}  # rows of this round's answers, remembered when it is recorded
        # Products of parts of a few thousand rows: threads cost more than they bring.
        with _threads().limit(limits=1, user_api="blas"):
            replies = {name: self._reply(book.question(name), ask, asked) for name, ask in asked.asks.items()}
        made = Answer(self.table.silo, book.sha, asked.number, asked.sha, replies)
        if book.keys and self.key is not None:
            made = made.sign(self.key)
        if record:
            self.record(asked, made)
        return made

    def record(self, asked: Round, answer: Answer) -> None:
        """Write an answer into the book, and remember its rows, which is done before it leaves.

        Raises:
            RunError: The folder cannot be written, another process holds it for longer than :data:`PATIENCE`, or what
                it wrote meanwhile forbids the answer; the answer must not leave.
        """
        if self.folder is None:
            self._record(asked, answer)
            return
        with lock_folder(self.folder, "holds this silo's folder", wait=PATIENCE):
            self._read()
            self._record(asked, answer)

    def _record(self, asked: Round, answer: Answer) -> None:
        size = len(json.dumps(answer.as_json())) if self.folder is not None else 0
        told = [name for name, reply in answer.replies.items() if not reply.refused]
        for name in told:
            key = asked.codebook.sha, name
            if rule := self._limits(asked.codebook.question(name), asked) or self._differs(key, self._seen[key]):
                raise RunError(
                    f"{self.folder}: another process answered meanwhile; the answer to {name!r} would now break a rule "
                    f"({rule}). Nothing was answered; answer the round again."
                )
        try:
            for name in told:  # before the lines: of a killed process there may be rows too many, not too few
                self._remember((asked.codebook.sha, name))
            self._write([self._line(asked, name, reply, size) for name, reply in answer.replies.items()])
        except OSError as cause:
            raise RunError(f"{self.folder}: cannot be written ({cause.strerror}); nothing was answered.") from cause

    def _remember(self, key: tuple[str, str]) -> None:
        if key in self._used:
            return
        self._used[key] = used = self._seen[key]
        if self.folder is not None:
            content = io.BytesIO()
            np.savez_compressed(
                content, mask=np.packbits(used.mask), rows=len(used.mask), values=used.values, codebook=key[0],
                question=key[1], grids=json.dumps(used.grids),
            )  # fmt: skip
            digest = hashlib.sha256("\0".join(key).encode()).hexdigest()
            name = f"rows-{digest[:16]}.npz"
            write_atomically(self.folder / name, content.getvalue())
            self._files.add(name)

    def words(self, asked: Round, answer: Answer) -> list[str]:
        """Sentences on what an answer would tell, one for each question."""
        return [_in_words(asked, name, reply) for name, reply in answer.replies.items()]

    def _reply(self, question: Question, ask: Ask, asked: Round) -> Reply:
        try:
            if question.name not in self._prepared:
                self._prepared[question.name] = prepare(question, asked.codebook)
            prepared = self._prepared[question.name]
            prepared.check(ask)
            guard = _Guard(prepared, ask)
            rows = self._blocks(prepared.design, guard) if prepared.of_blocks else self._rows(prepared.design, guard)
            numbers = np.clip(prepared.answer(ask, rows), -_MOST, _MOST)
        except (ValueError, KeyError, IndexError, TypeError, AttributeError, ArithmeticError, MemoryError) as cause:
            if isinstance(cause, FedrankError):
                raise
            raise DataError(f"the ask of question {question.name!r} is none of its analysis: {cause!r}.") from cause
        key = asked.codebook.sha, question.name
        own = _RowSet(guard.mask, guard.values.hexdigest(), prepared.grids)
        rule = self._limits(question, asked) or guard.broken_rule(asked.codebook) or self._differs(key, own)
        if rule:
            return Reply(np.full(len(numbers), np.nan), refused=rule)
        self._seen[key] = own
        if asked.codebook.rules.secure_sum and not prepared.by_silo:
            return Reply(self._mask(numbers, question.name, asked), guard.n, guard.all - guard.n)
        return Reply(numbers, guard.n, guard.all - guard.n)

    def _mask(
        self, numbers: Float[np.ndarray, " numbers"], question: str, asked: Round
    ) -> UInt32[np.ndarray, " words"]:
        assert self.key is not None  # answer() looked
        silos, book = asked.of(question), asked.codebook
        context = context_of(book.sha, question, asked.attempts.get(question, 0), asked.asks[question], silos)
        return add_masks(numbers, self.table.silo, self.key, silos, book.keys, context)

    def _rows(self, design: Design, guard: _Guard) -> Iterator[Rows]:
        for block in self.table.blocks(design.columns):
            rows, complete = design.rows(block, self.table.silo)
            guard.see(rows, complete, block)
            yield rows

    def _blocks(self, design: Design, guard: _Guard) -> Iterator[Block]:
        for block in self.table.blocks(design.columns):
            guard.count(design.complete(block), block)
            yield block

    def _limits(self, question: Question, asked: Round) -> str:
        before = {one["asked"] for one in self._book if one["question"] == question.name}
        if len(before - {asked.sha}) >= MOST_ROUNDS:
            return f"plan: a question is answered for {MOST_ROUNDS} rounds"
        silos = asked.of(question.name)
        if self.table.silo not in silos or len(silos) < asked.codebook.fewest_silos:
            return f"fewest silos: the sum is of {', '.join(silos)}"
        return ""

    def _differs(self, key: tuple[str, str], own: _RowSet) -> str:
        """The rule that the rows of a question break beside those of earlier ones."""
        least, masks = self.table.codebook.rules.smallest_cell, [own.mask]
        for (codebook, name), other in {**self._used, **self._seen}.items():
            if len(other.mask) != len(own.mask):
                return "same table: the table has other rows than when the study began"
            if (codebook, name) == key and other.values != own.values:
                return "same table: values have changed since the question was asked first"
            if moved := [column for column, grid in own.grids.items() if other.grids.get(column, grid) != grid]:
                return f"same bins: counts by other bins of {moved[0]} tell the rows between the ends of both"
            if not any(np.array_equal(other.mask, one) for one in masks):
                masks.append(other.mask)
        # Rows that are in the same questions: sums and differences of the questions' sums tell no part of them.
        together = np.zeros(len(own.mask), int)
        for mask in masks if len(masks) > 1 else ():
            together = np.unique(2 * together + mask, return_inverse=True)[1]
        counts = np.bincount(together[np.any(masks, axis=0)])
        if len(masks) > 1 and ((counts > 0) & (counts < least)).any():
            return f"differencing: fewer than {least} rows are in some of the questions and not in the others"
        return ""

    def _line(self, asked: Round, question: str, reply: Reply, size: int) -> dict[str, Any]:
        """One line of the book."""
        return {
            "time": datetime.now(UTC).isoformat(timespec="seconds"),
            "study": asked.codebook.study,
            "codebook": asked.codebook.sha,
            "question": question,
            "formula": asked.codebook.question(question).formula,
            "round": asked.number,
            "asked": asked.sha,
            "step": asked.asks[question].step,
            "numbers": reply.length if not reply.refused else 0,
            "message_bytes": size,
            "refused": reply.refused,
            "words": _in_words(asked, question, reply),
        }

    def _write(self, lines: list[dict[str, Any]]) -> None:
        """Append lines to the book, over what a killed process left of one."""
        self._book += lines
        if self.folder is None:
            return
        content = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines).encode()
        with open(self.folder / _BOOK, "ab") as file:
            file.truncate(self._whole)
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        self._whole += len(content)

    @property
    def book(self) -> tuple[Mapping[str, Any], ...]:
        """Lines of the book, oldest first."""
        return tuple(self._book)


def open_node(data: Path, codebook: Codebook, silo: str, folder: Path, agreed: str) -> Node:
    """A node over a silo's file.

    Args:
        data: The silo's CSV or parquet file.
        codebook: The codebook of the round that is answered.
        silo: The silo's name in it.
        folder: The folder of its book.
        agreed: Hash of the codebook that the silo agreed to, or its first twelve digits or more.

    Raises:
        ConfigError: The codebook is not the one that was agreed to.
        FedrankError: The file or the book cannot be read.
    """
    if len(agreed) < 12 or not codebook.sha.startswith(agreed):
        raise ConfigError(
            f"the round is of the codebook {codebook.sha[:12]}, and {silo} agreed to {agreed[:12]}; agree on one "
            "codebook, and begin the study again if it changed."
        )
    key = read_key(folder / KEY) if codebook.keys else None
    return Node(own_table(data, codebook, silo), folder, codebook.sha, key)


#: File of the book of what left a silo, in its folder.
_BOOK = "book.jsonl"


def _in_words(asked: Round, question: str, reply: Reply) -> str:
    about = asked.codebook.question(question)
    if reply.refused:
        return f"Nothing of {about.formula} left: {reply.refused}."
    return f"{reply.length} sums over {reply.rows} rows left for a {about.model} model {about.formula}."
