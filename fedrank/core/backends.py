"""The device that JAX would compute on, found without importing JAX where that is possible."""

from __future__ import annotations

import functools
import os
import sys
from importlib.metadata import entry_points
from importlib.util import find_spec


@functools.cache
def on_cpu() -> bool:
    """True if JAX computes on the CPU here, as it always does without a plug-in of JAX for an accelerator."""
    platforms = os.environ.get("JAX_PLATFORMS", "")
    if "jax" not in sys.modules:
        if platforms == "cpu":
            return True
        known = find_spec("jax_plugins") or find_spec("libtpu") or entry_points(group="jax_plugins")
        if not platforms and not known:
            return True
    import jax

    return jax.default_backend() == "cpu"


def device_kind() -> str:
    """JAX's name for the kind of device that it computes on."""
    if on_cpu():
        return "cpu"
    import jax

    return jax.devices()[0].device_kind
