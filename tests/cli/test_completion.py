"""The scripts of ``fedrank completion`` are ones that their shells take, and they know the commands."""

import shutil
import subprocess
import sys

import pytest

from fedrank.cli.main import app, call


def script(shell, capsys):
    assert call(["completion", shell]) == 0
    return capsys.readouterr().out


def commands():
    return {name for name in app if not name.startswith("-") and app[name].show}


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_script_knows_every_command_and_a_runs_flags(shell, capsys):
    text = script(shell, capsys)
    assert {name for name in commands() if name not in text} == set()
    assert "fraction" in text and "privacy.epsilon-user" in text


@pytest.mark.parametrize("shell", [shell for shell in ("bash", "zsh", "fish") if shutil.which(shell)])
def test_a_shell_takes_its_script(shell, capsys, tmp_path):
    path = tmp_path / "script"
    path.write_text(script(shell, capsys))
    subprocess.run([shell, "-n", path], check=True, timeout=20)


def test_bash_completes_the_beginning_of_a_command(capsys, tmp_path):
    path = tmp_path / "script"
    path.write_text(script("bash", capsys))
    asked = 'source "$0"; COMP_WORDS=(fedrank repr); COMP_CWORD=1; _fedrank fedrank repr fedrank; echo $COMPREPLY'
    done = subprocess.run(["bash", "-c", asked, path], capture_output=True, text=True, timeout=20, check=True)
    assert done.stdout.split() == ["reproduce"]


def test_another_shell_is_refused(capsys):
    assert call(["completion", "tcsh"]) == 2
    assert "fish" in capsys.readouterr().err


def test_it_is_found_by_the_command_line():
    done = subprocess.run([sys.executable, "-m", "fedrank", "completion", "--help"], capture_output=True, text=True)
    assert done.returncode == 0 and "fish" in done.stdout
