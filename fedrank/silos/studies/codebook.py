"""The codebook of a study: what all silos agreed on before any row is read.

A TOML file names the silos, the columns with their types, units, public ranges, levels and missing codes, the rules of
disclosure, and the plan: the questions of the study and how their tests are corrected. Every message carries its hash
(SHA-256 of its content as sorted JSON, so that comments and layout do not count), and a silo answers no other. The
columns of a design and the number of numbers in an answer follow from it alone.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from fedrank.core.errors import ConfigError, FormatError, MissingDataError, UnknownNameError
from fedrank.core.fields import setting
from fedrank.core.trees import Json
from fedrank.engine.settings import from_table

#: Models of a question, by name, and what its outcome is.
MODELS = {
    "logistic": "a column of two levels; the second is the one whose odds are modelled",
    "linear": "a number",
    "poisson": "a count",
    "negative-binomial": "a count whose variance exceeds its mean",
    "multinomial": "a column of three or more levels, compared with the first",
    "ordinal": "a column of three or more levels in order",
    "cox": "Surv(time, event)",
    "curves": "Surv(time, event): Kaplan-Meier curves and the log-rank test of the groups after ~",
    "compare": "a column of two levels: a message of each silo, for fedrank silos compare at the others",
    "table": "no outcome: Table 1 of the columns after ~, by group after |",
}
_NO_PENALTY = ("cox", "curves", "table", "compare")
#: Corrections of the tests of a study.
CORRECTIONS = ("holm", "bonferroni", "none")
_ROLES = ("identifier", "cluster")


@dataclass(frozen=True, kw_only=True)
class Column:
    """A column of every silo's table.

    Exactly one of ``range``, ``levels`` and ``role`` is given.

    Raises:
        ConfigError: The settings contradict each other.
    """

    name: str
    range: tuple[float, ...] = setting((), "Smallest and largest value that there can be, of a number.")
    levels: tuple[str, ...] = setting((), "Values of a column of names; the first is the reference.")
    role: str = setting("", "identifier: never read; cluster: rows of one value belong together (a patient's visits).")
    codes: Mapping[str, str] = field(
        default_factory=dict, metadata={"help": "Value in the files -> level, where they differ."}
    )
    unit: str = setting("", "Unit of a number.")
    meaning: str = setting("", "What the column is, in words.")
    missing: tuple[str, ...] = setting((), "Values that mean a missing one, beside empty, NA, NaN, null and ?.")
    bins: tuple[float, ...] = setting((), "Ends of the bins of a time or of a histogram, ascending.")
    knots: tuple[float, ...] = setting((), "Inner knots of a spline, ascending.")

    def __post_init__(self):
        where = f"column {self.name!r} of the codebook"
        kinds = [name for name in ("range", "levels", "role") if getattr(self, name)]
        if len(kinds) != 1:
            raise ConfigError(
                f"{where} needs exactly one of range (a number), levels (names) and role (identifier, cluster), got "
                f"{' and '.join(kinds) or 'none'}."
            )
        if self.range and not (len(self.range) == 2 and np.isfinite(self.range).all() and self.low < self.high):
            raise ConfigError(f"the range of {where} must be two numbers that rise, got {list(self.range)}.")
        if self.levels and (len(self.levels) < 2 or len(set(self.levels)) < len(self.levels) or "" in self.levels):
            raise ConfigError(f"{where} needs two or more different levels, got {list(self.levels)}.")
        if self.role and self.role not in _ROLES:
            raise UnknownNameError(f"role of {where}", self.role, _ROLES)
        if odd := sorted(set(self.codes.values()) - set(self.levels)):
            raise ConfigError(f"the codes of {where} mean {odd[0]!r}, which is none of its levels.")
        for name in ("bins", "knots"):
            inside = getattr(self, name)
            if not inside:
                continue
            if not self.range:
                raise ConfigError(f"{where} has {name}, and is no number.")
            if any(a >= b for a, b in pairwise(inside)) or not (self.low <= inside[0] and inside[-1] <= self.high):
                raise ConfigError(f"the {name} of {where} must rise, from {self.low:g} on to {self.high:g}.")

    @property
    def low(self) -> float:
        """Smallest value of a number."""
        return self.range[0]

    @property
    def high(self) -> float:
        """Largest value of a number."""
        return self.range[1]

    def grid(self, most: int = 20) -> Float[np.ndarray, " bins"]:
        """Upper ends of the bins: those of the codebook, else ``most`` of one width; the last is the range's end."""
        ends = np.array(self.bins or np.linspace(self.low, self.high, most + 1)[1:])
        return ends if ends[-1] == self.high else np.append(ends, self.high)


@dataclass(frozen=True, kw_only=True)
class Rules:
    """Rules by which a silo refuses to answer.

    Raises:
        ConfigError: A number is out of range.
    """

    smallest_cell: int = setting(5, "Counts of rows above 0 and below it do not leave a silo.", low=1, high=1000)
    rows_per_parameter: float = setting(3.0, "Fewest rows of a silo for each coefficient.", low=0)
    events_per_parameter: float = setting(
        1.0, "Fewest events of a silo for each coefficient of a model of events.", low=0
    )
    exact_times: bool = setting(False, "Whether the times of events may leave a silo; else times count by their bin.")
    same_rows: bool = setting(
        True, "Every question uses the rows that have all values that any model of the plan needs."
    )
    secure_sum: bool = setting(False, "Whether sums of models are secure sums, for which each silo has a key.")
    fewest_silos: int = setting(2, "Fewest silos whose answers are combined.", low=1)

    def __post_init__(self):
        for one in fields(self):
            low, high, value = one.metadata["low"], one.metadata["high"], getattr(self, one.name)
            if (low is not None and not value >= low) or (high is not None and value > high):
                raise ConfigError(f"rules.{one.name} of the codebook must be at least {low}, got {value!r}.")


@dataclass(frozen=True, kw_only=True)
class Question:
    """One question of the plan.

    Raises:
        ConfigError: The settings contradict each other.
    """

    name: str
    model: str = setting("logistic", f"One of {', '.join(MODELS)}.")
    formula: str = setting("", "Outcome ~ terms, as in R: ill ~ age + ns(crp, 3) + strata(site).")
    errors: str = setting("model", "Standard errors: model, robust, or cluster.")
    pool: str = setting("rows", "rows: as if all rows lay together; silos: two stages, a meta-analysis.")
    ties: str = setting("efron", "Ties of Cox's model: efron or breslow.")
    firth: bool = setting(False, "Firth's penalty of a logistic model, with profile likelihood intervals.")
    one_round: bool = setting(False, "Ask for the counts of each pattern of levels, in one round, in place of sums.")
    penalty: float = setting(0.0, "Strength of an L2 penalty on columns of deviation 1, of a regression; no p-values.")
    tests: tuple[str, ...] = setting((), "Coefficients that are tested; empty: all but the intercept and sites.")

    def __post_init__(self):
        where = f"question {self.name!r}"
        choices = {"model": tuple(MODELS), "errors": ("model", "robust", "cluster"), "pool": ("rows", "silos")}
        for name, known in {**choices, "ties": ("efron", "breslow")}.items():
            if getattr(self, name) not in known:
                raise UnknownNameError(f"{name} of {where}", getattr(self, name), known)
        if not self.formula:
            raise ConfigError(f"{where} has no formula, such as ill ~ age + sex.")
        if self.penalty < 0 or (self.penalty and (self.firth or self.errors != "model" or self.model in _NO_PENALTY)):
            raise ConfigError(f"{where}: a penalty is at least 0, for a regression with the model's errors.")
        if self.one_round and (self.model in (*_NO_PENALTY, "negative-binomial") or self.errors != "model"):
            raise ConfigError(f"{where}: counts by pattern give no {self.model} model and no robust errors.")
        if self.firth and (self.model != "logistic" or self.errors != "model" or self.pool != "rows"):
            raise ConfigError(f"{where}: Firth's penalty is for a logistic model of all rows with the model's errors.")

    def mentions(self, name: str) -> bool:
        """True if a column's name is in the formula."""
        return re.search(rf"(?<![\w.]){re.escape(name)}(?![\w.])", self.formula) is not None


@dataclass(frozen=True, kw_only=True)
class Codebook:
    """The agreement of the silos of a study.

    Attributes:
        study: Name of the study.
        silos: Names of the silos, in a fixed order.
        columns: The columns, by name.
        rules: Rules of disclosure.
        questions: The plan, in order.
        level: Of the confidence intervals.
        correction: How p-values of the plan's tests are corrected, all together: one of :data:`CORRECTIONS`.
        site: Column with the silo's name in a file that holds the rows of several.
        keys: Silo -> the public line of its key, which signs its answers and masks secure sums; of all or of none.
            Under :data:`COORDINATOR` that of the coordinator, who then signs rounds.

    Raises:
        ConfigError: Something is missing or contradicts something else; says what.
    """

    study: str
    silos: tuple[str, ...]
    columns: Mapping[str, Column]
    rules: Rules = field(default_factory=Rules)
    questions: tuple[Question, ...] = ()
    level: float = 0.95
    correction: str = "holm"
    site: str = "site"
    keys: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self):
        if len(set(self.silos)) < max(1, len(self.silos)) or not all(self.silos):
            raise ConfigError(f"a codebook names the silos, each once, got {list(self.silos)}.")
        folded = {name.casefold() for name in self.silos}
        if len(folded) < len(self.silos) or any(
            set(name) & set("/\\\0") or name.startswith(".") for name in self.silos
        ):
            raise ConfigError(
                "names of silos are names of files, too: without / and \\, no dot in front, and different in more than "
                f"capitals; got {list(self.silos)}."
            )
        if self.rules.secure_sum and self.rules.exact_times:
            raise ConfigError("exact times of events are told one by one; with secure sums take bins.")
        if self.site in self.columns:
            raise ConfigError(f"column {self.site!r} names the silo; it needs no entry under columns.")
        if not 0 < self.level < 1:
            raise ConfigError(f"the level of intervals must be between 0 and 1, got {self.level:g}.")
        if self.correction not in CORRECTIONS:
            raise UnknownNameError("correction of a plan", self.correction, CORRECTIONS)
        self._check_keys()
        names = [one.name for one in self.questions]
        if twice := [name for name in names if names.count(name) > 1 or not name]:
            raise ConfigError(f"each question needs a name that no other has, got {twice[0]!r} twice or empty.")

    def _check_keys(self) -> None:
        if COORDINATOR in self.silos:
            raise ConfigError(f"{COORDINATOR!r} names the coordinator under [keys]; give that silo another name.")
        if unknown := sorted(set(self.keys) - {*self.silos, COORDINATOR}):
            raise UnknownNameError("silo with a key", unknown[0], (*self.silos, COORDINATOR))
        if self.keys and (lacking := sorted(set(self.silos) - set(self.keys))):
            raise ConfigError(f"[keys] has no line for {', '.join(lacking)}; all silos have keys, or none.")
        if self.rules.secure_sum and (len(self.silos) < FEWEST or not self.keys):
            raise ConfigError(f"secure sums need {FEWEST} silos or more, and a key of each under [keys].")
        halves = []
        for name, key in self.keys.items():
            both = from_text(key)
            if len(both) != 2 * HALF_KEY or bytes(HALF_KEY) in (both[:HALF_KEY], both[HALF_KEY:]):
                raise ConfigError(f"the key of {name} is none: it is the line that fedrank silos key prints.")
            halves += [both[:HALF_KEY], both[HALF_KEY:]]
        if len(set(halves)) < len(halves):
            raise ConfigError("two of [keys] are one; each silo makes its own (fedrank silos key).")

    @property
    def fewest_silos(self) -> int:
        """Fewest silos whose answers are combined."""
        return max(self.rules.fewest_silos, FEWEST if self.rules.secure_sum else 1)

    def column(self, name: str) -> Column:
        """A column by name.

        Raises:
            UnknownNameError: The codebook has none of that name; says which was probably meant.
        """
        if name not in self.columns:
            if name == "site":
                raise ConfigError(
                    f"formula: the column of silos is called {self.site!r}; write that in place of 'site'."
                )
            raise UnknownNameError("column of the codebook", name, (*self.columns, self.site))
        return self.columns[name]

    def question(self, name: str) -> Question:
        """A question of the plan by name.

        Raises:
            UnknownNameError: The plan has none of that name.
        """
        for one in self.questions:
            if one.name == name:
                return one
        raise UnknownNameError("question of the plan", name, [one.name for one in self.questions])

    def as_json(self) -> dict[str, Json]:
        """The content of the file; what has its default is left out."""
        plan: dict[str, Json] = {"level": self.level, "correction": self.correction}
        return {
            "format": _FORMAT,
            "version": _VERSION,
            "study": self.study,
            "silos": list(self.silos),
            "site": self.site,
            "rules": {one.name: getattr(self.rules, one.name) for one in fields(Rules)},
            "plan": {**plan, "questions": [{"name": one.name, **_given(one)} for one in self.questions]},
            "keys": dict(self.keys),
            "columns": {name: _given(one) for name, one in self.columns.items()},
        }

    @cached_property
    def sha(self) -> str:
        """SHA-256 of the content, in hexadecimal digits."""
        content = json.dumps(self.as_json(), sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        return hashlib.sha256(content.encode()).hexdigest()

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Codebook:
        """The inverse of :meth:`as_json`.

        Raises:
            ConfigError: A table or a setting is missing, unknown, or contradicts another; says which.
        """
        content = dict(content)
        told = content.pop("format", None), content.pop("version", None)
        if told != (_FORMAT, _VERSION):
            raise ConfigError(f"a codebook begins with format = {_FORMAT!r} and version = {_VERSION}, got {told}.")
        _refuse_unknown("the codebook", content, ("study", "silos", "site", "rules", "plan", "keys", "columns"))
        for name, kind in {"study": str, "silos": list, "columns": dict}.items():
            if not isinstance(content.get(name), kind) or not content[name]:
                raise ConfigError(f"the codebook needs {name}, a {kind.__name__} that is not empty.")
        plan = dict(content.get("plan", {}))
        _refuse_unknown("[plan]", plan, ("level", "correction", "questions"))
        questions = plan.pop("questions", [])
        return cls(
            study=content["study"],
            silos=tuple(map(str, content["silos"])),
            site=str(content.get("site", "site")),
            keys={silo: str(key) for silo, key in content.get("keys", {}).items()},
            columns={name: _made(Column, f"[columns.{name}]", {"name": name, **about})
                     for name, about in content["columns"].items()},
            rules=_made(Rules, "[rules]", content.get("rules", {})),
            questions=tuple(_made(Question, f"question {k + 1}", one) for k, one in enumerate(questions)),
            **plan,
        )  # fmt: skip


_FORMAT, _VERSION = "fedrank-codebook", 1
#: Fewest silos of a secure sum: of two each can subtract its own.
FEWEST = 3
#: Name of the coordinator among the keys.
COORDINATOR = "coordinator"
#: Bytes of each of the two public keys of a line, Ed25519's and X25519's, and of the seed of both private ones.
HALF_KEY = 32


def to_text(octets: bytes) -> str:
    """Bytes, such as a key, as text in base64."""
    return base64.b64encode(octets).decode()


def from_text(text: str) -> bytes:
    """The inverse of :func:`to_text`.

    Raises:
        ConfigError: It is no base64.
    """
    try:
        return base64.b64decode(text, validate=True)
    except ValueError as cause:
        raise ConfigError(f"{text[:50]!r} is no base64.") from cause


def read_codebook(path: Path) -> Codebook:
    """Read a codebook from its TOML file.

    Raises:
        MissingDataError: There is no such file.
        FormatError: It is no TOML, or no codebook; says what is wrong.
    """
    if not path.is_file():
        raise MissingDataError("there is no such codebook; fedrank silos codebook makes one.", path)
    try:
        return Codebook.from_json(tomllib.loads(path.read_text(encoding="utf-8")))
    except (
        tomllib.TOMLDecodeError,
        UnicodeDecodeError,
        ConfigError,
        TypeError,
        AttributeError,
        OverflowError,
    ) as cause:
        raise FormatError(f"{cause}", path) from cause


def codebook_toml(book: Codebook, notes: Mapping[str, str] | None = None) -> str:
    """A codebook as TOML text, with a comment for each setting of a table's first use.

    Args:
        book: The codebook.
        notes: Column -> a comment beside its heading.
    """
    import tomlkit

    content, notes = book.as_json(), notes or {}
    document = tomlkit.document()
    document.add(
        tomlkit.comment("The codebook of a study: read it, change it, agree on it; then it is pinned by its hash.")
    )
    for name in ("format", "version", "study", "silos", "site"):
        document.add(name, content[name])
    rules = tomlkit.table()
    for one in fields(Rules):
        rules.add(one.name, tomlkit.item(content["rules"][one.name]).comment(one.metadata["help"]))
    document.add("rules", rules)
    document.add("plan", {name: value for name, value in content["plan"].items() if value != []})
    if content["keys"]:
        document.add("keys", content["keys"])
    columns = tomlkit.table(is_super_table=True)
    for name, about in content["columns"].items():
        own = tomlkit.item(about)
        if name in notes:
            own.comment(notes[name])
        columns.add(name, own)
    document.add("columns", columns)
    return tomlkit.dumps(document)


def _given(value: Any) -> dict[str, Json]:
    """The settings of a column or a question that differ from their defaults, as JSON can hold them."""
    out: dict[str, Json] = {}
    for one in fields(value):
        own = getattr(value, one.name)
        if one.name == "name" or own == one.default or (one.default is MISSING and not own):
            continue
        out[one.name] = list(own) if isinstance(own, tuple) else dict(own) if isinstance(own, Mapping) else own
    return out


def _made(cls: type, where: str, content: Mapping[str, Any]) -> Any:
    """A column, rules or a question from a table of the file."""
    if not isinstance(content, Mapping):
        raise ConfigError(f"{where} of the codebook must be a table, got {type(content).__name__}.")
    known = [one.name for one in fields(cls)]
    _refuse_unknown(where, content, known)
    if "name" in known and "name" not in content:
        raise ConfigError(f"{where} of the codebook needs a name.")
    texts = {one.name for one in fields(cls) if str(one.type).startswith("tuple[str")}
    values: dict[str, Any] = {
        name: list(map(as_text, value)) if name in texts and isinstance(value, list | tuple) else value
        for name, value in content.items()
    }
    codes = values.pop("codes", {}) if cls is Column else {}
    if not isinstance(codes, Mapping):
        raise ConfigError(f"codes of {where} of the codebook must be a table, got {type(codes).__name__}.")
    made = from_table(values, cls, f"{where} ")
    return replace(made, codes={str(key): str(level) for key, level in codes.items()}) if codes else made


def as_text(value: Any) -> str:
    """A level or a missing code as text; 1 and 1.0 are one."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and math.isfinite(value) and value.is_integer():
        return repr(int(value))
    return str(value)


def _refuse_unknown(where: str, content: Mapping[str, Any], known: Sequence[str]) -> None:
    for name in content:
        if name not in known:
            raise UnknownNameError(f"setting in {where}", name, known)
