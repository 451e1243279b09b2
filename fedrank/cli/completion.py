"""``fedrank completion``: what a shell needs to complete commands and flags."""

from __future__ import annotations

import sys
from typing import Literal

#: Places where each shell looks for completions by itself, and commands that load one at once.
_HOW = {
    "bash": "fedrank completion bash > ~/.local/share/bash-completion/completions/fedrank\n"
    "or, for this shell only: source <(fedrank completion bash)",
    "zsh": "fedrank completion zsh > ~/.zfunc/_fedrank\n"
    "with these lines in ~/.zshrc: fpath+=~/.zfunc; autoload -Uz compinit && compinit",
    "fish": "fedrank completion fish > ~/.config/fish/completions/fedrank.fish",
}


def completion(shell: Literal["bash", "zsh", "fish"], /) -> None:
    """Print the script that completes commands and flags in a shell; at a terminal, how to keep it as well.

    Args:
        shell: The shell.
    """
    from fedrank.cli.main import app

    print(app.generate_completion(prog_name="fedrank", shell=shell))
    if sys.stdout.isatty():
        print(f"\nTo keep it:\n{_HOW[shell]}", file=sys.stderr)
