"""What the plug-ins are called is known without them, so that errors can say where they come from."""

import tomllib
from pathlib import Path

import pytest

from fedrank.cli import main
from fedrank.cli.experiment import base_of
from fedrank.core import registry
from fedrank.core.errors import ConfigError, UnknownNameError
from fedrank.engine.settings import from_dict
from fedrank.ranking.clicks.cascade import USERS

ROOT = Path(__file__).resolve().parents[2]


def test_the_commands_are_those_of_the_entry_points():
    project = tomllib.loads((ROOT / "zoo" / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert sorted(main.COMMANDS_OF_ZOO) == sorted(project["entry-points"]["fedrank.commands"])


def test_a_name_that_is_not_known_may_be_of_the_plug_ins(monkeypatch):
    with pytest.raises(UnknownNameError) as installed:
        registry.get("fedrank.protocols", "ifcaa")
    assert "fedrank-zoo" not in str(installed.value)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UnknownNameError, match="fedrank-zoo"):
        registry.get("fedrank.protocols", "ifcaa")
    for look_up in (lambda: USERS.get("dependent"), lambda: base_of("foltr-nez", [], "run")):
        with pytest.raises(UnknownNameError, match="fedrank-zoo"):
            look_up()
    for of, name in (("privacy", "server-noize"), ("server", "lyon")):
        with pytest.raises(UnknownNameError, match="fedrank-zoo"):
            from_dict({"protocol": "foltr-pdgd", of: {"name": name}})
    assert "fedrank-zoo" not in str(UnknownNameError("column", "lie", ["age"]))


@pytest.mark.parametrize(
    "command",
    [
        "search mcp --owner north",
        "hub witness",
        "witness",
        "privacy attack",
        "privacy attack links",
        "data clicks fit log.csv",
        "silos send north.csv",
        "reproduce foltr-es",
        "leaderboard",
    ],
)
def test_a_command_that_is_not_installed_is_no_other_one(command, monkeypatch):
    assert main.use_new_names(command.split())  # it is installed here
    monkeypatch.setattr(registry, "names", lambda group: [])
    with pytest.raises(ConfigError, match="fedrank-zoo"):
        main.use_new_names(command.split())


def test_other_commands_are_not_touched(monkeypatch):
    monkeypatch.setattr(registry, "names", lambda group: [])
    for command in ("search ask wings", "privacy epsilon", "hub serve hub", "run foltr-es"):
        assert main.use_new_names(command.split()) == command.split()
