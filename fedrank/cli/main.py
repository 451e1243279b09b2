"""The ``fedrank`` command: what is asked for goes to the layer that does it, errors become one line each.

Exit status: 0 done; 1 a command failed and said why; 2 wrong usage; 130 stopped by Ctrl-C.

Help has no frames: a line or two for each command and setting, grouped by the tables of ``config.toml``. The frames
that the library draws by default take twice the lines, and a third of the time of ``fedrank --help``.

Commands and flags that have new names are understood by their old ones until the next release.
"""

from __future__ import annotations

import codecs
import contextlib
import gc
import inspect
import io
import itertools
import sys
import textwrap
import warnings
from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from typing import Any, Literal

import cyclopts
from cyclopts import App, Group, Parameter
from cyclopts.help.formatters.plain import PlainFormatter
from typing_extensions import override

from fedrank import __version__
from fedrank.core import registry
from fedrank.core.errors import ConfigError, FedrankError, FedrankWarning, report_crashes
from fedrank.core.programs import keep_programs_of_commands
from fedrank.core.words import printable

#: The release that no longer knows the old names.
GONE_IN = "0.3"

#: Old name → new name. A flag stands after its command's new name.
NEW_NAMES = {
    "attack": "privacy attack",
    "audit": "privacy audit",
    "cite": "report --cite",
    "clicks": "data clicks",
    "clicks replay": "reproduce aol4foltr",
    "data clicks replay": "reproduce aol4foltr",
    "coordinate": "slates coordinate",
    "coordinate platforms": "slates coordinate",
    "leaderboard": "reproduce leaderboard",
    "log": "hub log",
    "new protocol": "new",
    "owner": "search owner",
    "owner card": "search owner serve",
    "owner statistics": "search statistics",
    "plan": "privacy plan",
    "protocols": "run --list",
    "replay": "hub replay",
    "search": "search ask",
    "serve": "hub serve",
    "serve broker": "search broker",
    "serve platform": "slates serve",
    "serve portal": "search portal",
    "serve relay": "hub relay",
    "serve search": "search owner serve",
    "silos glm": "silos analyse",
    "silos survival": "silos analyse",
    "simulate-fleet": "hub simulate",
    "simulate-visits": "slates simulate",
    "slates evaluate-logged": "slates evaluate",
    "witness": "hub witness",
    "data clicks fit --model": "data clicks fit --models",
    "export --silo": "export --party",
    "hub relay --seconds": "hub relay --batch-seconds",
    "hub serve --relay": "hub serve --collect",
    "hub simulate --out": "hub simulate --keep",
    "hub simulate --relay": "hub simulate --through",
    "hub simulate --share": "hub simulate --own-queries",
    "privacy attack links --mode": "privacy attack links --modes",
    "privacy attack sketch --mode": "privacy attack sketch --modes",
    "reproduce leaderboard --engine": "reproduce leaderboard --executor",
    "rank --silo": "rank --party",
    "search ask --fetch": "search ask --open",
    "silos compare --exclude": "silos compare --without",
    "silos compare --model": "silos compare --save-model",
    "sweep --engine": "sweep --executor",
}
#: Values of flags that are gone, and what takes their place.
GONE_VALUES = {
    ("--sketch.mode", "per-query"): "take publish-once, which finds more at the same ε",
    ("--sketch.mode", "paper"): "it is the protocol silo-sketch-2021 of fedrank-zoo",
    ("--slates.mode", "published"): "it is the protocol vertical-slate-2024 of fedrank-zoo, which has --slates.faults",
}


def use_new_names(tokens: list[str]) -> list[str]:
    """A command line with old names replaced; a line on stderr says each new name.

    Args:
        tokens: The command line, without the program's name.

    Raises:
        ConfigError: A value of a flag is gone; says what takes its place.
    """
    for (flag, value), instead in GONE_VALUES.items():
        if f"{flag}={value}" in tokens or (flag, value) in pairwise(tokens):
            raise ConfigError(f"{flag} {value} is gone: {instead}.")
    tokens = list(tokens)
    _refuse_missing(tokens)
    for length in (2, 1):
        old = " ".join(tokens[:length])
        if old in NEW_NAMES and not _is_new(tokens):
            tokens[:length] = NEW_NAMES[old].split()
            _say(old, NEW_NAMES[old])
            _refuse_missing(tokens)
            break
    for old, new in NEW_NAMES.items():
        *command, flag = old.split()
        for place, token in enumerate(tokens if tokens[: len(command)] == command else ()):
            if flag.startswith("--") and token.partition("=")[0] == flag:
                tokens[place] = token.replace(flag, new.split()[-1], 1)
                _say(old, new)
    return tokens


#: Commands of ``fedrank-zoo``, their words with dots between: where it is missing, errors name it.
COMMANDS_OF_ZOO = (
    *("data.clicks.fit", "hub.simulate", "hub.witness", "privacy.mechanisms", "privacy.overview", "privacy.sketch"),
    *("reproduce", "reproduce.aol4foltr", "reproduce.leaderboard", "search.mcp", "silos.private", "silos.send"),
    "slates.evaluate",
    *(f"privacy.attack.{one}" for one in ("documents", "links", "records", "sketch", "slates")),
)


def _refuse_missing(tokens: list[str]) -> None:
    """Say where a command of ``fedrank-zoo`` comes from, if it is not installed."""
    names = [".".join(tokens[:length]) for length in (3, 2, 1)]
    if tokens[:2] == ["privacy", "attack"]:  # all below it are such
        names.append("privacy.attack.documents")
    for name in names:
        if name in COMMANDS_OF_ZOO and name not in registry.names("fedrank.commands"):
            raise ConfigError(
                f"'fedrank {' '.join(tokens[: name.count('.') + 1])}' is of fedrank-zoo, a distribution beside this "
                "one: pip install fedrank-zoo (in a clone: -e zoo)."
            )


def _is_new(tokens: list[str]) -> bool:
    """True if a name is meant as it is today: ``search`` was a command and is a group of commands."""
    if tokens[0] != "search":
        return False
    from fedrank.cli.search import app

    return len(tokens) == 1 or tokens[1] in app


def _say(old: str, new: str) -> None:
    print(f"fedrank: '{old}' is now '{new}'; version {GONE_IN} no longer knows the old name.", file=sys.stderr)


#: Characters of a line at most; of names before a sentence, where a line has room for a column: longer names reach
#: into it.
_WIDTH, _NAMES = 120, 22
#: Characters of a line from which on names stand in a column, where some are longer than a command's.
_ROOMY = 100
_NEGATIVE = (
    "A list takes its values one after the other: --KEY a b. --no-KEY or --TABLE.no-KEY switches off what is on; "
    "--empty-KEY or --TABLE.empty-KEY is an empty list."
)


class HelpText(PlainFormatter):
    """Prints ``--table.key  sentence [choices; default]``, table by table, and ``command  sentence``.

    The flags that switch something off (``--no-key``, ``--empty-key``) are described once, at the end, where there are
    tables.
    """

    @override
    def __call__(self, console: Any, options: Any, panel: Any) -> None:
        if panel.entries:
            lines = list(_lines(panel, min(console.width, _WIDTH)))
            console.print("\n".join(lines), highlight=False, markup=False, soft_wrap=True)


def _lines(panel: Any, width: int) -> Iterator[str]:
    tables: dict[str, list[Any]] = {"": []}
    for entry in panel.entries:
        flag = next(iter(entry.positive_names), "")
        tables.setdefault(flag[2:].rpartition(".")[0] if flag.startswith("--") else "", []).append(entry)
    of_commands = panel.format == "command"
    if of_commands:
        yield f"{panel.title}:"
    longest = max(len(_names(entry)) for entry in panel.entries)
    column = min(longest, _NAMES) if width >= _ROOMY or of_commands else 0
    for table, entries in tables.items():
        if table:
            yield f"[{table}]"
        yield from (_describe_entry(entry, column, width) for entry in entries)
    if any("." in next(iter(entry.negative_names), "") for entry in panel.entries):
        yield textwrap.fill(_NEGATIVE, width)


def _names(entry: Any) -> str:
    """The names of a command or the flags of a setting; of an argument without flags, what stands for it."""
    return " ".join((*entry.positive_names, *entry.positive_shorts)) or str(entry.positional_label or "")


def _describe_entry(entry: Any, column: int, width: int) -> str:
    """The lines of one entry: its names, what it means, what it can be, and what it is where nothing is said."""
    said = " ".join(_words(entry.description))
    about = [*filter(None, (" | ".join(entry.choices or ()), _format_default(entry.default)))]
    sentence = f"{said} [{'; default '.join(about)}]" if about else said
    return textwrap.fill(
        f"{sentence} [required]" if entry.required and entry.positive_names else sentence,
        width,
        initial_indent=f"  {_names(entry):<{column}} " if column else f"  {_names(entry)}  ",
        subsequent_indent=" " * (column + 3 if column else 6),
        break_on_hyphens=False,
    )


def _words(description: Any) -> list[str]:
    """The words of a description, which is a string or text with a style."""
    text = getattr(description, "primary_renderable", description)
    return str(getattr(text, "plain", text) or "").split()


def _format_default(default: Any) -> str:
    """A default as one types it: the values of a list without quotes and brackets; a switch that is off has none."""
    said = "" if default is None else str(default)
    if said in ("True", "False"):
        return "on" if said == "True" else ""
    return said[1:-1].replace("'", "").removesuffix(",") if said.startswith("(") else said


_HELP = ("--help", "-h")
app = App(
    name="fedrank",
    help="Learn to rank and to recommend from what people do, without collecting what they do.",
    version=__version__,
    help_flags=_HELP,
    help_formatter=HelpText(),
    help_format="plaintext",  # help texts have no markup, and its reader takes a third of the time of --help
    suppress_keyboard_interrupt=False,  # a stopped run says how it goes on
    default_parameter=Parameter(consume_multiple=1),  # a list takes its values at once: --network.widths 64 32
)
#: Flags without a value, after which a protocol or a file may stand.
_SWITCHES = ("-q", "--quiet", "--json", "--list")
#: Commands that keep what they have done: started again, they go on. A run says itself how it goes on.
_GO_ON = ("sweep", "reproduce", "slates coordinate")
#: Commands by group: name, where it is (empty: at the entry point of that name, if its package is installed), what it
#: does. They are imported when they are called, --help imports none.
_COMMANDS = {
    "Train, judge": (
        ("run", "experiment:any_run", "Train with simulated users; leave a directory with results and a report."),
        ("resume", "experiment:resume", "Go on with a run that was stopped or killed."),
        ("sweep", "experiment:any_sweep", "Run every combination of some settings and compare the results."),
        ("compare", "report:compare", "Lay runs side by side: final values, differences with intervals, curves."),
        ("report", "report:report", "Write a run's page and figures again, print its results, or what to cite."),
        ("reproduce", "", "A paper's numbers beside ours; all methods that rank, under equal budgets."),
        ("demo", "experiment:app", "Train from simulated clicks; or (demo web) a search page that learns."),
    ),
    "Use a model": (
        (
            "learn-from-log",
            "models:learn_from_log",
            "Learn a ranker from a team's click log, and judge it off policy.",
        ),
        ("evaluate", "models:evaluate", "Measure what a trained model is worth on labelled data."),
        ("rank", "models:rank", "Rank the documents of queries with a trained model: a TREC run."),
        ("export", "models:export", "Write a trained model for other libraries: ONNX or safetensors."),
    ),
    "Data, own methods": (
        ("data", "data:app", "List, show, get and check data sets; models of how people click."),
        ("new", "experiment:new", "Write the beginning of a package with a protocol of your own."),
    ),
    "Privacy": (
        ("privacy", "privacy:app", "Attack what is promised, audit mechanisms, plan with one ε for a user's life."),
    ),
    "Real devices, silos and platforms": (
        ("hub", "hub:app", "Serve a hub that devices learn with, operate it, and verify its log."),
        ("search", "search:app", "Search the documents of several owners; be an owner, the broker, a portal."),
        ("silos", "silos:app", "Coefficients of tables that lie at several silos; whose models help whom."),
        ("slates", "slates:app", "Be one of platforms that share users; coordinate them, visit them."),
    ),
}


def _place_of_plug_in(name: str) -> str:
    """``module:name`` of a command that an installed package has, or nothing."""
    try:
        return registry.place("fedrank.commands", name)
    except ConfigError:  # two packages have one: whoever looks for a command below is told
        return ""


#: How each command is registered: its sentence and its group.
_SHOWN: dict[str, dict[str, Any]] = {}
for _title, _commands in _COMMANDS.items():
    _group = Group(_title, sort_key=len(_SHOWN))
    for _name, _place, _help in _commands:
        _SHOWN[_name] = {"name": _name, "help": _help, "group": _group, "sort_key": len(_SHOWN)}
        if _module := f"fedrank.cli.{_place}" if _place else _place_of_plug_in(_name):
            app.command(_module, **_SHOWN[_name])
app.command("fedrank.cli.main:completion", name="completion", show=False)
app["--help"].group = app["--version"].group = Group("Options", sort_key=len(_SHOWN))


def _settings_of_file(command: App, commands: tuple[str, ...], arguments: cyclopts.ArgumentCollection) -> None:
    """A hub's settings, in its folder, fill in for the flags that are not there."""
    if commands != ("hub", "serve"):
        return
    from fedrank.cli.deploy import settings_of

    given = {one.name: token.value or str(token.implicit_value) for one in arguments for token in one.tokens}
    named = [argument.name for argument in arguments if argument.field_info.name == "folder"]
    folder = given.pop(named[0], None) if named else None
    cyclopts.config.Dict({"hub": {"serve": settings_of(folder, given)}})(command, commands, arguments)


app.config = (_settings_of_file,)


def show_whole_texts(commands: Iterable[App]) -> None:
    """Have the help of commands begin with all that they say of themselves, not with their sentence in a list."""
    for command in commands:
        if command.default_command is not None:
            text = (inspect.getdoc(command.default_command) or "").partition("\nArgs:\n")[0]
            command.help = "\n\n".join(" ".join(part.split()) for part in text.split("\n\n"))


def _source_first(tokens: list[str]) -> list[str]:
    """The arguments of ``run`` or ``sweep`` with the protocol or the file, which decides on the flags, in front."""
    from fedrank.engine.methods import method_names

    name, *rest = tokens
    if not rest or not rest[0].startswith("-"):
        return tokens
    for place, (before, token) in enumerate(itertools.pairwise(rest), start=1):
        value = before.startswith("-") and before not in _SWITCHES and not before.startswith("--no-")
        if not value and (token.endswith(".toml") or token in method_names()):
            return [name, token, *rest[:place], *rest[place + 1 :]]
    return tokens


def _flags_in(tokens: list[str]) -> list[tuple[str, str]]:
    """The flags of a command line as dotted names of settings, each with its first value, if it has one."""
    found = []
    for token, after in itertools.zip_longest(tokens, tokens[1:], fillvalue=""):
        if token.startswith("--"):
            name, equals, value = token[2:].partition("=")
            found.append((name.replace("-", "_"), value if equals else after))
    return found


def _part_named(token: str, parts: Mapping[str, Any]) -> str:
    """``--privacy.name`` for the flag ``--privacy`` of a part."""
    flag, equals, value = token.partition("=")
    known = flag.startswith("--") and flag[2:].replace("-", "_") in parts
    return f"{flag}.name{equals}{value}" if known else token


def _offer_settings(tokens: list[str]) -> list[str]:
    """Give ``run`` and ``sweep`` the settings of the protocol that the command line names as their flags.

    Args:
        tokens: The command line.

    Returns:
        The same, the protocol or the file in front of the flags.
    """
    if not tokens or tokens[0] not in ("run", "sweep"):
        return tokens
    tokens = _source_first(tokens)
    from fedrank.cli.experiment import base_of, command_of, list_of_protocols
    from fedrank.engine.settings import DEFAULT_PROTOCOL, parts_in

    source = tokens[1] if len(tokens) > 1 and not tokens[1].startswith("-") else DEFAULT_PROTOCOL
    name, flags = tokens[0], _flags_in(tokens)
    base = base_of(source, flags, name)
    command = command_of(name, base, [flag for flag, _ in flags])  # first: what is refused leaves the commands alone
    parts = parts_in(base)
    tokens = [_part_named(token, parts) for token in tokens]
    shown = _SHOWN[name]
    if name == "run" and source not in tokens and set(tokens) & set(_HELP):
        shown = shown | {"help": f"{shown['help']}\n\n{list_of_protocols()}"}
    del app[name]
    app.command(command, **shown)
    return tokens


#: Characters of our texts for output that has no place for them; others become escapes such as \\u4e2d.
_PLAIN = str.maketrans(
    {"ε": "epsilon", "δ": "delta", "η": "eta", "β": "beta", "γ": "gamma", "σ": "sigma", "τ": "tau", "π": "pi"}
    | {"–": "-", "−": "-", "·": "*", "×": "x", "±": "+-", "…": "...", "’": "'", "“": '"', "”": '"', "•": "*", "─": "-"}
    | {"≤": "<=", "≥": ">=", "≠": "!=", "≈": "~", "→": "->", "∞": "inf", "²": "^2", "⁻": "^-", "━": "-"}
)


def _plain_text(error: UnicodeError) -> tuple[str, int]:
    """Replacement of characters that an encoding lacks, and where writing goes on."""
    assert isinstance(error, UnicodeEncodeError)
    text = error.object[error.start : error.end].translate(_PLAIN)
    return text.encode(error.encoding, "backslashreplace").decode(error.encoding), error.end


def _write_any_text() -> None:
    """Have output that is not UTF-8, such as a latin-1 terminal, take every text instead of ending in an error."""
    codecs.register_error("fedrank-plain", _plain_text)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and codecs.lookup(stream.encoding).name != "utf-8":
            stream.reconfigure(errors="fedrank-plain")


def main(tokens: list[str] | None = None) -> None:
    """Run a command line and leave the process with its exit status.

    Args:
        tokens: Arguments; those of the process by default.
    """
    report_crashes()
    _write_any_text()
    gc.set_threshold(20_000)  # importing makes many objects and frees none: looking for rings takes a tenth of its time
    keep_programs_of_commands()
    sys.exit(call(sys.argv[1:] if tokens is None else tokens))


@contextlib.contextmanager
def _warnings_in_a_line() -> Iterator[None]:
    """Have warnings of fedrank printed as errors are: in a line, without the place in the program."""
    with warnings.catch_warnings():
        before = warnings.showwarning

        def show(message, category, filename, lineno, file=None, line=None):
            if issubclass(category, FedrankWarning):
                print(f"fedrank: warning: {printable(str(message), lines=True)}", file=sys.stderr)
            else:
                before(message, category, filename, lineno, file, line)

        warnings.simplefilter("always", FedrankWarning)
        warnings.showwarning = show
        yield


def call(tokens: list[str]) -> int:
    """Run a command line.

    Args:
        tokens: Arguments.

    Returns:
        The exit status.
    """
    try:
        with _warnings_in_a_line():
            tokens = _offer_settings(use_new_names(tokens))
            if set(tokens) & set(_HELP) and tokens[0] != "run":
                show_whole_texts(app.parse_commands(tokens)[1][1:])
            app(tokens, exit_on_error=False, print_error=True, result_action="return_value")
    except cyclopts.CycloptsError:
        return 2  # already printed, with what was probably meant
    except FedrankError as error:
        print(f"fedrank: error: {printable(str(error), lines=True)}", file=sys.stderr)
        return 1
    except KeyboardInterrupt as stop:
        kept = "; the same command goes on where it was" if " ".join(tokens).startswith(_GO_ON) else ""
        print(f"fedrank: {str(stop) or f'stopped{kept}'}", file=sys.stderr)
        return 130
    except BrokenPipeError:  # the reader of our output has gone, as with | head
        sys.stderr.close()
        return 0
    return 0


def completion(shell: Literal["bash", "zsh", "fish"], /) -> None:
    """Print the script that completes commands and flags in a shell.

    Args:
        shell: The shell.
    """
    print(app.generate_completion(prog_name="fedrank", shell=shell))
