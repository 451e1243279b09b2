"""``fedrank completion``: what a shell needs to complete commands and flags."""

from __future__ import annotations

from typing import Literal


def completion(shell: Literal["bash", "zsh", "fish"], /) -> None:
    """Print the script that completes commands and flags in a shell.

    Args:
        shell: The shell.
    """
    from fedrank.cli.main import app

    print(app.generate_completion(prog_name="fedrank", shell=shell))
