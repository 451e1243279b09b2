"""The public data sets: home, terms, shape, and how a copy is proved genuine.

A checksum is written ``kind:hex`` where kind is ``md5``, ``sha256``, or ``git``: the id that git gives a
file, SHA-1 of the word blob, the number of bytes, a zero byte and the content. It is taken over the
*unpacked* file, as it is or with Unix line ends; either may match, because the LETOR files are published with
Windows line ends and circulate with both.

The sets themselves are described in ``sets/*.toml`` beside this file: ranking sets, tables of silos, text collections.
Nothing of these sets is part of this package, and their terms are their owners'.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from importlib import resources
from typing import Any

from typing_extensions import TypeIs, override

from fedrank.core import registry
from fedrank.core.errors import ConfigError, UnknownNameError
from fedrank.core.registry import Entry, Registry, as_entry
from fedrank.core.trees import Json

#: How the five parts of a set make five folds. Fold k trains on three parts from S_k on, validates on the
#: next, tests on the next.
PARTS = 5


@dataclass(frozen=True)
class Download:
    """An archive that the standard library can open.

    Attributes:
        url: Address of a .zip or .tar.gz.
        checksum: ``kind:hex`` of the archive; empty if it is not known, in which case the parts inside are
            checked.
    """

    url: str
    checksum: str = ""


@dataclass(frozen=True)
class DataSet:
    """A data set's facts.

    Attributes:
        name: How users call it.
        title: How papers call it.
        home: Page of its owners.
        terms: What may be done with it, in short.
        queries: Number of queries, all parts together; 0 for a table of silos.
        documents: Number of query-document pairs of a ranking set, of documents of a text collection; 0 for a table of
            silos.
        features: Number of features: the highest index in the files of a ranking set, or the columns that a
            table of silos has once it is read; 0 for a text collection.
        grades: Number of labels, 0 .. grades − 1.
        folds: 5, or 1 if the set comes with one fixed division.
        folders: Names of the folder it is looked for in.
        prefix: What the names of its files begin with, where one folder holds several sets.
        downloads: Archives to try, in this order.
        by_hand: What to do where no download serves.
        checksums: For the parts ``S1`` .. ``S5``, for ``train1`` .. ``train5`` of the folds, or for
            ``train``, ``vali``, ``test`` of a set with one fold: what the file may be. For each file of a
            table of silos or a text collection, by its name.
        notes: Traps, one sentence each.
        silos: Number of silos; 0 if it is no table of silos.
        rows: Number of rows of all silos; 0 if it is no table of silos.
        judged: Number of queries of a text collection with a relevant document; 0 for others.
        judgements: Number of judged pairs of query and document of a text collection; 0 for others.
    """

    name: str
    title: str
    home: str
    terms: str
    queries: int
    documents: int
    features: int
    grades: int
    folds: int = 5
    folders: tuple[str, ...] = ()
    prefix: str = ""
    downloads: tuple[Download, ...] = ()
    by_hand: str = ""
    checksums: Mapping[str, tuple[str, ...]] = field(default_factory=dict, repr=False)
    notes: tuple[str, ...] = ()
    silos: int = 0
    rows: int = 0
    judged: int = 0
    judgements: int = 0

    @property
    def kind(self) -> str:
        """``"silos"`` for a table of silos, ``"texts"`` for a text collection, ``"ranking"`` for feature vectors."""
        if self.silos:
            return "silos"
        return "texts" if self.judgements else "ranking"

    def checksums_of(self, part: str, fold: int = 1) -> tuple[str, ...]:
        """Checksums that a file may have (``kind:hex``); empty if none is known.

        Args:
            part: ``S1`` .. ``S5``, ``train``, ``vali`` or ``test``.
            fold: Of which fold; 1 .. 5.
        """
        if self.folds == 1 or part.startswith("S"):
            return self.checksums.get(part, ())
        key = f"train{fold}" if part == "train" else rotation(fold)[part][0]
        return self.checksums.get(key, ())


def rotation(fold: int) -> dict[str, tuple[str, ...]]:
    """The parts that make a fold of a five-part set (readme of LETOR 4.0).

    >>> rotation(3)
    {'train': ('S3', 'S4', 'S5'), 'vali': ('S1',), 'test': ('S2',)}
    """
    parts = [f"S{(fold - 1 + step) % PARTS + 1}" for step in range(PARTS)]
    return {"train": tuple(parts[:3]), "vali": (parts[3],), "test": (parts[4],)}


class Catalogue(Registry["DataSet | Callable[[], Any]"]):
    """Data sets of all kinds by name.

    An entry point of ``fedrank.data`` leads to a data set, to its entry, to a function without arguments that returns
    data in a form that :func:`fedrank.data.load` takes, or to several entries such as :func:`read_sets` returns: a
    package describes many sets in one file and names them once.
    """

    def _sets(self) -> dict[str, Entry[DataSet | Callable[[], Any]]]:
        out: dict[str, Entry[DataSet | Callable[[], Any]]] = {}
        for name in registry.names("fedrank.data"):
            found = registry.get("fedrank.data", name)
            for entry in found if isinstance(found, list | tuple) else (as_entry(name, found),):
                out[entry.name] = entry
        return out

    @override
    def _names_of_group(self) -> list[str]:
        return list(self._sets())

    @override
    def _entry_of_group(self, name: str) -> Entry[DataSet | Callable[[], Any]]:
        return self._sets()[name]


#: The data sets of fedrank and of other packages.
CATALOGUE = Catalogue("data set", "fedrank.data")


def list_data_sets(kind: str) -> list[Entry[DataSet]]:
    """The data sets of one kind that have a description, in the order in which they were registered."""
    return [
        Entry(e.name, e.obj, e.summary, e.citation) for e in CATALOGUE if is_described(e.obj) and e.obj.kind == kind
    ]


def names_of(kind: str) -> list[str]:
    """Names of the data sets that a task may be given: those of its kind, and functions of installed packages."""
    return [entry.name for entry in CATALOGUE if not is_described(entry.obj) or entry.obj.kind == kind]


def is_described(data: DataSet | Callable[[], Any]) -> TypeIs[DataSet]:
    """True if an entry of the catalogue is a description of files rather than a function."""
    return isinstance(data, DataSet)


def read_sets(text: str) -> list[Entry[DataSet]]:
    """Data sets described in TOML: a table each, with ``summary``, ``citation`` and the fields of :class:`DataSet`.

    Raises:
        ConfigError: Not TOML, or a field that no data set has; says which.
    """
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"the data sets are not valid TOML: {error}.") from error
    known, out = {f.name for f in fields(DataSet)}, []
    for name, table in tables.items():
        summary, citation = table.pop("summary", ""), table.pop("citation", "")
        if unknown := set(table) - known:
            raise UnknownNameError(f"field of the data set {name}", sorted(unknown)[0], known)
        table["downloads"] = tuple(Download(**one) for one in table.get("downloads", ()))
        table["checksums"] = {part: tuple(sums) for part, sums in table.get("checksums", {}).items()}
        values: dict[str, Json] = {
            key: tuple(value) if isinstance(value, list) else value for key, value in table.items()
        }
        out.append(Entry(name, DataSet(name=name, **values), summary, citation))
    return out


def _built_in(file: str) -> list[Entry[DataSet]]:
    return read_sets(resources.files("fedrank.data").joinpath("sets", file).read_text(encoding="utf-8"))


RANKING = _built_in("ranking.toml")
SILOS = _built_in("silos.toml")
TEXTS = _built_in("texts.toml")
