"""``fedrank run``, ``resume``, ``sweep``, ``demo``: experiments from the command line."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from fedrank.core.errors import ConfigError
from fedrank.engine.settings import drop_rivals, from_dict, with_setting
from fedrank.engine.variations import parse_vary, read_sweep, variations
from fedrank.experiments.config import RunConfig

_RUNS = Path("runs")

Settings = Annotated[RunConfig, Parameter(name="*")]
AsJson = Annotated[bool, Parameter(name="--json", negative="")]
Quiet = Annotated[bool, Parameter(name=["--quiet", "-q"], negative="")]


def settings_in(file: str, given: Sequence[str] = (), command: str = "sweep") -> dict[str, Any]:
    """The settings of a run's or a sweep's file, checked.

    Args:
        file: The TOML file.
        given: Dotted names of the settings that the command line has: they also win over what the file says in another
            way, ``--rounds`` over its budget, ``--privacy.epsilon`` over its p.
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
    if "budget" in values:
        values.pop("rounds", None)  # a run's own file has both; the budget holds when clients change
    for key in given:
        drop_rivals(values, key)
    return values


def run(
    source: str = "foltr-es",
    /,
    *,
    config: Settings = RunConfig(),  # noqa: B008 - frozen
    out: Path | None = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Train with simulated users and leave a directory with the results and a report.

    Args:
        config: The experiment.
        source: A protocol (foltr-es), or a TOML file such as a run's config.toml; flags win over the file.
        out: The run's directory; by default a new one in runs, named after what the run is about.
        quiet: No progress.
        as_json: Print the results as JSON for machines.
    """
    from fedrank.experiments.run import run as run_experiment

    config = _named(config, source)
    folder = out or _free(_RUNS / _slug(config))
    run_experiment(config, folder, listener=_listener(quiet))
    _show(folder, as_json)


def resume(folder: Path, /, *, quiet: Quiet = False, as_json: AsJson = False) -> None:
    """Go on with a run that was stopped or killed.

    Args:
        folder: The run's directory.
        quiet: No progress.
        as_json: Print the results as JSON for machines.
    """
    from fedrank.experiments.run import resume as resume_experiment

    resume_experiment(folder, listener=_listener(quiet))
    _show(folder, as_json)


def sweep(
    source: str = "foltr-es",
    /,
    *,
    vary: list[str] | None = None,
    config: Settings = RunConfig(),  # noqa: B008 - frozen
    out: Path | None = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Run every combination of some settings and compare the results. Started again, it goes on where it was stopped.

    Args:
        source: A protocol (foltr-es), or a TOML file with a table [vary]; flags win over the file.
        config: What the experiments have in common.
        vary: A setting and its values, such as privacy.p=0.25,0.5,1; repeat it for combinations.
        out: Directory of the runs; by default one in runs, named after the file or what varies.
        quiet: No progress.
        as_json: Print the comparison as JSON for machines.
    """
    from fedrank.cli.report import compare
    from fedrank.engine.sweep import run_sweep

    lists, cases = parse_vary(vary or []), []
    if source.endswith(".toml"):
        _, in_file, cases = read_sweep(source)
        lists = lists or in_file
    todo = variations(_named(config, source), lists, cases)
    folder = out or _RUNS / ("sweep-" + (Path(source).stem if source.endswith(".toml") else "-".join(lists)))
    runs = run_sweep(todo, folder, listener=lambda name: _listener(quiet, name))
    for one in runs:
        _report(one)
    if len(runs) == 1:
        _show(runs[0], as_json)
    else:
        compare(*runs, out=folder, as_json=as_json)


def demo(*, out: Path | None = None, quiet: Quiet = False, as_json: AsJson = False) -> None:
    """Train a ranker from the clicks of 2,000 simulated devices on generated data; about a minute.

    Args:
        out: The run's directory; by default runs/demo (runs/demo-2, … if that is taken).
        quiet: No progress.
        as_json: Print the results as JSON for machines.
    """
    from fedrank.experiments.run import run as run_experiment
    from fedrank.ranking.config import Evaluation, FoltrESConfig

    folder = out or _free(_RUNS / "demo")
    run_experiment(FoltrESConfig(ranker="mlp", evaluation=Evaluation(every=5)), folder, listener=_listener(quiet))
    _show(folder, as_json)


def list_protocols(as_json: bool) -> None:
    """Print the table of protocols."""
    from fedrank.cli.terminal import print_json
    from fedrank.experiments.protocols import PROTOCOLS

    if as_json:
        print_json([{"name": e.name, "summary": e.summary, "citation": e.citation, **vars(e.obj)} for e in PROTOCOLS])
        return
    from rich.console import Console
    from rich.table import Table

    shown = Table("name", "paper", "file", "what crosses")
    for entry in PROTOCOLS:
        shown.add_row(entry.name, entry.obj.paper, entry.obj.file, entry.obj.crosses)
    Console().print(shown)


def _named(config: RunConfig, source: str) -> RunConfig:
    """The configuration with the protocol that the command names."""
    if source.endswith(".toml"):
        return config
    return with_setting(config, "protocol", source)


def _listener(quiet: bool, name: str = ""):
    from fedrank.cli.terminal import listener

    return listener(quiet, name)


def _slug(config: Any) -> str:
    from fedrank.core import plugins
    from fedrank.engine.config import RunConfig as Settings
    from fedrank.engine.methods import method

    if isinstance(config, Settings):
        return plugins.get("fedrank.tasks", method(config.protocol).task).folder_name(config)
    data = re.sub(r"[^a-z0-9]+", "-", Path(config.data).name.lower()).strip("-")
    if config.of_texts:
        return f"{config.protocol}-{data}-{config.sketch.mode}"
    if config.of_platforms:
        mode = "" if config.slates.mode == "corrected" else config.slates.mode
        return "-".join(filter(None, (config.protocol, config.world.preset, mode)))
    about = (config.silos.target, config.bandit.rule if config.protocol == "bandit-fedavg" else "")
    words = (re.sub(r"[^a-z0-9]+", "-", word.lower()).strip("-") for word in about)
    return "-".join(filter(None, (config.protocol, data, *words)))


def _free(folder: Path) -> Path:
    """The folder, or the first of folder-2, folder-3, … that is not taken."""
    candidate, number = folder, 1
    while candidate.exists() and any(candidate.iterdir()):
        number += 1
        candidate = folder.with_name(f"{folder.name}-{number}")
    return candidate


def _report(folder: Path) -> Path:
    from fedrank.report.page import write_page

    return write_page(folder)


def _show(folder: Path, as_json: bool) -> None:
    from fedrank.cli.report import show
    from fedrank.report.load import load

    run = load(folder)
    show(run, _report(folder), as_json=as_json)
