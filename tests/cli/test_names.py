"""Names of commands and flags: few at the top, one meaning each, and old ones answered for one release."""

import re
from collections import defaultdict
from pathlib import Path

import pytest

from fedrank.cli.main import NEW_NAMES, app, call, use_new_names

BEFORE = [
    line
    for line in Path(__file__).with_name("commands_before.txt").read_text().splitlines()
    if not line.startswith("#")
]


def commands(group=app, path=()):
    """Every command and group of commands by its words."""
    for name in group:
        if not name.startswith("-"):
            yield (*path, name), group[name]
            yield from commands(group[name], (*path, name))


def flags(command):
    """Flags of a command, each with its type."""
    if command.default_command is None:
        return {}
    arguments = command.assemble_argument_collection()
    return {name: one.hint for one in arguments for name in one.names if name.startswith("--")}


@pytest.fixture(scope="module")
def now():
    """Every command by its words. Not found while tests are collected, which every worker does."""
    return dict(commands())


@pytest.fixture(scope="module")
def types(now):
    """Flags of every command, each with its type."""
    return {" ".join(words): flags(command) for words, command in now.items()}


def test_the_first_list_is_short_and_no_group_has_one_command_only(now):
    shown = [words[0] for words, command in now.items() if len(words) == 1 and command.show]
    assert len(shown) <= 18 and "run" in shown
    for words, command in now.items():
        below = [name for name in command if not name.startswith("-")]
        assert len(below) != 1 or command.default_command is not None, words


def test_every_command_of_the_last_release_is_answered(now, types, capsys):
    assert len(BEFORE) == 77  # the scenes for other clients are in sdk/conformance
    for old in BEFORE:
        words = [*old.split(), "word"] if old == "search" else old.split()
        tokens = use_new_names(words)
        said = capsys.readouterr().err
        command = [token for token in tokens if not token.startswith("-") and token != "word"]
        assert tuple(command) in now, old
        assert set(tokens) - {*command, "word"} <= set(types[" ".join(command)]), old
        if tokens == words:
            assert not said, old
        else:
            (new,) = re.findall(r"is now '([^']+)'", said)
            assert " ".join(tokens).startswith(new), old


def test_an_old_name_runs_the_new_command_with_its_arguments(capsys):
    assert call(["clicks", "list", "--json"]) == 0
    captured = capsys.readouterr()
    assert captured.out.startswith("[") and captured.err.startswith("fedrank: 'clicks' is now 'data clicks'")
    assert call(["serve", "relay", "--help"]) == 0
    assert "Usage: fedrank hub relay" in capsys.readouterr().out


def test_the_table_leads_to_what_there_is_and_from_what_there_is_not(now, types):
    for old, new in NEW_NAMES.items():
        *command, last = old.split()
        if not last.startswith("--"):
            assert tuple(old.split()) not in now or old == "search"
            assert tuple(word for word in new.split() if not word.startswith("--")) in now
            continue
        known = types[" ".join(command)]
        assert new.split()[:-1] == command and new.split()[-1] in known and last not in known, old


def test_a_new_name_is_left_alone(capsys):
    for line in ("search", "search --help", "search owner add north more.jsonl", "new my-idea", "slates evaluate x"):
        assert use_new_names(line.split()) == line.split()
    assert use_new_names(["silos", "compare", "t.csv", "--exclude=a"]) == ["silos", "compare", "t.csv", "--without=a"]
    assert capsys.readouterr().err.count("\n") == 1


def test_a_flag_has_one_kind_of_value_everywhere(types):
    kinds = defaultdict(set)
    for known in types.values():
        for name, hint in known.items():
            kinds[name].add(str(hint))
    for name in ("--json", "--quiet", "--example", "--allow-http"):
        assert len(kinds[name]) == 1 and "bool" in kinds[name].pop(), name
    for name in ("--out", "--certificate", "--key", "--ca", "--asker", "--federation", "--config"):
        assert all("Path" in hint for hint in kinds[name]), name
    for name in ("--seed", "--seeds", "--port", "--rounds"):
        assert all("int" in hint for hint in kinds[name]), name


def test_help_of_run_begins_with_the_protocols(capsys):
    assert call(["run", "--help"]) == 0
    said = capsys.readouterr().out
    assert said.index("foltr-es") < said.index("--rounds")
    starred = re.findall(r"^\* ([a-z-]+) ", said, flags=re.MULTILINE)
    assert len(starred) == len({*starred}) == 4 and "foltr-es" in starred


def test_every_command_has_help(now, capsys):
    for words in now:
        assert call([*words, "--help"]) == 0
        assert f"Usage: fedrank {' '.join(words)}" in capsys.readouterr().out
