"""``fedrank new``: the beginning of a package with a protocol of one's own."""

from __future__ import annotations

import re
import string
from importlib import resources
from pathlib import Path

from fedrank.core.errors import ConfigError


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
