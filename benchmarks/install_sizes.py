"""Megabytes that the package takes on disk, by distribution, and what each extra adds.

``python -m benchmarks.install_sizes`` makes an empty environment for the core, and one for each extra, from this
checkout by pip (network; a minute or two each).
Megabytes are 10⁶ bytes of files in ``site-packages``, bytecode included, without pip and setuptools.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from importlib.metadata import distributions
from pathlib import Path

#: Distributions that hold code of another one, in its row of the table.
WITH = {"llvmlite": "numba", "arro3-core": "arro3-io"}
#: Extras that are measured where none are named.
EXTRAS = ("jax", "sklearn", "png", "texts", "search", "serve", "lambdamart")
#: Distributions below this many megabytes share a row.
SMALL = 10


def install(extra: str) -> dict[str, float]:
    """Megabytes of each distribution in an environment with an extra, or, of ``""``, the core alone."""
    source = f"{Path(__file__).parent.parent}{f'[{extra}]' if extra else ''}"
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        pip = [f"{folder}/bin/python", "-m", "pip"]
        subprocess.run([*pip, "install", "--quiet", "--no-cache-dir", source], check=True)
        subprocess.run([*pip, "uninstall", "--quiet", "--yes", "setuptools", "pip"], check=True)
        (site,) = Path(folder).glob("lib/python*/site-packages")
        sizes: dict[str, float] = {}
        for one in distributions(path=[str(site)]):
            files = {Path(str(one.locate_file(file))) for file in one.files or ()}
            found = sum(file.stat().st_size for file in files if file.is_file()) / 1e6
            name = WITH.get(one.name.lower(), one.name.lower())
            sizes[name] = sizes.get(name, 0.0) + found
        shutil.rmtree(folder, ignore_errors=True)
        Path(folder).mkdir()
    return sizes


def main() -> None:
    """Print the table, or with ``--json`` all distributions."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("extras", nargs="*", default=list(EXTRAS), help="extras to measure")
    parser.add_argument("--json", action="store_true", help="sizes of all distributions as JSON")
    given = parser.parse_args()
    core = install("")
    whole = sum(core.values())
    added = {extra: sum(install(extra).values()) - whole for extra in given.extras}
    if given.json:
        print(json.dumps({"core": core, "extras": added}, indent=2))
        return
    large = sorted(((size, name) for name, size in core.items() if size >= SMALL), reverse=True)
    for size, name in large:
        print(f"| {name} | {size:.0f} |")
    print(f"| all else | {whole - sum(size for size, _ in large):.0f} |")
    print(f"| **fedrank without extras** | **{whole:.0f}** |")
    for extra, size in added.items():
        print(f"| `{extra}` adds | {size:.0f} |")


if __name__ == "__main__":
    main()
