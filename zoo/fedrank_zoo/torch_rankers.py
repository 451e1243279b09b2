"""A ``torch.nn.Module`` as a ranker: its computation is traced once and done by JAX.

PyTorch is needed where the module is made; a run computes with JAX alone. Only layers that score documents one by one
have a counterpart here: linear layers, activations, layer normalisation, sums, products and concatenations. Dropout is
off, as in ``eval()``.
"""

from __future__ import annotations

import operator
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import numpy as np

from fedrank.core.errors import ConfigError, MissingExtraError
from fedrank.core.lazy import jax, jnp
from fedrank.ranking.rankers.own import FunctionRanker

#: Values of JAX by the name of a node of the traced graph.
_Values = dict[str, Any]


def torch_ranker(module: Any, n_features: int) -> FunctionRanker:
    """The ranker that a module is; its weights now are where the run starts.

    Args:
        module: Maps float32 [documents, features] to [documents] or [documents, 1].
        n_features: Features of a document.

    Raises:
        ConfigError: The module does something that has no counterpart; says what.
        MissingExtraError: PyTorch is not installed.
    """
    try:
        from torch import fx  # pyright: ignore[reportMissingImports, reportAttributeAccessIssue]
    except ImportError as error:
        raise MissingExtraError("torch", "torch", "a ranker of PyTorch") from error
    training = module.training
    try:
        traced = fx.symbolic_trace(module.eval())
    except Exception as cause:  # whatever the caller's module raises
        raise ConfigError(f"the module {type(module).__name__} cannot be traced by torch.fx: {cause}") from cause
    finally:
        module.train(training)
    steps = [_step(node, traced) for node in traced.graph.nodes]
    # Ordered, so that the vector has the parameters in the module's order; of a plain dictionary JAX sorts the keys.
    named = [(name.replace(".", "/"), value) for name, value in traced.named_parameters()]
    initial = OrderedDict((name, _array(value)) for name, value in named if value.requires_grad)
    buffers = {name.replace(".", "/"): _array(value) for name, value in traced.named_buffers()}
    buffers |= {name: _array(value) for name, value in named if not value.requires_grad}  # not trained

    def scores(parameters: dict[str, Any], features: Any) -> Any:
        values: _Values = {}
        for name, compute in steps:
            values[name] = compute({**buffers, **parameters}, values, features)
        found = values["output"]
        return found[..., 0] if found.ndim == 2 and found.shape[1] == 1 else found

    _refuse_another_function(module, scores, initial, n_features)
    return FunctionRanker(scores, initial, n_features=n_features)


def _refuse_another_function(module: Any, scores: Any, initial: Any, n_features: int) -> None:
    """Refuse a module of which something was lost on the way to JAX: both must score three random rows alike."""
    import torch  # pyright: ignore[reportMissingImports]

    rows = np.random.default_rng(0).normal(size=(3, n_features)).astype(np.float32)
    trains = module.training
    with torch.no_grad():  # pyright: ignore[reportAttributeAccessIssue]
        given = torch.from_numpy(rows)  # pyright: ignore[reportAttributeAccessIssue]
        theirs = module.eval()(given).reshape(-1).numpy()
    module.train(trains)
    ours = np.asarray(scores(initial, jnp.asarray(rows))).reshape(-1)
    if ours.shape != theirs.shape or not np.allclose(ours, theirs, rtol=1e-4, atol=1e-5):
        raise ConfigError(
            "the module computes something else in JAX than in PyTorch: it uses an argument or a setting that is not "
            "known here. Write the ranker as a function: FunctionRanker(scores, initial)."
        )


_Compute = Callable[[dict[str, Any], _Values, Any], Any]


def _step(node: Any, traced: Any) -> tuple[str, _Compute]:
    """One node of the graph: the name of its value, and how JAX computes it from parameters, values, features."""
    if node.op == "placeholder":
        return node.name, lambda parameters, values, features: features
    if node.op == "output":
        return "output", lambda parameters, values, features: _given(node.args[0], values)
    if node.op == "get_attr":
        key = str(node.target).replace(".", "/")
        return node.name, lambda parameters, values, features: parameters[key]
    if node.op == "call_module":
        layer = _layer(traced.get_submodule(node.target), str(node.target).replace(".", "/"))
        return node.name, lambda parameters, values, features: layer(parameters, _given(node.args[0], values))
    name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", str(node.target))
    function = _FUNCTIONS.get(name)
    if function is None:
        raise _refusal(f"the operation {name!r}")
    return node.name, lambda parameters, values, features: function(
        *_given(node.args, values), **_given(node.kwargs, values)
    )


def _given(argument: Any, values: _Values) -> Any:
    """An argument of a node with values in place of nodes."""
    if hasattr(argument, "op") and hasattr(argument, "target"):
        return values[argument.name]
    if isinstance(argument, tuple | list):
        return tuple(_given(one, values) for one in argument)
    if isinstance(argument, dict):
        return {key: _given(one, values) for key, one in argument.items()}
    return argument


def _layer(module: Any, key: str) -> Callable[[dict[str, Any], Any], Any]:
    """A JAX function that computes a layer from all parameters and its input."""
    kind = type(module).__name__
    if kind == "Linear":
        bias = module.bias is not None

        def linear(parameters: dict[str, Any], x: Any) -> Any:
            out = jnp.matmul(x, parameters[f"{key}/weight"].T, precision=jax.lax.Precision.HIGHEST)
            return out + jnp.broadcast_to(parameters[f"{key}/bias"], out.shape) if bias else out

        return linear
    if kind == "LayerNorm" and len(module.normalized_shape) == 1:
        epsilon, affine, shifts = module.eps, module.elementwise_affine, module.bias is not None

        def norm(parameters: dict[str, Any], x: Any) -> Any:
            mean, variance = jnp.mean(x, -1, keepdims=True), jnp.var(x, -1, keepdims=True)
            out = (x - mean) * jax.lax.rsqrt(variance + epsilon)
            out = out * jnp.broadcast_to(parameters[f"{key}/weight"], out.shape) if affine else out
            return out + jnp.broadcast_to(parameters[f"{key}/bias"], out.shape) if affine and shifts else out

        return norm
    activation = _activation(kind, module)
    if activation is None:
        raise _refusal(f"the layer {kind}")
    return lambda parameters, x: activation(x)


def _activation(kind: str, module: Any) -> Callable[[Any], Any] | None:
    if kind == "GELU":
        return lambda x: jax.nn.gelu(x, approximate=module.approximate == "tanh")
    if kind == "ELU":
        return lambda x: jax.nn.elu(x, module.alpha)
    if kind == "LeakyReLU":
        return lambda x: jax.nn.leaky_relu(x, module.negative_slope)
    if kind == "Flatten":
        return lambda x: x.reshape(-1) if module.start_dim == 0 else x.reshape(x.shape[0], -1)
    return _ACTIVATIONS.get(kind)


def _same(x: Any, *_: Any, **__: Any) -> Any:
    return x


_ACTIVATIONS: dict[str, Callable[[Any], Any]] = {
    "ReLU": jax.nn.relu,
    "Tanh": jnp.tanh,
    "Sigmoid": jax.nn.sigmoid,
    "SiLU": jax.nn.silu,
    "Softplus": jax.nn.softplus,
    "Identity": _same,
    "Dropout": _same,
}


def _broadcast(function: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    """An operation of two arrays of different ranks, as PyTorch has it."""

    def compute(a: Any, b: Any) -> Any:
        if not (hasattr(a, "shape") and hasattr(b, "shape")):
            return function(a, b)
        return function(*jnp.broadcast_arrays(*_same_rank(a, b)))

    return compute


def _same_rank(a: Any, b: Any) -> tuple[Any, Any]:
    rank = max(a.ndim, b.ndim)
    return a.reshape((1,) * (rank - a.ndim) + a.shape), b.reshape((1,) * (rank - b.ndim) + b.shape)


def _concatenate(arrays: Any, dim: int = 0) -> Any:
    if dim == 0:
        raise _refusal("cat along the documents")
    return jnp.concatenate(arrays, axis=dim)


def _squeeze(x: Any, dim: int | None = None) -> Any:
    if dim is None or dim == 0:
        raise _refusal("squeeze without dim=-1, which would depend on the number of documents,")
    return jnp.squeeze(x, axis=dim) if x.shape[dim] == 1 else x


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    **{name: _broadcast(operator.add) for name in ("add", "add_")},
    **{name: _broadcast(operator.sub) for name in ("sub",)},
    **{name: _broadcast(operator.mul) for name in ("mul", "mul_")},
    **{name: _broadcast(operator.truediv) for name in ("truediv", "div")},
    "neg": operator.neg,
    "relu": lambda x, inplace=False: jax.nn.relu(x),
    "tanh": jnp.tanh,
    "sigmoid": jax.nn.sigmoid,
    "silu": lambda x, inplace=False: jax.nn.silu(x),
    "gelu": lambda x, approximate="none": jax.nn.gelu(x, approximate=approximate == "tanh"),
    "elu": lambda x, alpha=1.0, inplace=False: jax.nn.elu(x, alpha),
    "leaky_relu": lambda x, negative_slope=0.01, inplace=False: jax.nn.leaky_relu(x, negative_slope),
    "dropout": _same,
    "cat": _concatenate,
    "concat": _concatenate,
    "squeeze": _squeeze,
}


def _refusal(what: str) -> ConfigError:
    known = "Linear, LayerNorm, Dropout, ReLU, GELU, Tanh, Sigmoid, SiLU, ELU, LeakyReLU, Softplus, Identity, +, *, cat"
    return ConfigError(
        f"{what} of the module has no counterpart in JAX here; a ranker may use {known}. Or write its scores as a "
        "function of JAX: FunctionRanker(scores, initial, n_features=…)."
    )


def _array(value: Any) -> np.ndarray:
    return value.detach().cpu().numpy().astype(np.float32)
