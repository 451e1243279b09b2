"""Rankers in the forms that search engines load.

* ``elasticsearch-ltr``, ``opensearch-ltr``: the body of ``POST _ltr/_featureset/NAME/_createmodel`` of the Learning to
  Rank plugins: ``model/linear`` with ``feature_normalizers`` (``standard`` or ``min_max``), which both document. A
  model is a weight for each *name* of a feature of the set, so that features must have the names of the feature set.
* ``vespa-onnx``: an ONNX file beside a piece of a schema, ``onnx-model`` and a rank profile that calls it on a tensor
  of the features.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np

from fedrank.core.errors import ModelError, UnknownNameError
from fedrank.core.trees import Json
from fedrank.engine.model import Model, write_file
from fedrank.ranking.model import RankingModel
from fedrank.ranking.rankers.linear import Linear

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def export_for_engine(model: Model, path: str | os.PathLike[str], form: str) -> list[Path]:
    """Write a ranker in a search engine's form; returns the files written.

    Args:
        model: The ranker.
        path: The file.
        form: One of :data:`FORMS`.

    Raises:
        UnknownNameError: There is no such form.
        ModelError: It is no ranker, or the form cannot express it; says why.
        MissingExtraError: A form needs a package that is not installed.
    """
    if form not in FORMS:
        raise UnknownNameError("form of a search engine", form, FORMS)
    if not isinstance(model, RankingModel):
        raise ModelError(f"{form} takes rankers of documents, and this is a {type(model).__name__}.")
    return FORMS[form](model, Path(path), form)


def write_ltr(model: RankingModel, path: Path, form: str) -> list[Path]:
    """Write the body that makes the model in a Learning to Rank plugin; returns the files written.

    Args:
        model: The ranker.
        path: The file, such as ``model.json``; its name without the ending becomes the model's.
        form: Name of the form, for errors.

    Raises:
        ModelError: The form cannot express the model; says why.
    """
    _refuse_query_normalisation(model, form)
    if not isinstance(model.ranker, Linear):
        raise ModelError(
            f"{form} has no form for a {type(model.ranker).__name__}: its plugin takes weights of features, or trees. "
            "Export it with --to vespa-onnx, or learn a linear one (--ranker linear)."
        )
    names = _names(model, form)
    if path.suffix != ".json":
        raise ModelError(f"{path}: the name must end in .json: it is the body of a request.")
    # The plugin subtracts and divides by what is not 0; a constant feature adds nothing.
    constants = model.constants
    varies = np.ones(len(names), bool) if constants is None else constants.spread > 0
    weights = {name: float(weight) for name, weight, used in zip(names, model.weights, varies, strict=True) if used}
    body: dict[str, Json] = {"type": "model/linear", "definition": json.dumps(weights)}
    if constants is not None:
        if constants.how == "log":
            raise ModelError(
                f"{form} has no normaliser 'log': it has standard and min_max. Learn with --normalise standard; put "
                "the logarithm into the feature set (a script_feature) and log that; or export with --to vespa-onnx."
            )
        body["feature_normalizers"] = {
            name: {"standard": {"mean": float(c), "standard_deviation": float(s)}}
            if constants.how == "standard"
            else {"min_max": {"minimum": float(c), "maximum": float(c + s)}}
            for name, c, s, used in zip(names, constants.centre, constants.spread, varies, strict=True)
            if used
        }
    made = {"model": {"name": path.stem, "model": body}}
    return [write_file(path, (json.dumps(made, indent=1) + "\n").encode())]


def write_vespa(model: RankingModel, path: Path, form: str) -> list[Path]:
    """Write an ONNX file and, beside it, the piece of a schema that ranks by it; returns the files written.

    Args:
        model: The ranker.
        path: The file, ``name.onnx``; its name without the ending becomes the model's.
        form: Name of the form, for errors.

    Raises:
        ModelError: The form cannot express the model; says why.
        MissingExtraError: The extra ``onnx`` is not installed.
    """
    _refuse_query_normalisation(model, form)
    names = _names(model, form)
    if path.suffix != ".onnx" or not _NAME.fullmatch(path.stem):
        raise ModelError(f"{path}: the name must be a word of letters, digits and _, and end in .onnx.")
    model.to_onnx(path)
    listed = ",\n                ".join(names)
    schema = f"""# Beside the document of a schema; the file is files/{path.name} of the application package.
# Each name below must be a function of the rank profile, a rank feature or a number: its feature as it was logged.
onnx-model {path.stem} {{
    file: files/{path.name}
    input features: fedrank_features
    output scores: scores
}}

rank-profile {path.stem} {{
    function fedrank_features() {{
        expression {{
            tensor<float>(d0[1],d1[{len(names)}]):[[
                {listed}
            ]]
        }}
    }}
    second-phase {{
        rerank-count: 100
        expression: onnx({path.stem}).scores{{d0:0}}
    }}
}}
"""
    return [path, write_file(path.with_suffix(".sd"), schema.encode())]


#: Forms by name: what writes them.
FORMS: dict[str, Callable[[RankingModel, Path, str], list[Path]]] = {
    "elasticsearch-ltr": write_ltr,
    "opensearch-ltr": write_ltr,
    "vespa-onnx": write_vespa,
}


def _refuse_query_normalisation(model: RankingModel, form: str) -> None:
    if model.normalise == "query-minmax":
        raise ModelError(
            f"{form} cannot express the normalisation query-minmax: an engine scores documents one by one and does not "
            "know the least and the largest value of a query. Train with constants: --normalise standard (or min-max)."
        )


def _names(model: RankingModel, form: str) -> tuple[str, ...]:
    if not model.names:
        raise ModelError(
            f"{form} knows features by their names, and this model's data had none: train on a frame or a log, whose "
            "columns have the names of the feature set."
        )
    return model.names
