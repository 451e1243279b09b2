"""Programs run where some packages cannot be imported, as if they were not installed."""

import json
import subprocess
import sys
from pathlib import Path

#: What extras bring, as it is imported.
OPTIONAL = (
    "jax jaxlib optax sklearn resvg_py bm25s Stemmer lightgbm uvicorn httptools prometheus_client flwr gymnasium "
    "onnx torch"
)
COMMAND = "from fedrank.cli.main import main\nmain()"
_BLOCK = """
import importlib.util, sys
missing = set(sys.argv.pop(1).split(","))
find = importlib.util.find_spec
importlib.util.find_spec = lambda name, package=None: None if name in missing else find(name, package)

class Nothing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in missing:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Nothing())
"""


def command_without(packages, *arguments, program=COMMAND):
    """The command that runs a program, by default the command line, without these packages (names with spaces)."""
    path = f"sys.path.append({str(Path(__file__).parent)!r})\n"
    return [sys.executable, "-c", _BLOCK + path + program, packages.replace(" ", ","), *map(str, arguments)]


def run_without(packages, folder, *arguments, program=COMMAND):
    """The finished process of :func:`command_without` in a folder."""
    command = command_without(packages, *arguments, program=program)
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300)


_COMMANDS = """
import contextlib, io, json
from fedrank.cli.main import call
done = []
for words in json.loads(sys.argv[1]):
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()) as said:
        done.append((call(words), said.getvalue()))
print(json.dumps(done))
"""


def call_without(packages, folder, commands):
    """Exit statuses of several commands, one after another in one process, each with what it wrote to stderr."""
    done = run_without(packages, folder, json.dumps(commands), program=_COMMANDS)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
