"""The ``fedrank`` command: what is asked for goes to the layer that does it, errors become one line each.

Exit status: 0 done; 1 a command failed and said why; 2 wrong usage; 130 stopped by Ctrl-C.

Help has no frames: a line or two for each command and setting, grouped by the tables of ``config.toml``. The frames
that the library draws by default take twice the lines, and a third of the time of ``fedrank --help``.
"""

from __future__ import annotations

import codecs
import contextlib
import gc
import io
import itertools
import sys
import textwrap
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

import cyclopts
from cyclopts import App, Parameter
from cyclopts.help.formatters.plain import PlainFormatter
from typing_extensions import override

from fedrank import __version__
from fedrank.cli.terminal import AsJson
from fedrank.core.errors import FedrankError, FedrankWarning, report_crashes
from fedrank.core.programs import keep_programs_of_commands
from fedrank.core.words import printable

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


app = App(
    name="fedrank",
    help="Learn to rank and to recommend from what people do, without collecting what they do.",
    version=__version__,
    help_formatter=HelpText(),
    help_format="plaintext",  # help texts have no markup, and its reader takes a third of the time of --help
    suppress_keyboard_interrupt=False,  # a stopped run says how it goes on
    default_parameter=Parameter(consume_multiple=1),  # a list takes its values at once: --network.widths 64 32
)
#: Flags without a value, after which a protocol or a file may stand.
_SWITCHES = ("-q", "--quiet", "--json")
#: Commands that keep what they have done: started again, they go on. A run says itself how it goes on.
_GO_ON = ("sweep", "leaderboard", "reproduce", "coordinate")
#: What each command does, in a sentence.
_SUMMARIES: dict[str, str] = {}
# Commands are imported when they are called; the sentences stand here so that --help imports none of them.
for _name, _path, _help in (
    ("demo", "fedrank.cli.demo:app", "Train a ranker from simulated clicks; or (demo web) a search page that learns."),
    (
        "run",
        "fedrank.cli.experiment:any_run",
        "Train with simulated users and leave a directory with results and a report.",
    ),
    ("resume", "fedrank.cli.experiment:resume", "Go on with a run that was stopped or killed."),
    ("sweep", "fedrank.cli.experiment:any_sweep", "Run every combination of some settings and compare the results."),
    (
        "reproduce",
        "fedrank.cli.reproduce:reproduce",
        "Run a paper's tables and figures and lay its numbers beside ours.",
    ),
    (
        "leaderboard",
        "fedrank.cli.leaderboard:app",
        "Run every method that ranks under the same budgets, and lay them beside each other.",
    ),
    ("report", "fedrank.cli.report:report", "Write a run's page and figures again and print its results."),
    (
        "compare",
        "fedrank.cli.report:compare",
        "Lay runs side by side: final values, differences with intervals, curves.",
    ),
    ("silos", "fedrank.cli.silos:app", "Coefficients of tables that lie at several silos; whose models help whom."),
    ("slates", "fedrank.cli.slates:app", "Estimate another slate policy's earnings from platforms' logs."),
    ("rank", "fedrank.cli.models:rank", "Rank the documents of queries with a trained model: a TREC run."),
    ("evaluate", "fedrank.cli.models:evaluate", "Measure what a trained model is worth on labelled data."),
    ("export", "fedrank.cli.models:export", "Write a trained model for other libraries: ONNX or safetensors."),
    ("serve", "fedrank.cli.platforms:serve_app", "Be a hub, or (serve platform) one of platforms that share users."),
    ("hub", "fedrank.cli.hub:app", "Operate a hub: credentials that devices enrol with, backups, the end of a halt."),
    ("coordinate", "fedrank.cli.platforms:coordinate_app", "Coordinate platforms that share users."),
    ("simulate-visits", "fedrank.cli.platforms:simulate_visits", "Simulated users visit platforms on this machine."),
    (
        "simulate-fleet",
        "fedrank.cli.deploy:simulate_fleet",
        "Start many devices on this machine, with simulated people, that talk to a hub.",
    ),
    ("search", "fedrank.cli.owners:search", "Search the documents of all owners of a federation."),
    (
        "owner",
        "fedrank.cli.owners:owner_app",
        "Manage an owner: its documents, who may search them, its card.",
    ),
    (
        "replay",
        "fedrank.cli.deploy:replay",
        "Make a hub's model again from its log, to prove it or to leave devices out.",
    ),
    ("log", "fedrank.cli.log:log", "Show a hub's public log of terms and models, and verify it."),
    ("witness", "fedrank.cli.log:witness", "Check that hubs' logs only grow, and are the same for everyone."),
    ("new", "fedrank.cli.new:app", "Write the beginning of a package of your own, such as a protocol."),
    ("completion", "fedrank.cli.completion:completion", "Print a script that completes commands and flags in a shell."),
    ("cite", "fedrank.cli.report:cite", "Print the BibTeX of what a run used."),
    ("clicks", "fedrank.cli.clicks:app", "Fit models of how people click to a log, and judge them."),
    ("data", "fedrank.cli.data:app", "List, show, get and check data sets."),
    (
        "attack",
        "fedrank.cli.attack:app",
        "Attack what is promised to be private, and print measured beside promised.",
    ),
    ("plan", "fedrank.cli.plan:plan", "Plan what devices can learn with one ε over all of a user's training."),
    (
        "audit",
        "fedrank.cli.audit:audit",
        "Attack mechanisms of privacy and print what is shown beside what is promised.",
    ),
    (
        "privacy",
        "fedrank.cli.privacy:app",
        "Privacy calculators: ε from p, p from ε, the published table; the size of sketches.",
    ),
):
    app.command(_path, name=_name, help=_help)
    _SUMMARIES[_name] = _help


def _settings_of_file(command: App, commands: tuple[str, ...], arguments: cyclopts.ArgumentCollection) -> None:
    """A hub's settings, in its folder, fill in for the flags that are not there."""
    if commands != ("serve",):
        return
    from fedrank.cli.deploy import settings_of

    source = [
        token.value for argument in arguments if argument.field_info.name == "folder" for token in argument.tokens
    ]
    cyclopts.config.Dict({"serve": settings_of(*source)})(command, commands, arguments)


app.config = (_settings_of_file,)


@app.command
def protocols(*, as_json: AsJson = False) -> None:
    """List the protocols: the task, the paper, what crosses.

    Args:
        as_json: Print JSON for machines, with each protocol's file.
    """
    from fedrank.cli.experiment import list_protocols

    list_protocols(as_json)


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
    from fedrank.cli.experiment import base_of, command_of
    from fedrank.engine.settings import DEFAULT_PROTOCOL, parts_in

    source = tokens[1] if len(tokens) > 1 and not tokens[1].startswith("-") else DEFAULT_PROTOCOL
    name, flags = tokens[0], _flags_in(tokens)
    base = base_of(source, flags, name)
    command = command_of(name, base, [flag for flag, _ in flags])  # first: what is refused leaves the commands alone
    parts = parts_in(base)
    tokens = [_part_named(token, parts) for token in tokens]
    del app[name]
    app.command(command, name=name, help=_SUMMARIES[name])
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
            tokens = _offer_settings(tokens)
            app(tokens, exit_on_error=False, print_error=True, result_action="return_value")
    except cyclopts.CycloptsError:
        return 2  # already printed, with what was probably meant
    except FedrankError as error:
        print(f"fedrank: error: {printable(str(error), lines=True)}", file=sys.stderr)
        return 1
    except KeyboardInterrupt as stop:
        kept = "; the same command goes on where it was" if tokens and tokens[0] in _GO_ON else ""
        print(f"fedrank: {str(stop) or f'stopped{kept}'}", file=sys.stderr)
        return 130
    except BrokenPipeError:  # the reader of our output has gone, as with | head
        sys.stderr.close()
        return 0
    return 0
