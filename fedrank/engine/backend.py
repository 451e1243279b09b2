"""The backend of the rounds of a run: compiled kernels, which start at once, or JAX, which knows all settings."""

from __future__ import annotations

from fedrank.core.errors import ConfigError
from fedrank.core.native import NotNativeError
from fedrank.core.protocol import Party, Protocol
from fedrank.engine.conditions import Conditions
from fedrank.engine.native import NativeSimulator
from fedrank.engine.rounds import Rounds


def rounds_of(
    protocol: Protocol, parties: Party, chunk: int, conditions: Conditions, backend: str, debug: bool = False
) -> Rounds:
    """The backend that computes the rounds of a protocol.

    Args:
        protocol: The protocol.
        parties: All of its parties.
        chunk: Parties that answer at once.
        conditions: What happens to replies on their way.
        backend: ``"numba"`` or ``"numpy"`` for native rounds, ``"jax"``, or ``"auto"`` for the first where they can.
        debug: Without compiling, party by party, which takes JAX.

    Raises:
        ConfigError: ``backend`` names native rounds, and something needs JAX.
    """
    why = "compute.backend = 'jax'"
    if backend != "jax":
        try:
            if debug:
                raise NotNativeError("compute.debug")
            return NativeSimulator(protocol, parties, chunk, conditions)
        except NotNativeError as error:
            if backend != "auto":
                raise ConfigError(
                    f"compute.backend = {backend!r} cannot compute this run: {error} takes JAX. Use 'auto' or 'jax'."
                ) from error
            why = str(error)
    from fedrank.engine.simulator import Simulator

    return Simulator(protocol, chunk, debug, conditions, why=why)
