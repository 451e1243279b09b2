"""A model as a chain of layers, in words that other libraries have too: ONNX and PyTorch.

A chain maps a table of features, float32 [rows, features], to scores [rows]. fedrank itself scores with its own
functions; a chain is written for others and agrees with them to rounding.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from fedrank.core.errors import MissingExtraError, ModelError

#: Versions of ONNX's operators and file format: of 2022, so that older runtimes read the files too.
_OPSET, _IR = 17, 8


@dataclass(frozen=True, eq=False)
class QueryMinMax:
    """All rows are documents of one query; each feature is mapped to [0, 1] over them, a constant one to 0."""


@dataclass(frozen=True, eq=False)
class QueryStandardise:
    """All rows are documents of one query; in double precision each column becomes (x − mean) / deviation over them.

    A column counts as constant, and has the deviation 1, where its variance is at most ``least`` times its squared mean
    or the square of ``least``, whichever is larger.

    Attributes:
        least: The smallest share of the squared mean that counts as a variance.
    """

    least: float


@dataclass(frozen=True, eq=False)
class Standardise:
    """Each column by itself, in double precision: (x − mean) / deviation; 0 where x is missing or the deviation is 0.

    Attributes:
        mean: [columns].
        deviation: [columns], at least 0.
    """

    mean: Float[np.ndarray, " columns"]
    deviation: Float[np.ndarray, " columns"]


@dataclass(frozen=True, eq=False)
class SignedLog:
    """Each number x of the table becomes sign(x) · ln(1 + |x|), in double precision."""


@dataclass(frozen=True, eq=False)
class Affine:
    """Each column by itself: x · scale + shift.

    Attributes:
        scale: [columns].
        shift: [columns].
    """

    scale: Float[np.ndarray, " columns"]
    shift: Float[np.ndarray, " columns"]


@dataclass(frozen=True, eq=False)
class Dense:
    """A linear layer: x · weight + bias.

    Attributes:
        weight: [inputs, outputs].
        bias: [outputs]; None: no bias.
    """

    weight: Float[np.ndarray, "inputs outputs"]
    bias: Float[np.ndarray, " outputs"] | None = None


@dataclass(frozen=True, eq=False)
class LayerNorm:
    """Each row to mean 0 and variance 1, then scaled and shifted (Ba et al. 2016).

    Attributes:
        scale: [columns].
        shift: [columns].
        epsilon: Added to the variance.
    """

    scale: Float[np.ndarray, " columns"]
    shift: Float[np.ndarray, " columns"]
    epsilon: float


@dataclass(frozen=True, eq=False)
class Relu:
    """Rectified linear unit: each number x of the table [rows, columns] becomes max(0, x)."""


@dataclass(frozen=True, eq=False)
class Softmax:
    """Each row of the table [rows, columns] becomes a distribution: e^x over the sum of the row's e^x."""


Layer = QueryMinMax | QueryStandardise | Standardise | SignedLog | Affine | Dense | LayerNorm | Relu | Softmax


def to_onnx(
    layers: tuple[Layer, ...], n_features: int, feature_names: tuple[str, ...] = (), about: dict[str, Any] | None = None
) -> bytes:
    """The bytes of an ONNX file: input ``features`` float32 [rows, n_features], output ``scores`` float32 [rows].

    Args:
        layers: The chain; the last layer has one column.
        n_features: Columns of the input.
        feature_names: Names of the columns, for the file's metadata.
        about: Where the model comes from, for the file's metadata.

    Raises:
        MissingExtraError: ``onnx`` is not installed.
    """
    import json

    try:
        import onnx
        from onnx import TensorProto, helper, numpy_helper
    except ImportError as error:
        raise MissingExtraError("onnx", "onnx", "writing an ONNX file") from error
    nodes, constants = [], []
    last = "features"

    def constant(values: np.ndarray) -> str:
        constants.append(numpy_helper.from_array(np.ascontiguousarray(values), f"constant{len(constants)}"))
        return constants[-1].name

    def node(kind: str, *inputs: str, **attributes: Any) -> str:
        nodes.append(helper.make_node(kind, list(inputs), [f"value{len(nodes)}"], **attributes))
        return nodes[-1].output[0]

    for layer in layers:
        if isinstance(layer, QueryMinMax):  # in double precision, as fedrank does
            wide = node("Cast", last, to=TensorProto.DOUBLE)
            low = node("ReduceMin", wide, axes=[0], keepdims=1)
            span = node("Sub", node("ReduceMax", wide, axes=[0], keepdims=1), low)
            varies = node("Greater", span, constant(np.zeros(1)))
            divided = node("Div", node("Sub", wide, low), node("Where", varies, span, constant(np.ones(1))))
            last = node("Cast", node("Where", varies, divided, constant(np.zeros(1))), to=TensorProto.FLOAT)
        elif isinstance(layer, QueryStandardise):
            wide = node("Cast", last, to=TensorProto.DOUBLE)
            mean = node("ReduceMean", wide, axes=[0], keepdims=1)
            squared = node("Mul", mean, mean)
            variance = node("Sub", node("ReduceMean", node("Mul", wide, wide), axes=[0], keepdims=1), squared)
            least = constant(np.array([layer.least]))
            varies = node("Greater", variance, node("Mul", least, node("Max", squared, least)))
            one = constant(np.ones(1))
            deviation = node("Sqrt", node("Where", varies, variance, one))
            last = node("Cast", node("Div", node("Sub", wide, mean), deviation), to=TensorProto.FLOAT)
        elif isinstance(layer, Standardise):
            wide = node("Cast", last, to=TensorProto.DOUBLE)
            varies = layer.deviation > 0
            divisor = np.where(varies, layer.deviation, 1.0)
            divided = node("Div", node("Sub", wide, constant(layer.mean)), constant(divisor))
            void = node("Or", node("IsNaN", divided), constant(~varies))
            last = node("Cast", node("Where", void, constant(np.zeros(1)), divided), to=TensorProto.FLOAT)
        elif isinstance(layer, SignedLog):
            wide = node("Cast", last, to=TensorProto.DOUBLE)
            size = node("Log", node("Add", node("Abs", wide), constant(np.ones(1))))
            last = node("Cast", node("Mul", node("Sign", wide), size), to=TensorProto.FLOAT)
        elif isinstance(layer, Affine):
            last = node("Add", node("Mul", last, constant(_f32(layer.scale))), constant(_f32(layer.shift)))
        elif isinstance(layer, Dense):
            last = node("MatMul", last, constant(_f32(layer.weight)))
            if layer.bias is not None:
                last = node("Add", last, constant(_f32(layer.bias)))
        elif isinstance(layer, LayerNorm):
            scale, shift = constant(_f32(layer.scale)), constant(_f32(layer.shift))
            last = node("LayerNormalization", last, scale, shift, axis=-1, epsilon=layer.epsilon)
        elif isinstance(layer, Softmax):
            last = node("Softmax", last, axis=-1)
        else:
            last = node("Relu", last)
    nodes.append(helper.make_node("Squeeze", [last, constant(np.array([1], np.int64))], ["scores"]))
    graph = helper.make_graph(
        nodes,
        "fedrank",
        [helper.make_tensor_value_info("features", TensorProto.FLOAT, ["rows", n_features])],
        [helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["rows"])],
        constants,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", _OPSET)], ir_version=_IR)
    model.producer_name = "fedrank"
    told = {"feature_names": list(feature_names), **(about or {})}
    helper.set_model_props(model, {"fedrank": json.dumps(told, sort_keys=True, ensure_ascii=False)})
    onnx.checker.check_model(model)
    return model.SerializeToString()


def to_torch(layers: tuple[Layer, ...]) -> Any:
    """A ``torch.nn.Sequential`` that maps float32 [rows, features] to scores [rows]; its parameters can be trained on.

    Raises:
        MissingExtraError: ``torch`` is not installed.
        ModelError: The chain has a layer without a counterpart.
    """
    try:
        import torch  # pyright: ignore[reportMissingImports]
        from torch import nn  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise MissingExtraError("torch", "torch", "a model of PyTorch") from error

    def tensor(values: np.ndarray) -> Any:
        return torch.from_numpy(_f32(values).copy())

    class MinMaxOfQuery(nn.Module):
        """Maps each column of the rows of one query to [0, 1]."""

        def forward(self, x: Any) -> Any:
            wide = x.double()
            low = wide.amin(0, keepdim=True)
            span = wide.amax(0, keepdim=True) - low
            divided = (wide - low) / torch.where(span > 0, span, torch.ones_like(span))
            return torch.where(span > 0, divided, torch.zeros_like(divided)).float()

    class StandardiseOfQuery(nn.Module):
        """Each column of the rows of one query to mean 0 and variance 1, but for one that is constant."""

        def __init__(self, layer: QueryStandardise):
            super().__init__()
            self.least = layer.least

        def forward(self, x: Any) -> Any:
            wide = x.double()
            mean = wide.mean(0, keepdim=True)
            variance = (wide**2).mean(0, keepdim=True) - mean**2
            varies = variance > self.least * (mean**2).clamp(min=self.least)
            return ((wide - mean) / torch.where(varies, variance, torch.ones_like(variance)).sqrt()).float()

    class ColumnAffine(nn.Module):
        """x · scale + shift; both are buffers, which an optimiser leaves alone."""

        def __init__(self, layer: Affine):
            super().__init__()
            self.register_buffer("scale", tensor(layer.scale))
            self.register_buffer("shift", tensor(layer.shift))

        def forward(self, x: Any) -> Any:
            return x * self.scale + self.shift

    class ColumnStandardise(nn.Module):
        """(x − mean) / deviation in double precision; 0 where x is missing or the deviation is 0."""

        def __init__(self, layer: Standardise):
            super().__init__()
            varies = layer.deviation > 0
            self.register_buffer("mean", torch.from_numpy(np.array(layer.mean, np.float64)))
            self.register_buffer("divisor", torch.from_numpy(np.where(varies, layer.deviation, 1.0)))
            self.register_buffer("varies", torch.from_numpy(varies))

        def forward(self, x: Any) -> Any:
            divided = (x.double() - self.mean) / self.divisor
            return torch.where(self.varies & ~divided.isnan(), divided, torch.zeros_like(divided)).float()

    class LogOfSize(nn.Module):
        """Signed logarithms of features, sign(x) · ln(1 + |x|), of the shape of x."""

        def forward(self, x: Any) -> Any:
            wide = x.double()
            return (wide.sign() * wide.abs().log1p()).float()

    modules: list[Any] = []
    for layer in layers:
        if isinstance(layer, QueryMinMax):
            modules.append(MinMaxOfQuery())
        elif isinstance(layer, QueryStandardise):
            modules.append(StandardiseOfQuery(layer))
        elif isinstance(layer, Standardise):
            modules.append(ColumnStandardise(layer))
        elif isinstance(layer, SignedLog):
            modules.append(LogOfSize())
        elif isinstance(layer, Affine):
            modules.append(ColumnAffine(layer))
        elif isinstance(layer, Dense):
            inputs, outputs = layer.weight.shape
            linear = nn.Linear(inputs, outputs, bias=layer.bias is not None)
            linear.weight.data = tensor(layer.weight.T)
            if layer.bias is not None:
                linear.bias.data = tensor(layer.bias)
            modules.append(linear)
        elif isinstance(layer, LayerNorm):
            norm = nn.LayerNorm(len(layer.scale), eps=layer.epsilon)
            norm.weight.data, norm.bias.data = tensor(layer.scale), tensor(layer.shift)
            modules.append(norm)
        elif isinstance(layer, Relu):
            modules.append(nn.ReLU())
        elif isinstance(layer, Softmax):
            modules.append(nn.Softmax(dim=-1))
        else:
            raise ModelError(f"a layer of type {type(layer).__name__} has no counterpart in PyTorch.")
    return nn.Sequential(*modules, nn.Flatten(0))


def _f32(values: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(values, np.float32)
