"""A trained model as one file with everything that scoring needs, and as an object that scores.

A file is safetensors: the tensors, and under the key ``fedrank`` of its metadata a JSON document::

    format        1
    task          name of the task (an entry point of ``fedrank.tasks``), which knows the model's class
    architecture  what the tensors are the parameters of, and how inputs are prepared
    about         where it comes from: protocol, data, seed, rounds, changed settings, fedrank's version, and the
                  privacy report of the run (``privacy``)

A model scores what its task ranks: documents, rows of a table, items of a slate.

**Scores** of rows do not depend on which other rows are scored with them. A compiled product of matrices adds up in an
order that depends on the shapes, so that the last bit of a row's score would depend on how many others there are. Here
every row is scored by one compiled program for a fixed number of rows: a model that is loaded from a file gives what
the run's own evaluation saw, to the last bit.
"""

from __future__ import annotations

import abc
import functools
import itertools
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float, Float32, Int

from fedrank import __version__
from fedrank.core import registry
from fedrank.core.arrays import AnyArray
from fedrank.core.arrays import JaxArray as Array
from fedrank.core.errors import ModelError, RunError, UnknownNameError
from fedrank.core.lazy import jax, jit, jnp
from fedrank.core.privacy_report import PrivacyReport
from fedrank.core.trees import Json
from fedrank.engine.checkpoint import write_atomically
from fedrank.engine.layers import Layer, to_onnx, to_torch
from fedrank.engine.settings import changes

#: Rows that are scored at once, unless told otherwise; the last ones are filled up with zeros.
ROWS = 1024


@runtime_checkable
class Scorer(Protocol):
    """A scorer of rows by a flat vector of weights; hashable, since programs are compiled for it."""

    def scores(self, weights: Float[Array, "parameters"], features: Float[Array, "rows features"], /) -> jax.Array:
        """Scores of rows; a higher one ranks first.

        Args:
            weights: float32 [parameters], all weights of the model as one vector.
            features: float32 [rows, features].

        Returns:
            float32 [rows].
        """
        ...


@functools.partial(jit, static_argnums=0)
def _block(scorer: Scorer, weights: Float[Array, "parameters"], features: Float[Array, "rows features"]) -> jax.Array:
    return scorer.scores(weights, features)


def blocks(features: Float[np.ndarray, "rows features"], rows: int = ROWS) -> list[Float[Array, "block_rows features"]]:
    """The rows in blocks of one size, the last one filled up with zeros, on the device that computes.

    Args:
        features: All rows.
        rows: Rows of a block.
    """
    features = np.asarray(features, np.float32)
    filled = np.zeros((-(-max(1, len(features)) // rows) * rows, features.shape[1]), np.float32)
    filled[: len(features)] = features
    return [jnp.asarray(filled[at : at + rows]) for at in range(0, len(filled), rows)]


def scores(
    scorer: Scorer,
    weights: Float[AnyArray, "parameters"],
    parts: list[Float[Array, "block_rows features"]],
    n_rows: int,
) -> Float32[np.ndarray, "rows"]:
    """Scores of rows.

    Args:
        scorer: The ranker or the network.
        weights: Its weights.
        parts: The rows as :func:`blocks` makes them.
        n_rows: Number of rows in all blocks, without what fills up the last one.

    Returns:
        float32 [n_rows].
    """
    vector = jnp.asarray(weights, jnp.float32)
    found = [_block(scorer, vector, part) for part in parts]  # all are under way before one is waited for
    return np.concatenate([np.asarray(part, np.float32) for part in found])[:n_rows]


def best_first(found: Float[np.ndarray, "rows"], qid: Any = None) -> Int[np.ndarray, "rows"]:
    """Numbers of the rows, best first; with ``qid`` query after query in their order, best first in each.

    Args:
        found: A score a row; rows of equal scores stay in their order.
        qid: The query of each row, where rows of a query stand together; None: all are of one.
    """
    if qid is None:
        return np.argsort(-found, kind="stable")
    ids = np.asarray(qid)
    starts = [0, *(np.flatnonzero(ids[1:] != ids[:-1]) + 1).tolist(), len(ids)] if len(ids) else [0]
    parts = [a + np.argsort(-found[a:b], kind="stable") for a, b in itertools.pairwise(starts)]
    return np.concatenate([np.zeros(0, np.int64), *parts])


#: Offline measures of a model that ranks documents, unless told otherwise.
MEASURES = ("nDCG(dcg='exp-log2')@10", "RR@10")

_KEY = "fedrank"
_FORMAT = 1


@dataclass(frozen=True, eq=False)
class ModelParts:
    """The parts of a model that its file holds, and the one that it cannot hold.

    Attributes:
        architecture: :attr:`Model.architecture`.
        tensors: :attr:`Model.tensors`.
        about: :attr:`Model.about`.
        own: An object that the caller supplied, such as a ranker of the caller's class.
    """

    architecture: Mapping[str, Json]
    tensors: Mapping[str, np.ndarray]
    about: Mapping[str, Json]
    own: Any = None


class Model(abc.ABC):
    """A trained model.

    Attributes:
        task: Name of the task that it belongs to.
        about: Where it comes from, as :func:`provenance` makes it; empty where nothing is known.
    """

    task: ClassVar[str]
    about: Mapping[str, Json]

    @property
    @abc.abstractmethod
    def architecture(self) -> dict[str, Json]:
        """The architecture with the parameters :attr:`tensors`, and the preparation of inputs, as JSON can hold it."""

    @property
    @abc.abstractmethod
    def tensors(self) -> dict[str, np.ndarray]:
        """All arrays of the model by name."""

    @classmethod
    @abc.abstractmethod
    def from_parts(cls, parts: ModelParts) -> Model:
        """The model that has these :attr:`architecture`, :attr:`tensors` and :attr:`about`.

        Raises:
            ModelError: An object of the caller's own is needed.
            KeyError: Something is missing.
            ValueError: Parts do not fit together.
        """

    @abc.abstractmethod
    def score(self, features: Any, *args: Any, **kwargs: Any) -> np.ndarray:
        """Scores, float32 [rows], of the rows of a table of features; a higher one is better.

        Args:
            features: The features, as the model of the task takes them.
            args: Further arguments of the task's models, such as the query of each row.
            kwargs: The same by name.
        """

    def rank(self, features: Any, *args: Any, **kwargs: Any) -> np.ndarray:
        """Row numbers, int [rows], by descending score; rows of equal scores stay in their order.

        Args:
            features: As of :meth:`score`.
            args: As of :meth:`score`.
            kwargs: As of :meth:`score`.
        """
        return best_first(self.score(features, *args, **kwargs))

    def evaluate(self, data: Any, *args: Any, **kwargs: Any) -> dict[str, dict[str, float]]:
        """Quality of the model on data of the task: part of the data -> measure -> value.

        Args:
            data: In any form that the task's data comes in.
            args: Further arguments of the task's models, such as the measures.
            kwargs: The same by name.

        Raises:
            ModelError: Models of this task are not measured on data.
        """
        raise ModelError(f"a {type(self).__name__} is not measured on data that is handed over.")

    def trec_run(self, data: Any, *, name: str = "fedrank", **kwargs: Any) -> Iterator[str]:
        """Lines of a TREC run file: query, ``Q0``, document, rank, score, name of the run.

        Args:
            data: Queries with documents.
            name: Name of the run.
            kwargs: Further arguments of the task's models.

        Raises:
            ModelError: Models of this task do not rank the documents of queries.
        """
        raise ModelError(f"a {type(self).__name__} does not rank the documents of queries; use its score in Python.")

    def write_trec_run(self, data: Any, path: str | os.PathLike[str], **settings: Any) -> Path:
        """Write :meth:`trec_run` to a file; returns its path.

        Args:
            data: As of :meth:`trec_run`.
            path: The file.
            settings: Further arguments of :meth:`trec_run`.

        Raises:
            ModelError: As of :meth:`trec_run`, or the file cannot be written.
        """
        text = "".join(f"{line}\n" for line in self.trec_run(data, **settings))
        return write_file(path, text.encode())

    def layers(self) -> tuple[Layer, ...]:
        """The model as a chain of layers, for other libraries.

        Raises:
            ModelError: It is no such chain.
        """
        raise ModelError(f"a {type(self).__name__} cannot be written for other libraries: it is no chain of layers.")

    def for_party(self, name: str) -> Model:
        """The model as one party uses it, where parties share its weights but prepare its inputs differently.

        Args:
            name: Name of the party.

        Raises:
            ModelError: It is the same for all parties.
            UnknownNameError: There is no such party.
        """
        raise ModelError(f"there is one {type(self).__name__} here, for whoever uses it; leave the party {name!r} out.")

    @property
    def n_features(self) -> int:
        """Number of features of a row."""
        return int(self.architecture["n_features"])

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Names of the features in their order; empty where the data had none."""
        return tuple(self.architecture.get("feature_names", ()))

    @property
    def privacy(self) -> PrivacyReport | None:
        """Privacy report of the run that made the model; None if it is not known."""
        report = self.about.get("privacy")
        return None if report is None else PrivacyReport.from_json(report)

    def to_bytes(self) -> bytes:
        """The model as the content of a safetensors file."""
        from safetensors.numpy import save

        header = {"format": _FORMAT, "task": self.task, "architecture": self.architecture, "about": dict(self.about)}
        tensors = {name: np.ascontiguousarray(values, np.float32) for name, values in self.tensors.items()}
        # One entry: several would stand in any order, and equal models should make equal files.
        return save(tensors, {_KEY: json.dumps(header, sort_keys=True, ensure_ascii=False)})

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the model as a safetensors file, which :func:`fedrank.load` reads.

        Returns:
            The path, as given.

        Raises:
            ModelError: The file cannot be written.
        """
        return write_file(path, self.to_bytes())

    def to_onnx(self, path: str | os.PathLike[str]) -> Path:
        """Write the model as an ONNX file: input ``features`` float32 [rows, features], output ``scores`` [rows].

        Preparation of the inputs is part of the graph. A normalisation within a query takes one query at a time.

        Raises:
            ModelError: The model is no chain of layers.
            MissingExtraError: The extra ``onnx`` is not installed.
        """
        content = to_onnx(self.layers(), self.n_features, self.feature_names, dict(self.about))
        return write_file(path, content)

    def to_torch(self) -> Any:
        """The model as a ``torch.nn.Module`` that maps float32 [rows, features] to [rows], as :meth:`to_onnx` says.

        Raises:
            ModelError: The model is no chain of layers.
            MissingExtraError: The extra ``torch`` is not installed.
        """
        return to_torch(self.layers())

    def __repr__(self) -> str:
        names = ("protocol", "data", "seed", "rounds")
        known = ", ".join(f"{name}={self.about[name]!r}" for name in names if name in self.about)
        return f"<{type(self).__name__}: {self.n_features} features; {known or 'of unknown origin'}>"


def write_file(path: str | os.PathLike[str], content: bytes) -> Path:
    """Write a file of a model in one step; returns its path.

    Raises:
        ModelError: It cannot be written; a file that was there is still there.
    """
    try:
        write_atomically(Path(path), content)
    except RunError as error:
        cause = error.__cause__
        why = cause.strerror if isinstance(cause, OSError) else error
        raise ModelError(f"{os.fspath(path)}: cannot be written ({why}). Choose another place.") from error
    return Path(path)


def tensor(tensors: Mapping[str, np.ndarray], name: str, shape: tuple[int, ...]) -> np.ndarray:
    """A tensor of a file.

    Raises:
        KeyError: There is none of that name.
        ValueError: It has another shape, or a value that is not a finite number.
    """
    if tensors[name].shape != shape:
        raise ValueError(f"the tensor {name!r} has shape {tensors[name].shape}, the architecture says {shape}")
    if not np.isfinite(tensors[name]).all():
        raise ValueError(f"the tensor {name!r} has values that are not finite: training diverged")
    return tensors[name]


def provenance(
    config: Any,
    *,
    data: str | None = None,
    seed: int | None = None,
    rounds: int | None = None,
    generated: bool = False,
    privacy: PrivacyReport | None = None,
) -> dict[str, Json]:
    """The origin of a model: version, data, seed, rounds, changed settings and promises, as JSON can hold it.

    Args:
        config: Settings of the run; those that were changed are kept, but for paths of this machine and for how the
            run was computed, which changes nothing.
        data: Name of the data; by default as the settings have it.
        seed: Seed of the model's run; by default the first of the settings.
        rounds: Rounds done; by default all of the settings.
        generated: Whether a program made the data up.
        privacy: What the run promises.
    """
    left_out = ("data", "seed", "seeds", "compute.")
    settings = {name: value for name, value in changes(config).items() if not name.startswith(left_out)}
    return {
        "fedrank": __version__,
        "protocol": config.protocol,
        "data": config.data if data is None else data,
        "generated": generated,
        "seed": config.seed if seed is None else seed,
        "rounds": config.rounds if rounds is None else rounds,
        "settings": settings,
        "privacy": None if privacy is None else privacy.as_json(),
    }


def read_model(path: str | os.PathLike[str], own: Any = None) -> Model:
    """The model in a file.

    Args:
        path: The file.
        own: As of :class:`ModelParts`.

    Raises:
        ModelError: There is no such file, or it is not a model that this version of fedrank can read.
        UnknownNameError: The model's task is in no installed package.
    """
    from safetensors import SafetensorError, safe_open

    file = Path(path)
    if not file.is_file():
        raise ModelError(f"{file}: there is no such file. Give a run's folder or a model's file (.safetensors).")
    try:
        with safe_open(file, framework="numpy") as opened:
            about = opened.metadata() or {}
            header = json.loads(about.get(_KEY, "null"))
            tensors = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118 - it is no dict
    except (SafetensorError, OSError, ValueError) as error:
        raise ModelError(f"{file}: cannot be read as a safetensors file ({error}).") from error
    if header is None and about.get("about", "").startswith("fedrank "):
        raise ModelError(
            f"{file}: holds the arrays that a run learnt ({', '.join(list(tensors)[:4])}, …), but its protocol does "
            "not say how they score: there is no model to load. safetensors.numpy.load_file reads the arrays."
        )
    if not isinstance(header, dict) or "task" not in header:
        raise ModelError(f"{file}: holds tensors but no description of a model; fedrank writes one with every model.")
    if header.get("format") != _FORMAT:
        raise ModelError(
            f"{file}: is of format {header.get('format')!r}; fedrank {__version__} reads format {_FORMAT}. "
            "Use the version that wrote it, or train again."
        )
    if missing := [name for name, values in tensors.items() if np.isnan(values).any()]:
        raise ModelError(f"{file}: {missing[0]} has values that are no number: training diverged. Train it again.")
    cls = model_class(str(header["task"]))
    try:
        return cls.from_parts(ModelParts(header["architecture"], tensors, header["about"], own))
    except ModelError as error:
        raise ModelError(f"{file}: {error}") from error
    except (KeyError, TypeError, ValueError) as error:
        raise ModelError(f"{file}: its parts do not make a model of {header['task']!r} ({error!r}).") from error


def model_class(task: str) -> type[Model]:
    """The class of a task's models.

    Raises:
        UnknownNameError: There is no such task.
        ModelError: The task's models cannot be used.
    """
    cls = registry.get("fedrank.tasks", task).model
    if cls is None:
        raise ModelError(f"the task {task!r} does not say how its models score.")
    return cls


def read_model_of_run(folder: Path, seed: int | None = None, party: str | None = None, own: Any = None) -> Model:
    """A model of a run.

    Args:
        folder: The run's folder.
        seed: As of :func:`model_of_run`.
        party: Whose model: of the party's own file where each has one, else as :meth:`Model.for_party` makes it.
        own: As of :class:`ModelParts`.

    Raises:
        ModelError: As of :func:`model_of_run` and :func:`read_model`.
        UnknownNameError: There is no such party.
    """
    file = model_of_run(folder, seed, party)
    model = read_model(file, own)
    return model if party is None or _party_of(file) else model.for_party(party)


def model_of_run(folder: Path, seed: int | None = None, party: str | None = None) -> Path:
    """The file of a model of a run.

    Args:
        folder: The run's folder.
        seed: The seed; None: the first of those there are.
        party: Name of the party where each has its own model; None: the only one. Of no meaning where all share one.

    Raises:
        ModelError: The run has no such model; says which it has.
    """
    found = models_of_run(folder, seed)
    if len(found) == 1 and (party is None or "" in found):
        return next(iter(found.values()))
    if party is None:
        names = ", ".join(map(_without_number, found))
        raise ModelError(f"{folder}: has a model for each of {names}; say which: party=… (--party, --silo).")
    for name, file in found.items():
        if party in (name, _without_number(name)):
            return file
    raise UnknownNameError("party with a model", party, map(_without_number, found))


def models_of_run(folder: Path, seed: int | None = None) -> dict[str, Path]:
    """The files of the models of a seed by the names of the parties in them; one without a name where all share it.

    Raises:
        ModelError: The run has no model of the seed; says which it has.
    """
    found_files = sorted((folder / "weights").glob("*.safetensors"))
    files = {file.stem: file for file in found_files if re.search(r"seed\d+$", file.stem)}  # others are not the run's
    if not files:
        raise ModelError(f"{folder}: holds no model yet. A run writes its models when it has finished.")
    by_seed: dict[int, dict[str, Path]] = {}
    for stem, file in files.items():
        by_seed.setdefault(int(stem.rpartition("seed")[2]), {})[_party_of(file)] = file
    seed = min(by_seed) if seed is None else seed
    if seed not in by_seed:
        raise ModelError(f"{folder}: has no model of seed {seed}; there are {', '.join(map(str, sorted(by_seed)))}.")
    return by_seed[seed]


def _party_of(file: Path) -> str:
    """The name of a party in the name of its model's file, with its number in front; empty where all share a model."""
    return file.stem.rpartition("seed")[0].rstrip("-")


def _without_number(name: str) -> str:
    """The name of a party without the number in front of it."""
    return name.partition("-")[2] or name


#: A query, the names of its documents, and their scores, float32 [documents].
ScoredQuery = tuple[Any, Sequence[str], Float[np.ndarray, " documents"]]


def run_lines(queries: Iterable[ScoredQuery], name: str) -> Iterator[str]:
    """A line a document: query, ``Q0``, document, rank, score, name of the run; the documents of a query best first.

    Equal scores stay in the order in which the documents are given.

    Args:
        queries: The queries with their documents.
        name: Name of the run.

    Raises:
        ModelError: The name, or that of a query or a document, has white space, which separates the words of a line.
    """
    if not name or name.split() != [name]:
        raise ModelError(f"the name of a TREC run must be one word, got {name!r}.")
    return (
        f"{_word(query)} Q0 {_word(documents[row])} {rank} {scores[row]!s} {name}"
        for query, documents, scores in queries
        for rank, row in enumerate(np.argsort(-scores, kind="stable"), 1)
    )


def _word(name: Any) -> str:
    if len((word := str(name)).split()) != 1:
        raise ModelError(f"a TREC run separates names by white space: {word!r} cannot stand in it. Give it one word.")
    return word
