"""``fedrank run``, ``resume``, ``sweep``, ``demo`` and ``new``."""

# Annotations are the flags of commands that are made here: they are evaluated at once.
import dataclasses
import functools
import itertools
import re
import shutil
import string
import textwrap
from collections.abc import Callable, Sequence
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Literal, get_type_hints

from cyclopts import App, Parameter

from fedrank.cli.report import compare_runs, show
from fedrank.cli.terminal import AsJson, Quiet, Switch, listener, print_json
from fedrank.core import registry
from fedrank.core.errors import ConfigError, UnknownNameError
from fedrank.core.fields import fields_of, is_part
from fedrank.engine.methods import method, method_names, task_of
from fedrank.engine.settings import (
    DEFAULT_PROTOCOL,
    defaults,
    from_dict,
    make_room,
    named_in_errors,
    part_class,
    parts_in,
    parts_of,
    table_of,
)
from fedrank.engine.variations import parse_vary, read_sweep, variations

_RUNS = Path("runs")

Track = Annotated[list[str] | None, Parameter(negative="")]


def protocol_of(source: str) -> str:
    """The protocol that the first argument of ``run`` or ``sweep`` names: itself, or the one in a TOML file.

    Raises:
        UnknownNameError: It is neither a protocol nor a TOML file.
        ConfigError: The file cannot be read.
    """
    if source.endswith(".toml"):
        return str(read_sweep(source)[0].get("protocol", DEFAULT_PROTOCOL))
    if source not in method_names():
        raise UnknownNameError("protocol", source, method_names(), plug_ins=True)
    return source


def base_of(source: str, flags: Sequence[tuple[str, str]], command: str) -> Any:
    """The configuration that the flags of a command line change: of a protocol, or of a TOML file.

    A part that the flags name, or whose settings they name, stands in it with its defaults.

    Args:
        source: A protocol, or a TOML file.
        flags: Dotted name of each flag, with its first value if it has one: ``[("privacy", "laplace")]``.
        command: ``"run"`` takes one configuration, ``"sweep"`` several.

    Raises:
        ConfigError: No such file or protocol, an unknown setting, or a value out of range.
    """
    protocol = protocol_of(source)
    if source.endswith(".toml"):
        values, vary, cases = read_sweep(source)
        if command == "run" and (vary or cases):
            raise ConfigError(f"{source} is a sweep of several runs; run it with: fedrank sweep {source}")
        with named_in_errors(source):
            base = from_dict(values)
    else:
        base = defaults(protocol)
    for name, one in parts_in(base).items():
        names = [flag.partition(".")[2] for flag, _ in flags if flag.partition(".")[0] == name]
        given = {key: None for key in names if key and key != "name"}
        chosen = next((value for flag, value in flags if flag in (name, f"{name}.name")), None)
        now = getattr(getattr(base, "method", base), name)
        cls = part_class(given, chosen, now, parts_of(one), name)
        if cls is not type(now):
            base = from_dict({name: {"name": cls.name}}, base)
    return base


def flags_of(base: Any) -> type:
    """A dataclass with a configuration's settings, for the flags of a command: its values are the defaults."""
    fields: list[Any] = []
    for one, value, cls in fields_of(base):
        below: list[Any] = []
        if is_part(one):
            named = dataclasses.field(default=value.name, metadata={"help": one.metadata["help"]})
            below.append(("name", Literal[tuple(parts_of(one))], named))  # type: ignore[valid-type]
        if below or dataclasses.is_dataclass(value):
            inner = dataclasses.fields(flags_of(value)) if dataclasses.is_dataclass(value) else ()
            made = _flags(one.name, below + [(f.name, f.type, f) for f in inner])
            fields.append((one.name, made, dataclasses.field(default_factory=made)))
        else:
            hint = _type_hints(cls)[one.name]
            fields.append((one.name, hint, dataclasses.field(default=value, metadata=one.metadata)))
    return _flags(type(base).__name__, fields)


@functools.cache
def _type_hints(cls: type) -> dict[str, Any]:
    return get_type_hints(cls, include_extras=True)


def _flags(name: str, fields: list[Any]) -> type:
    fresh = [
        (key, kind, dataclasses.field(default=f.default, metadata=f.metadata))
        if f.default is not dataclasses.MISSING
        else (key, kind, dataclasses.field(default_factory=f.default_factory))
        for key, kind, f in fields
    ]
    # The command line takes classes of the standard library, where they seem to come from, for plain values.
    return dataclasses.make_dataclass(name, fresh, frozen=True, kw_only=True, namespace={"__module__": __name__})


def command_of(name: str, base: Any, given: Sequence[str] = ()) -> Callable[..., None]:
    """The command ``run`` or ``sweep`` with the settings of one configuration as its flags.

    Args:
        name: ``"run"`` or ``"sweep"``.
        base: The configuration that the flags change.
        given: Dotted names of the flags on the command line: they also win over what ``base`` says in another way,
            ``--rounds`` over a file's budget.
    """
    cls, protocol = flags_of(base), base.protocol
    known = Annotated[cls, Parameter(name="*")]
    default = cls()

    def make_config(flags: Any) -> Any:
        values = table_of(flags)
        make_room(values, given, base)
        return dataclasses.replace(from_dict(values, base.unchanged()), said=base.said | {*given})

    def run(
        source: str = DEFAULT_PROTOCOL,
        /,
        *,
        config: known = default,  # type: ignore[valid-type]
        out: Path | None = None,
        track: Track = None,
        list_: Annotated[bool, Parameter(name="--list", negative="")] = False,
        quiet: Quiet = False,
        as_json: AsJson = False,
    ) -> None:
        """Train with simulated users and leave a directory with the results and a report.

        Args:
            config: The experiment.
            source: A protocol (see --list), or a TOML file such as a run's config.toml; flags win over it.
            out: The run's directory; by default a new one in runs, named after what the run is about.
            track: Write measures while the run goes on: csv; tensorboard and mlflow are of fedrank-zoo.
            list_: Run nothing, list the protocols; with --json also their papers, files and what crosses.
        """
        if list_:
            list_protocols(as_json)
            return
        from fedrank.engine.run import run_experiment

        experiment = make_config(config)
        folder = out or _free(_RUNS / task_of(protocol).folder_name(experiment))
        run_experiment(experiment, folder, listener=_listener(quiet, track=track or ()))
        _show(folder, as_json)

    def sweep(
        source: str = DEFAULT_PROTOCOL,
        /,
        *,
        vary: list[str] | None = None,
        search: str = "grid",
        trials: int = 20,
        measure: str = "",
        minimise: Switch = False,
        config: known = default,  # type: ignore[valid-type]
        executor: str = "here",
        workers: int = 0,
        address: str = "",
        out: Path | None = None,
        track: Track = None,
        quiet: Quiet = False,
        as_json: AsJson = False,
    ) -> None:
        """Run every combination of some settings and compare the results; started again, it goes on.

        Args:
            source: A protocol (see fedrank run --list), or a TOML file with a table [vary]; flags win over the file.
            config: What the experiments have in common.
            vary: A setting and its values, such as privacy.p=0.25,0.5,1, or several of them for combinations; with
                --search optuna also a range, such as sigma=0.001..0.1:log or clients=10..50.
            search: grid: run all combinations; optuna (fedrank-zoo): let Optuna choose by what they bring.
            trials: optuna: number of runs in all.
            measure: optuna: what is to be best, such as "vali: nDCG(dcg='exp-log2')@10"; by default the first
                validation measure. The test part is shown for the best run only.
            minimise: optuna: less is better.
            executor: Who computes the grid: this process, one run after the other (here), processes of this machine, or
                a cluster of dask or ray (fedrank-zoo).
            workers: Processes on this machine; 0: one a processor.
            address: Of a cluster of dask or ray that runs already.
            out: Directory of the runs; by default one in runs, named after the file or what varies.
            track: Write measures of each run while it goes on: csv; tensorboard and mlflow are of fedrank-zoo.
        """
        from fedrank.engine.executors import executor as chosen
        from fedrank.engine.sweep import run_sweep

        if executor != "here" and (search != "grid" or track):
            what = f"--search {search} chooses a run by those before it" if search != "grid" else "--track follows runs"
            raise ConfigError(f"{what} in this process; leave --executor {executor} out.")
        if search != "grid":
            search_settings = registry.get("fedrank.searches", search)
            place = out or _RUNS / f"search-{Path(source).stem if source.endswith('.toml') else protocol}"
            best = search_settings(
                make_config(config),
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
        todo = variations(make_config(config), lists, cases)
        folder = out or _RUNS / ("sweep-" + (Path(source).stem if source.endswith(".toml") else "-".join(lists)))
        with chosen(executor, workers, address) as computing:
            runs = run_sweep(
                todo, folder, listener=lambda name: _listener(quiet, name, track or ()), executor=computing
            )
        if len(runs) == 1:
            _show(runs[0], as_json)
            return
        for one in runs:
            _report(one)
        compare_runs(runs, folder, as_json, pool=True)

    return {"run": run, "sweep": sweep}[name]


def resume(folder: Path, /, *, track: Track = None, quiet: Quiet = False, as_json: AsJson = False) -> None:
    """Go on with a run that was stopped or killed.

    Args:
        folder: The run's directory.
        track: Write measures while the run goes on, as --track of run; by default what followed it before.
    """
    from fedrank.engine.run import resume_experiment
    from fedrank.engine.tracking import tracked_before

    resume_experiment(folder, listener=_listener(quiet, track=tracked_before(folder) if track is None else track))
    _show(folder, as_json)


def demo(*, out: Path | None = None, quiet: Quiet = False, as_json: AsJson = False) -> None:
    """Train a ranker from the clicks of 200,000 simulated devices, one privatised bit each: about three minutes.

    Queries and clicks are generated. Each device takes part once; ε = 1 of all that its user does.

    Args:
        out: The run's directory; by default runs/demo (runs/demo-2, … if that is taken).
    """
    from fedrank.engine.run import run_experiment

    folder = out or _free(_RUNS / "demo")
    config = from_dict({"ranker": "mlp", "evaluation": {"every": 2}})
    run_experiment(config, folder, listener=_listener(quiet))
    _show(folder, as_json)


def _protocols() -> list[Any]:
    """All protocols by task, those that are recommended first."""
    return sorted(map(method, method_names()), key=lambda one: (one.task, not one.recommended))


def list_of_protocols() -> str:
    """The protocols for a help text: what each does, by task."""
    width = min(shutil.get_terminal_size().columns, 120)
    lines = textwrap.wrap("Protocols; * is recommended for its task. fedrank run PROTOCOL --help has settings.", width)
    for task, some in itertools.groupby(_protocols(), key=lambda one: one.task):
        lines += [f"[{task}]"]
        for one in some:
            name = f"{'* ' if one.recommended else '  '}{one.name:<17} "
            lines += [textwrap.fill(one.summary, width, initial_indent=name, subsequent_indent=" " * len(name))]
    return "\n".join(lines)


def list_protocols(as_json: bool) -> None:
    """Print the protocols; as JSON with papers, files and what crosses."""
    if as_json:
        about = ("name", "task", "summary", "citation", "paper", "file", "crosses", "recommended")
        print_json([{key: getattr(one, key) for key in about} for one in _protocols()])
        return
    print(list_of_protocols())


def _listener(quiet: bool, name: str = "", track: Sequence[str] = ()):
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
    from fedrank.report.page import write_page

    return write_page(folder)


def _show(folder: Path, as_json: bool) -> None:
    from fedrank.report.load import load

    show(load(folder), _report(folder), as_json=as_json)


def __getattr__(name: str) -> Callable[..., None]:
    """The commands with the settings of the default protocol, for whoever lists commands; others do not import it."""
    if name not in ("any_run", "any_sweep"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    made = globals()[name] = command_of(name.removeprefix("any_"), defaults(DEFAULT_PROTOCOL))  # made once
    return made


app = App(name="demo")
app.default(demo)


@app.command
def web(*, port: int = 8780, browser: Switch = False) -> None:
    """A search page that learns from its visitors, most of them simulated, and shows what leaves the browser.

    A hub and its page are served on this machine only, until Ctrl-C; what was learnt is gone with it. The page searches
    the documentation of Python's standard library, as the running interpreter has it.

    Args:
        port: Port; 0: any that is free.
        browser: Open the page in a browser.
    """
    import webbrowser

    from fedrank.deploy.demo import run_demo

    def ready(url: str) -> None:
        print(f"page  {url}/", f"hub   {url}/status", "Ctrl-C ends it.", sep="\n", flush=True)
        if browser:
            webbrowser.open(f"{url}/")

    run_demo(port, ready)


def new(name: str, /, *, out: Path | None = None) -> None:
    """Write a package with a protocol that runs: one file, a test, a pyproject.toml.

    Args:
        name: Its name, in lower case with dashes, such as my-idea.
        out: The package's folder; by default one of that name here.
    """
    if not re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", name):
        raise ConfigError(f"a protocol's name is lower-case words joined by dashes, such as my-idea; got {name!r}.")
    module, method, folder = name.replace("-", "_"), name.title().replace("-", ""), out or Path(name)
    if folder.exists() and any(folder.iterdir()):
        raise ConfigError(f"{folder}: is not empty. Name another folder with --out.")
    files = {
        folder / f"{module}.py": "protocol.py.txt",
        folder / "pyproject.toml": "pyproject.toml.txt",
        folder / "tests" / f"test_{module}.py": "test.py.txt",
    }
    for path, template in files.items():
        text = resources.files("fedrank.cli").joinpath("template", template).read_text(encoding="utf-8")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(string.Template(text).substitute(name=name, module=module, method=method), encoding="utf-8")
        print(path)
    print(f"Next: pip install -e {folder} && fedrank run {name} --clients 20 --rounds 20")
