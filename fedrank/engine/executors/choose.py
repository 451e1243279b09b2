"""An executor by its name, as the command line says it."""

from __future__ import annotations

from fedrank.core import plugins
from fedrank.core.errors import ConfigError
from fedrank.engine.executors.base import Executor, Here


def executor(engine: str, workers: int = 0, address: str = "") -> Executor:
    """The executor of that name.

    Args:
        engine: ``here``: this process; ``processes`` of this machine; or a cluster of ``fedrank.executors``, such as
            ``dask`` and ``ray`` of ``fedrank-zoo``.
        workers: Number of processes on this machine; 0: one for each processor.
        address: Of a cluster that runs already; empty: one is started on this machine.

    Raises:
        ConfigError: Workers or an address where they mean nothing.
        UnknownNameError: No package has such an engine.
        MissingExtraError: The engine is not installed.
        RunError: There is no cluster at the address.
    """
    if address and engine in ("here", "processes"):
        raise ConfigError(f"address = {address!r} is of a cluster of dask or ray; the engine {engine!r} has none.")
    if workers and (engine == "here" or address):
        raise ConfigError(
            f"workers = {workers} means nothing with {'address' if address else 'engine here'}: "
            f"{'the cluster has its own' if address else 'it is one process'}. Leave it out."
        )
    if engine == "here":
        return Here()
    if engine == "processes":
        from fedrank.engine.executors.processes import Processes

        return Processes(workers)
    return plugins.get("fedrank.executors", engine)(workers, address)
