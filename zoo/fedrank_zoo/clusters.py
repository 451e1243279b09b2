"""Pieces of work on a cluster of Dask or Ray, extras: one that runs already, or one of processes of this machine."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from typing import Any

from typing_extensions import override

from fedrank.core.errors import RunError
from fedrank.core.lazy import require
from fedrank.engine.executors import RETRIES, Executor, cpus, repeated_death_error, run_job, unwrap_result


class DaskExecutor(Executor):
    """A cluster of Dask; a piece whose worker dies is computed by another one.

    Args:
        workers: Processes of a cluster that is started here; 0: one for each processor.
        address: Of the scheduler of a cluster that runs already, such as ``tcp://10.0.0.1:8786``; empty: one is started
            on this machine, which listens on its loopback only.

    Raises:
        MissingExtraError: Dask is not installed.
        RunError: There is no scheduler at the address.
    """

    shares_files = False

    def __init__(self, workers: int = 0, address: str = ""):
        require("dask", "engine = 'dask'", "distributed")
        import dask
        from distributed import Client, LocalCluster  # pyright: ignore[reportMissingImports]

        dask.config.set({"distributed.scheduler.allowed-failures": RETRIES})  # pyright: ignore
        self.cluster: Any = None
        if not address:
            self.cluster = LocalCluster(
                n_workers=workers or cpus(),
                threads_per_worker=1,
                processes=True,
                host="127.0.0.1",
                dashboard_address="127.0.0.1:0",
                worker_dashboard_address="127.0.0.1:0",
            )
        try:
            self.client = Client(self.cluster or address, timeout=120 if self.cluster else 30)
        except (OSError, ValueError, TypeError) as error:
            raise RunError(
                f"{address}: no scheduler of Dask answers ({error}). Start one with 'dask scheduler', workers with "
                "'dask worker ADDRESS', or leave the address out for a cluster on this machine."
            ) from error

    @override
    def results(self, function: Callable[[Any], Any], arguments: Sequence[Any]) -> Iterator[tuple[int, Any]]:
        from distributed import as_completed  # pyright: ignore[reportMissingImports]
        from distributed.scheduler import KilledWorker  # pyright: ignore[reportMissingImports]

        futures = {
            self.client.submit(run_job, (function, argument), pure=False): place
            for place, argument in enumerate(arguments)
        }
        try:
            for future in as_completed(list(futures)):
                try:
                    result = future.result()
                except KilledWorker as error:
                    raise repeated_death_error("the workers") from error
                yield futures[future], unwrap_result(result)
        finally:
            self.client.cancel(list(futures))

    @override
    def close(self) -> None:
        self.client.close()
        if self.cluster is not None:
            self.cluster.close()


class RayExecutor(Executor):
    """A cluster of Ray; a piece whose worker dies is computed by another one.

    Args:
        workers: Processes of a cluster that is started here; 0: one for each processor.
        address: Of a cluster that runs already, such as ``ray://10.0.0.1:10001`` or ``auto``; empty: one is started on
            this machine.

    Raises:
        MissingExtraError: Ray is not installed.
        RunError: There is no cluster at the address.
    """

    shares_files = False

    def __init__(self, workers: int = 0, address: str = ""):
        require("ray", "engine = 'ray'", "ray")
        ray = _library()

        here: dict[str, Any] = {
            "num_cpus": workers or cpus(),
            "include_dashboard": False,
            "_node_ip_address": "127.0.0.1",
        }
        asked: dict[str, Any] = {"log_to_driver": False, **({"address": address} if address else here)}
        try:
            ray.init(**asked)
        except (ConnectionError, ValueError, RuntimeError) as error:
            raise RunError(
                f"{address or 'ray'}: no cluster of Ray answers ({error}). Start one with 'ray start --head', or leave "
                "the address out for a cluster on this machine."
            ) from error

    @override
    def results(self, function: Callable[[Any], Any], arguments: Sequence[Any]) -> Iterator[tuple[int, Any]]:
        ray = _library()
        from ray.exceptions import WorkerCrashedError  # pyright: ignore[reportMissingImports]

        remote = ray.remote(max_retries=RETRIES, num_cpus=1)(run_job)
        left = {remote.remote((function, argument)): place for place, argument in enumerate(arguments)}
        try:
            while left:
                (ready, *_), _ = ray.wait(list(left), num_returns=1)
                try:
                    result = ray.get(ready)
                except WorkerCrashedError as error:
                    raise repeated_death_error("the workers") from error
                yield left.pop(ready), unwrap_result(result)
        finally:
            for reference in left:
                ray.cancel(reference, force=True)

    @override
    def close(self) -> None:
        ray = _library()

        ray.shutdown()


def _library() -> Any:
    """Ray; imported by name, since a tool that checks types takes this file for it where it is not installed."""
    return import_module("ray")
