"""Text from other machines and files on a terminal: control characters and rich's markup take no effect."""

import json
import logging
import warnings
from pathlib import Path

import pytest
from search_worlds import search_world, write_federation

import fedrank.cli
import fedrank_zoo
from fedrank.cli.listen import log_to_stderr
from fedrank.cli.main import call
from fedrank.cli.terminal import print_json, table
from fedrank.core.errors import ConfigError, FedrankWarning
from fedrank.core.words import printable
from fedrank.deploy.search.federation import FederationFile, OwnerCard

#: Clears the screen, in two notations; sets the window's title; a line of its own; right to left; half a character.
HOSTILE = "wing \x1b[2J\x9b2J\x1b]0;owned\x07\rfedrank: all is well\n \u202egnp\u2069 \u2028 \ud800"


def harmless(text: str) -> bool:
    return all(char.isprintable() or char in "\n\t" for char in text)


def test_control_characters_are_shown_and_not_obeyed():
    assert printable("a\x1b[31mb\x7f\x9b") == r"a\x1b[31mb\x7f\x9b"
    assert printable(" a\n\tb\r\nc ") == "a b c"
    assert printable("a\r\nb\tc\rd", lines=True) == "a\nb\tc" + r"\rd"
    assert printable("Übergröße 東京 🙂 می‌خواهم") == "Übergröße 東京 🙂 می‌خواهم"
    for code in [*range(0xA0), 0x2028, 0x2029, *range(0x202A, 0x202F), *range(0x2066, 0x206A), 0xD800, 0xDFFF]:
        assert harmless(printable(f"x{chr(code)}y", lines=True)), hex(code)
    assert harmless(printable(HOSTILE)) and "\n" not in printable(HOSTILE)
    printable(HOSTILE).encode("utf-8")


def test_json_on_a_terminal_means_the_same_and_holds_nothing_to_obey(capsys):
    print_json({"title": HOSTILE, "östlich": "東京"})
    said = capsys.readouterr().out
    assert harmless(said) and "東京" in said
    assert json.loads(said)["title"] == HOSTILE


def test_names_in_tables_are_text(capsys):
    for name in [HOSTILE, "[/nothing]", "[link=https://evil.example]x[/link]", "[red", r"\[bold]", "[1, 2]"]:
        from fedrank.cli.terminal import Console

        drawn = table("silo", title="of files")
        drawn.add_row(name)
        Console(width=300, force_terminal=True, color_system=None).print(drawn)
        Console(width=300, force_terminal=True, color_system=None).print(f"- {name}", highlight=False)
        said = capsys.readouterr().out.replace("\x1b[1m", "").replace("\x1b[3m", "").replace("\x1b[0m", "")
        assert harmless(said)
        if "\x1b" not in name and not name.startswith("\\"):
            assert said.count(name) == 2


def test_own_markup_still_works(capsys):
    from fedrank.cli.terminal import Console

    Console(width=80).print("[bold]AUC[/bold] .712 \\[.6, .8]")
    assert capsys.readouterr().out == "AUC .712 [.6, .8]\n"


def test_no_command_draws_on_another_console():
    ours, zoo = (Path(one.__file__).parent for one in (fedrank.cli, fedrank_zoo))
    files = [path for path in (*ours.glob("*.py"), *zoo.glob("*/command.py")) if path.name != "console.py"]
    assert len(files) > 20
    assert not [path.name for path in files if "from rich.console import" in path.read_text("utf-8")]


def test_errors_warnings_and_log_lines_hold_nothing_to_obey(monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "federation.toml").touch()

    def fail(*_, **__):
        warnings.warn(HOSTILE, FedrankWarning, stacklevel=1)
        raise ConfigError(HOSTILE)

    monkeypatch.setattr("fedrank.deploy.search.federation.Federation", fail)
    assert call(["search", "ask", "wing"]) == 1
    said = capsys.readouterr().err
    assert harmless(said) and said.count(r"\x1b[2J") == 2
    log = logging.getLogger("fedrank")
    before = list(log.handlers)
    monkeypatch.setattr(log, "propagate", False)  # what pytest captures is sent between processes, as it is
    try:
        log_to_stderr()
        log.warning("refused: %s", HOSTILE)
    finally:
        for handler in set(log.handlers) - set(before):
            log.removeHandler(handler)
    said = capsys.readouterr().err
    assert harmless(said) and r"\x1b[2J" in said


def test_titles_and_texts_of_documents_hold_nothing_to_obey(tmp_path, capsys):
    pytest.importorskip("tantivy")
    wing = HOSTILE.replace("\ud800", "")  # no owner's index takes it
    with search_world(tmp_path, {"north": [("n1", wing, f"a wing\n{wing}")]}) as (asked, _, file):
        federation, asker = write_federation(tmp_path / "f.toml", file), tmp_path / "asker.toml"
        asker.write_text(f'name = "anna"\n[tokens]\nnorth = "{asked._tokens["north"]}"\n')
        words = ["search", "ask", "wing", "--federation", str(federation), "--asker", str(asker), "--open", "1"]
        capsys.readouterr()
        assert call(words) == 0
        said = capsys.readouterr().out
        assert harmless(said) and said.count(r"\x1b[2J") == 4
        assert len(said.split("\n\n")[0].splitlines()) == 2  # one hit, a line, and one for the piece of its text
        assert call([*words, "--json"]) == 0
        said = capsys.readouterr().out
        assert harmless(said) and json.loads(said)["hits"][0]["title"] == " ".join(wing.split())


def test_an_owner_is_not_named_with_control_characters():
    for name in ["north\x1b[2J", "no\nrth", "x" * 65]:
        with pytest.raises(ConfigError, match="printable"):
            FederationFile("test", (OwnerCard(name, "k"),))
