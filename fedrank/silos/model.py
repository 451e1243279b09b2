"""A trained model of silos as an object that scores: a network, and how a silo's table becomes its inputs."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float, Float32
from typing_extensions import override

from fedrank.core.errors import DataError, ModelError
from fedrank.core.trees import Json
from fedrank.data import load
from fedrank.data.frames import array_of, as_frame, in_single_precision, need_names
from fedrank.data.sources import is_known
from fedrank.engine.layers import Affine, Dense, Layer, LayerNorm, Relu, Standardise
from fedrank.engine.model import Model, ModelParts, tensor
from fedrank.metrics.offline import host_auc, host_log_loss
from fedrank.silos.data.coding import Coding, as_codes
from fedrank.silos.data.files import columns_of, read_columns
from fedrank.silos.data.reader import SiloReader
from fedrank.silos.data.splits import standardise_rows
from fedrank.silos.data.tables import SiloTable
from fedrank.silos.glm import moments_of
from fedrank.silos.network import EPSILON, TabularNetwork, blocks, scores

#: Name of all rows together in what :meth:`SiloModel.evaluate` returns.
ALL_ROWS = "all"


@dataclass(frozen=True, eq=False, repr=False)
class SiloModel(Model):
    """A network that tells label 1 from label 0, as one silo uses it.

    Attributes:
        network: The network.
        weights: float32 [network.size].
        mean: float64 [features], means of the silo's training rows; None: not known, as at a server that has
            no rows (:meth:`fitted` sets them).
        deviation: float64 [features], their deviations, 0 for a column that is constant; None as ``mean``.
        statistics: float32 [network.statistics], batch norm's statistics of the silo's own training rows, where they
            stand in for those among ``weights``; None: they do not.
        names: Names of the features in their order; empty if they are not known.
        coding: How columns of a table become the features.
        label: What label 1 means.
        tells_standards: Whether mean and deviation are among the tensors, too. Those of a model of pooled rows are not:
            each silo's rows were standardised by its own.
        about: Where the model comes from.
    """

    task: ClassVar[str] = "silos"

    network: TabularNetwork
    weights: Float32[np.ndarray, " size"]
    mean: Float[np.ndarray, " features"] | None = None
    deviation: Float[np.ndarray, " features"] | None = None
    statistics: Float32[np.ndarray, " statistics"] | None = None
    names: tuple[str, ...] = ()
    coding: Coding = field(default_factory=Coding)
    label: str = ""
    tells_standards: bool = True
    about: Mapping[str, Json] = field(default_factory=dict)

    def __post_init__(self):
        n = self.network.n_features
        if (self.mean is None) != (self.deviation is None):
            raise ModelError("mean and deviation belong together; one of them is missing.")
        lengths = {"weights": self.network.size, "mean": n, "deviation": n, "statistics": self.network.statistics}
        for name, length in lengths.items():
            if (values := getattr(self, name)) is not None and np.shape(values) != (length,):
                raise ModelError(f"{name} must have shape ({length},), got {np.shape(values)}.")
        if self.names and len(self.names) != n:
            raise ModelError(f"names must be {n}, one a feature, got {len(self.names)}.")

    @property
    @override
    def architecture(self) -> dict[str, Json]:
        network = self.network
        return {
            "n_features": network.n_features,
            "widths": list(network.widths),
            "norm": network.norm,
            "momentum": network.momentum,
            "feature_names": list(self.names),
            # In full precision; the tensors of these names are for whoever reads the file without fedrank.
            "mean": None if self.mean is None else self.mean.tolist(),
            "deviation": None if self.deviation is None else self.deviation.tolist(),
            "statistics": None if self.statistics is None else self.statistics.tolist(),
            "coding": self.coding.as_json(),
            "label": self.label,
            "tells_standards": self.tells_standards,
        }

    @property
    @override
    def tensors(self) -> dict[str, np.ndarray]:
        out = self.network.tensors(self.weights)
        if self.mean is None or self.deviation is None or not self.tells_standards:
            return out
        # Divided by infinity a constant column is 0, as it should be.
        return {**out, "input.mean": self.mean, "input.deviation": np.where(self.deviation > 0, self.deviation, np.inf)}

    @classmethod
    @override
    def from_parts(cls, parts: ModelParts) -> SiloModel:
        a = parts.architecture
        network = TabularNetwork(
            int(a["n_features"]),
            tuple(map(int, a["widths"])),
            a["norm"],
            float(a["momentum"]),
        )
        weights = np.zeros(network.size, np.float32)
        for name, places in network.tensors(np.arange(network.size)).items():
            weights[places] = tensor(parts.tensors, name, places.shape)
        return cls(
            network,
            weights,
            _numbers(a["mean"], np.float64),
            _numbers(a["deviation"], np.float64),
            _numbers(a["statistics"], np.float32),
            tuple(a["feature_names"]),
            Coding.from_json(a["coding"]),
            a["label"],
            a["tells_standards"],
            parts.about,
        )

    @property
    def scoring_weights(self) -> Float32[np.ndarray, " size"]:
        """The weights that score: with the silo's own statistics of batch norm where there are any."""
        if self.statistics is None:
            return self.weights
        return np.concatenate([self.weights[: self.network.trainable], self.statistics])

    @property
    def _standards(self) -> tuple[Float[np.ndarray, " features"], Float[np.ndarray, " features"]]:
        if self.mean is None or self.deviation is None:
            raise ModelError(
                "it has no mean and deviation of its inputs: the server that wrote it has no rows. A silo sets its own "
                "with model.fitted(features of its training rows)."
            )
        return self.mean, self.deviation

    @override
    def layers(self) -> tuple[Layer, ...]:
        mean, deviation = self._standards
        tensors = self.network.tensors(self.scoring_weights)
        parts = {name: np.asarray(values, np.float64) for name, values in tensors.items()}
        chain: list[Layer] = [Standardise(mean, deviation)]
        for number in range(1, len(self.network.widths) + 1):
            chain.append(Dense(parts[f"layer{number}.weight"], parts[f"layer{number}.bias"]))
            if self.network.norm != "none":
                scale, shift = parts[f"norm{number}.weight"], parts[f"norm{number}.bias"]
                if self.network.norm == "layer":
                    chain.append(LayerNorm(scale, shift, EPSILON))
                else:
                    scale = scale / np.sqrt(parts[f"norm{number}.running_var"] + EPSILON)
                    chain.append(Affine(scale, shift - parts[f"norm{number}.running_mean"] * scale))
            chain.append(Relu())
        weight, bias = (parts[f"layer{len(self.network.widths) + 1}.{what}"] for what in ("weight", "bias"))
        return *chain, Dense(weight[:, 1:] - weight[:, :1], bias[1:] - bias[:1])

    def fitted(self, features: Any) -> SiloModel:
        """The same model with the mean and the deviation of a silo's own training rows.

        Args:
            features: As of :meth:`score`.

        Raises:
            DataError: The features do not fit.
        """
        _, mean, deviation = moments_of(self._table(features))
        return replace(self, mean=mean, deviation=deviation)

    # ------------------------------------------------------------------------------------------------------- scoring

    @override
    def score(self, features: Any) -> Float32[np.ndarray, " rows"]:
        """Log-odds of label 1 for rows of a table.

        Args:
            features: Numbers [rows, features] in the order of :attr:`feature_names`, NaN where a value is missing; or
                a data frame whose columns are found by their names. A column of text may stand there as it is: its
                levels are those of the training data.

        Returns:
            float32 [rows]: the very numbers by which the run judged the model.

        Raises:
            DataError: The features do not fit; says which.
            ModelError: The model has no mean and deviation of its inputs.
        """
        return self._scores(self._table(features))

    def probability(self, features: Any) -> Float[np.ndarray, " rows"]:
        """Probability of label 1, float64 [rows] in [0, 1]; argument and errors as of :meth:`score`."""
        odds = self.score(features).astype(np.float64)
        small = np.exp(-np.abs(odds))  # at most 1, so that nothing overflows
        return np.where(odds >= 0, 1, small) / (1 + small)

    def _scores(self, table: Float[np.ndarray, "rows features"]) -> Float32[np.ndarray, " rows"]:
        mean, deviation = self._standards
        if not len(table):
            return np.zeros(0, np.float32)
        x = standardise_rows(table, mean, deviation)
        return scores(self.network, self.scoring_weights, blocks(x), len(x))

    def _table(self, features: Any) -> Float[np.ndarray, "rows features"]:
        """The features as numbers in the model's order, NaN where a value is missing."""
        frame = as_frame(features)
        if frame is not None:
            need_names(self.n_features, self.names)
            sources = self.coding.sources(self.names, frame.columns)
            if not len(frame):
                return np.zeros((0, self.n_features))
            wanted = list(dict.fromkeys(column for column, _ in sources.values()))
            return self.coding.features(columns_of(frame.select(wanted)), self.names)
        table = array_of(features, self.n_features)
        in_single_precision(table, self.names, missing=True)  # refuses what is infinite there
        return table.astype(float)

    # ---------------------------------------------------------------------------------------------------- evaluation

    def evaluate(
        self,
        data: Any,
        *,
        label: str = "",
        positive: str | float | bool | None = None,
        silo: str = "",
        folder: str | os.PathLike[str] | None = None,
    ) -> dict[str, dict[str, float]]:
        """Measures of the model on labelled rows.

        Args:
            data: The path of a CSV or parquet file, a data frame, ``(features, labels)`` or ``(features, labels,
                silos)``, or a name of the catalogue.
            label: Column of the label; by default that of the training data.
            positive: The value of the label that counts as 1; by default that of the training data.
            silo: Column that names the silo of each row; by default there is none.
            folder: Where data sets are looked for.

        Returns:
            ``all`` or the name of a silo -> measure -> value: ``AUC`` (NaN for rows of one class only), ``log-loss``
            in natural units, and the number of ``rows``.

        Raises:
            DataError: The data does not fit the model.
            ModelError: The model has no mean and deviation of its inputs.
        """
        table, labels, silos = self._label_rows(data, label, positive, silo, folder)
        found = self._scores(table)
        parts = {ALL_ROWS: np.ones(len(labels), bool)}
        if silos is not None and len(names := list(dict.fromkeys(silos))) > 1:
            called = {name: f"{name} (silo)" if name == ALL_ROWS else name for name in names}
            parts |= {called[name]: np.asarray(silos) == name for name in names}
        return {name: _measures(found[which], labels[which]) for name, which in parts.items()}

    def _label_rows(
        self, data: Any, label: str, positive: Any, silo: str, folder: Any
    ) -> tuple[np.ndarray, np.ndarray, list[str] | None]:
        """Features, labels 0 or 1, and the silo of each row where it is known."""
        if isinstance(data, str) and is_known(data, self.task):
            data = load(data, SiloReader(), folder=folder)
        if isinstance(data, SiloTable):
            if self.names and data.feature_names != self.names:
                raise DataError(
                    f"{data.name} has the features {', '.join(data.feature_names)}; the model needs "
                    f"{', '.join(self.names)}."
                )
            return (
                self._table(np.concatenate([one.features for one in data.silos])),
                np.concatenate([one.labels for one in data.silos]),
                [one.name for one in data.silos for _ in range(one.n_rows)],
            )
        if isinstance(data, tuple):
            table, labels, *more = data
            labels = np.asarray(labels)
            if labels.shape != np.shape(table)[:1] or not np.isin(labels, (0, 1)).all():
                raise DataError(f"labels must be 0 or 1, one a row, got shape {labels.shape}.")
            return self._table(table), labels, [str(one) for one in more[0]] if more else None
        path = None
        if isinstance(data, str | os.PathLike):
            path = Path(data)
            columns = read_columns(path)
        else:
            frame = as_frame(data)
            if frame is None:
                raise DataError(
                    f"data of type {type(data).__name__} cannot be read; give a path, a data frame, "
                    "(features, labels), or a name of the catalogue."
                )
            columns = columns_of(frame)
        need_names(self.n_features, self.names)
        label = label or self.coding.label
        one = self.coding.positive if positive is None and label == self.coding.label else positive
        if not label or one is None:
            raise DataError(
                "say which column has the label, and which of its values counts as 1: label=…, positive=….", path
            )
        for name in filter(None, (label, silo)):
            if name not in columns:
                raise DataError(f"there is no column {name!r}; the columns are {', '.join(columns)}.", path)
        codes, (wanted,) = as_codes(columns[label]), as_codes([one])
        known = np.array([code is not None for code in codes], bool)
        table = self.coding.features(columns, self.names)[known]
        owners = [str(one) for one, keep in zip(columns[silo], known, strict=True) if keep] if silo else None
        return table, np.array([code == wanted for code in codes], np.int8)[known], owners


def _numbers(values: Any, dtype: Any) -> np.ndarray | None:
    return None if values is None else np.asarray(values, dtype)


def _measures(found: Float32[np.ndarray, " rows"], labels: np.ndarray) -> dict[str, float]:
    if not len(found):
        return {"AUC": float("nan"), "log-loss": float("nan"), "rows": 0}
    every = np.ones(len(found), bool)
    measures = {"AUC": host_auc(found, labels, every), "log-loss": host_log_loss(found, labels, every)}
    return {**{name: float(value) for name, value in measures.items()}, "rows": len(found)}
