"""``fedrank run``, ``resume``, ``sweep``, ``demo``: experiments from the command line."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Literal, get_type_hints

from cyclopts import Parameter

from fedrank.cli.flags import AsJson, Quiet
from fedrank.core.errors import ConfigError, UnknownNameError
from fedrank.core.trees import Json
from fedrank.engine.config import RunConfig
from fedrank.engine.executors.choose import Engine
from fedrank.engine.methods import method, method_names, task_of
from fedrank.engine.settings import DEFAULT_PROTOCOL, drop_replaced, from_dict, settings_class
from fedrank.engine.variations import parse_vary, read_sweep, variations

_RUNS = Path("runs")

Track = Annotated[list[str] | None, Parameter(negative="")]


def settings_in(file: str, given: Sequence[str] = (), command: str = "sweep") -> dict[str, Json]:
    """The settings of a run's or a sweep's file, checked.

    Args:
        file: The TOML file.
        given: Dotted names of the settings that the command line has: they also win over what the file says in another
            way, ``--rounds`` over its budget, ``--privacy.epsilon-interaction`` over its p.
        command: ``"run"`` takes one configuration, ``"sweep"`` several.

    Raises:
        ConfigError: No such file, an unknown setting, or a value out of range.
    """
    values, vary, cases = read_sweep(file)
    if command == "run" and (vary or cases):
        raise ConfigError(f"{file} is a sweep of several runs; run it with: fedrank sweep {file}")
    try:
        from_dict(values)
    except ConfigError as error:
        raise ConfigError(f"{file}: {error}") from error
    cls = settings_class(str(values.get("protocol", DEFAULT_PROTOCOL)))
    for key in ("", *given):
        drop_replaced(values, key, cls)
    return values


def protocol_of(source: str) -> str:
    """The protocol that the first argument of ``run`` or ``sweep`` names: itself, or the one in a TOML file.

    Raises:
        UnknownNameError: It is neither a protocol nor a TOML file.
        ConfigError: The file cannot be read.
    """
    if source.endswith(".toml"):
        return str(read_sweep(source)[0].get("protocol", DEFAULT_PROTOCOL))
    if source not in method_names():
        raise UnknownNameError("protocol", source, method_names())
    return source


def _evaluate_annotations(cls: type) -> None:
    """Replace the annotations of a dataclass's constructor, which are strings, by types.

    The command line looks names up in the module of the class; those of inherited fields stand in that of the base.
    """
    types = get_type_hints(cls, include_extras=True)
    names = [one.name for one in dataclasses.fields(cls) if one.init]
    cls.__init__.__annotations__ = {**{name: types[name] for name in names}, "return": None}
    for name in names:
        if dataclasses.is_dataclass(types[name]):
            _evaluate_annotations(types[name])


def command_of(name: str, protocol: str) -> Callable[..., None]:
    """The command ``run`` or ``sweep`` with one protocol's settings as its flags.

    Args:
        name: ``"run"`` or ``"sweep"``.
        protocol: The protocol.
    """
    cls = settings_class(protocol)
    _evaluate_annotations(cls)
    known = Annotated[cls, Parameter(name="*")]
    default = cls(protocol=protocol)

    def run(
        source: str = DEFAULT_PROTOCOL,
        /,
        *,
        config: known = default,  # type: ignore[valid-type]
        out: Path | None = None,
        track: Track = None,
        quiet: Quiet = False,
        as_json: AsJson = False,
    ) -> None:
        """Train with simulated users and leave a directory with the results and a report.

        Args:
            config: The experiment.
            source: A protocol (see fedrank protocols), or a TOML file such as a run's config.toml; flags win over it.
            out: The run's directory; by default a new one in runs, named after what the run is about.
            track: Write measures while the run goes on: csv, tensorboard, mlflow, or several of them.
            quiet: No progress.
            as_json: Print the results as JSON for machines.
        """
        from fedrank.engine.run import run as run_experiment

        folder = out or _free(_RUNS / task_of(protocol).folder_name(config))
        _say_if_slow(config, quiet)
        run_experiment(config, folder, listener=_listener(quiet, track=track or ()))
        _show(folder, as_json)

    def sweep(
        source: str = DEFAULT_PROTOCOL,
        /,
        *,
        vary: list[str] | None = None,
        search: Literal["grid", "optuna"] = "grid",
        trials: int = 20,
        measure: str = "",
        minimise: Annotated[bool, Parameter(negative="")] = False,
        config: known = default,  # type: ignore[valid-type]
        engine: Engine = "here",
        workers: int = 0,
        address: str = "",
        out: Path | None = None,
        track: Track = None,
        quiet: Quiet = False,
        as_json: AsJson = False,
    ) -> None:
        """Run every combination of some settings and compare the results; started again, it goes on.

        Args:
            source: A protocol (see fedrank protocols), or a TOML file with a table [vary]; flags win over the file.
            config: What the experiments have in common.
            vary: A setting and its values, such as privacy.p=0.25,0.5,1, or several of them for combinations; with
                --search optuna also a range, such as sigma=0.001..0.1:log or clients=10..50.
            search: Run all combinations, or let Optuna choose by what they bring.
            trials: optuna: number of runs in all.
            measure: optuna: what is to be best, such as 'vali: nDCG@10'; by default the first validation measure. The
                test part is shown for the best run only.
            minimise: optuna: less is better.
            engine: Who computes the grid: this process, one run after the other (here), processes of this machine, or
                a cluster of dask or ray, extras.
            workers: Processes on this machine; 0: one a processor.
            address: Of a cluster of dask or ray that runs already.
            out: Directory of the runs; by default one in runs, named after the file or what varies.
            track: Write measures of each run while it goes on: csv, tensorboard, mlflow, or several of them.
            quiet: No progress.
            as_json: Print the comparison as JSON for machines.
        """
        from fedrank.cli.report import compare_runs
        from fedrank.engine.executors.choose import executor
        from fedrank.engine.sweep import run_sweep

        if engine != "here" and (search == "optuna" or track):
            what = "--search optuna chooses a run by those before it" if search == "optuna" else "--track follows runs"
            raise ConfigError(f"{what} in this process; leave --engine {engine} out.")
        if search == "optuna":
            from fedrank.cli.search import search_settings

            stem = Path(source).stem if source.endswith(".toml") else protocol
            place = out or _RUNS / f"search-{stem}"
            best = search_settings(
                config,
                vary or [],
                place,
                trials=trials,
                measure=measure,
                minimise=minimise,
                listener=lambda name: _listener(quiet, name, track or ()),
                as_json=as_json,
            )
            if best is not None:
                _show(best, as_json=False)
            return
        lists, cases = parse_vary(vary or []), []
        if source.endswith(".toml"):
            _, in_file, cases = read_sweep(source)
            lists = lists or in_file
        todo = variations(config, lists, cases)
        folder = out or _RUNS / ("sweep-" + (Path(source).stem if source.endswith(".toml") else "-".join(lists)))
        with executor(engine, workers, address) as computing:
            runs = run_sweep(
                todo, folder, listener=lambda name: _listener(quiet, name, track or ()), executor=computing
            )
        for one in runs:
            _report(one)
        if len(runs) == 1:
            _show(runs[0], as_json)
        else:
            compare_runs(runs, folder, as_json, pool=True)

    chosen = {"run": run, "sweep": sweep}[name]
    chosen.__annotations__["config"] = known  # a dataclass that is known here only, not a name in this module
    for short, kind in (("track", Track), ("quiet", Quiet), ("as_json", AsJson)):
        chosen.__annotations__[short] = kind
    chosen.__annotations__ |= {"source": str, "out": Path | None, "return": None}
    if name == "sweep":
        chosen.__annotations__ |= {
            "vary": list[str] | None,
            "search": Literal["grid", "optuna"],
            "trials": int,
            "engine": Engine,
            "workers": int,
            "address": str,
            "measure": str,
            "minimise": Annotated[bool, Parameter(negative="")],
        }
    return chosen


def resume(folder: Path, /, *, track: Track = None, quiet: Quiet = False, as_json: AsJson = False) -> None:
    """Go on with a run that was stopped or killed.

    Args:
        folder: The run's directory.
        track: Write measures while the run goes on: csv, tensorboard, mlflow; by default what followed it before.
        quiet: No progress.
        as_json: Print the results as JSON for machines.
    """
    from fedrank.engine.run import resume as resume_experiment
    from fedrank.engine.tracking import tracked_before

    resume_experiment(folder, listener=_listener(quiet, track=tracked_before(folder) if track is None else track))
    _show(folder, as_json)


def demo(*, out: Path | None = None, quiet: Quiet = False, as_json: AsJson = False) -> None:
    """Train a ranker from the clicks of 200,000 simulated devices, one privatised bit each: about two minutes.

    Queries and clicks are generated. Each device takes part once; ε = 1 of all that its user does.

    Args:
        out: The run's directory; by default runs/demo (runs/demo-2, … if that is taken).
        quiet: No progress.
        as_json: Print the results as JSON for machines.
    """
    from fedrank.engine.run import run as run_experiment
    from fedrank.ranking.config import Evaluation, FoltrESConfig, FoltrESPrivacy

    folder = out or _free(_RUNS / "demo")
    config = FoltrESConfig(
        ranker="mlp",
        population=200_000,
        rounds=100,
        clients=2000,
        interactions=16,
        learning_rate=0.004,
        privacy=FoltrESPrivacy(epsilon_user=1.0),
        evaluation=Evaluation(every=2),
    )
    _say_if_slow(config, quiet)
    run_experiment(config, folder, listener=_listener(quiet))
    _show(folder, as_json)


def _say_if_slow(config: RunConfig, quiet: bool) -> None:
    """Say that a run would be faster with compiled kernels, where its protocol has them and they are not installed."""
    from fedrank.core.optional import installed

    if not quiet and not installed("numba") and getattr(getattr(config, "compute", None), "kernels", None) == "auto":
        print(
            "fedrank: without Numba rankings run in pure JAX, on a CPU about fifteen times slower. "
            "Install it: pip install 'fedrank[fast]'",
            file=sys.stderr,
        )


def list_protocols(as_json: bool) -> None:
    """Print the table of protocols."""
    from fedrank.cli.terminal import print_json

    known = [method(name) for name in method_names()]
    if as_json:
        about = ("name", "task", "summary", "citation", "paper", "file", "crosses")
        print_json([{key: getattr(one, key) for key in about} for one in known])
        return
    from fedrank.cli.console import Console
    from fedrank.cli.terminal import table

    shown = table("name", "task", "paper", "what crosses", whole=("name", "task"))
    for one in sorted(known, key=lambda one: one.task):
        shown.add_row(one.name, one.task, one.paper, one.crosses)
    Console().print(shown)


def _listener(quiet: bool, name: str = "", track: Sequence[str] = ()):
    from fedrank.cli.terminal import listener

    shown = listener(quiet, name)
    if not track:
        return shown
    from fedrank.engine.tracking import track as tracking

    return tracking(track, shown)


def _free(folder: Path) -> Path:
    """The folder, or the first of folder-2, folder-3, … that is not taken."""
    candidate, number = folder, 1
    while candidate.exists() and any(candidate.iterdir()):
        number += 1
        candidate = folder.with_name(f"{folder.name}-{number}")
    return candidate


def _report(folder: Path) -> Path | None:
    from fedrank.cli.report import unless_missing
    from fedrank.report.page import write_page

    return unless_missing(lambda: write_page(folder), f"fedrank report {folder}")


def _show(folder: Path, as_json: bool) -> None:
    from fedrank.cli.report import show
    from fedrank.report.load import load

    run = load(folder)
    show(run, _report(folder), as_json=as_json)


#: The commands with the settings of the default protocol, for whoever lists commands.
any_run, any_sweep = (command_of(name, DEFAULT_PROTOCOL) for name in ("run", "sweep"))
