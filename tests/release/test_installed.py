"""The wheel, installed outside the clone into empty environments, does what the README says.

Needs a package index that pip can reach. Each environment is tried on the oldest and the newest Python of this machine
(``FEDRANK_PYTHONS`` names further ones), and leaves a table of commands, times and sizes in ``dist/release/``.
"""

import itertools
import json
import re
import shlex
import subprocess

import pytest
from releases import ROOT, Environment, build, chosen_python

#: Commands that run until they are stopped, or talk to one that does.
SERVERS = {"hub", "search", "slates"}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    return build(ROOT, tmp_path_factory.mktemp("release"))


def readme_commands():
    """The commands that the README shows, each as typed, without comments."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    shown = []
    for block in re.findall(r"^ *```(?:console|sh|bash)\n(.*?)^ *```", text, flags=re.MULTILINE | re.DOTALL):
        for line in re.sub(r"\\\n", " ", block).splitlines():
            if line.strip().startswith("$ "):
                shown += [part.strip() for part in re.split(r"&&|;", re.sub(r"\s#.*", "", line.strip()[2:]))]
    return list(dict.fromkeys(shown))


def why_not(arguments, data_here, work):
    """Why a command of the README is not run here; None if it is.

    Args:
        arguments: The command, split.
        data_here: Names of the data sets of the catalogue, and whether each is on this machine.
        work: The folder that it would run in.
    """
    if arguments[0] != "fedrank":
        return "no command of fedrank"
    if arguments[1:2] == ["reproduce"]:
        return "every reproduction is run in part, below"
    if SERVERS & set(arguments[1:2]):
        return "a server, or what talks to one"
    for flag, value in itertools.pairwise(arguments):
        if flag == "--data" and value in data_here and not data_here[value]:
            return f"the data set {value} is not on this machine"
        if flag == "--data" and value not in data_here and not (work / value).exists():
            return "the reader's own data"
    return None


def test_commands_are_read_as_they_are_typed():
    shown = readme_commands()
    assert len(shown) > 3 and not [command for command in shown if "#" in command or command.startswith("$")]
    assert why_not(["make", "demo"], {}, ROOT) and why_not(["fedrank", "hub", "serve", "hub"], {}, ROOT)
    assert why_not(["fedrank", "run", "x", "--data", "mq2008"], {"mq2008": False}, ROOT)
    assert why_not(["fedrank", "run", "x", "--data", "mine.csv"], {"mq2008": True}, ROOT)
    assert why_not(["fedrank", "run", "x", "--data", "mq2008"], {"mq2008": True}, ROOT) is None


@pytest.fixture(scope="module", params=("oldest", "newest"))
def place(request, wheel, tmp_path_factory):
    """An empty environment of one Python, with the wheel and no extra at first, then with all and the zoo."""
    version, python = chosen_python(request.param)
    table = ROOT / "dist" / "release" / f"python{version}"
    made = Environment(python, tmp_path_factory.mktemp("installed") / version, table)
    made.install(str(wheel), "fedrank")
    few = ["fedrank", "run", "foltr-es", "--rounds", "5", "--clients", "20", "--seeds", "2", "--quiet"]
    made.run(f"{' '.join(few)} (without extras)", few)
    made.install(f"{wheel}[all]", "fedrank[all]")
    made.install(str(build(ROOT / "zoo", tmp_path_factory.mktemp("zoo"))), "fedrank-zoo")
    yield made
    made.remove()


def printed(place, *command):
    """What a command prints, as JSON."""
    argv = [place.bin / command[0], *command[1:]]
    done = subprocess.run(argv, cwd=place.work, env=place.variables, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


@pytest.mark.minutes
def test_what_runs_is_the_wheel_and_a_run_needs_no_extra(place):
    home = printed(place, "python", "-c", "import fedrank, json; print(json.dumps(fedrank.__file__))")
    assert home.startswith(str(place.packages))
    assert [ran.status for ran in place.ran[:1]] == [0]


@pytest.mark.minutes
def test_an_installed_wheel_does_what_the_readme_says(place):
    before = len(place.ran)
    place.run("fedrank demo", ["fedrank", "demo"])
    data = {entry["name"]: entry["here"] for entry in printed(place, "fedrank", "data", "list", "--json")}
    for command in readme_commands():
        arguments = shlex.split(command)
        if reason := why_not(arguments, data, place.work):
            place.skip(command, reason)
        else:
            place.run(command, arguments)
    assert [ran for ran in place.ran[before:] if ran.status] == []


@pytest.mark.minutes
def test_an_installed_wheel_begins_every_reproduction(place):
    before = len(place.ran)
    papers = [paper["name"] for paper in printed(place, "fedrank", "reproduce", "--json")]
    assert len(papers) == len(list((ROOT / "reproductions").glob("*/expected.json")))
    for paper in papers:
        command = ["fedrank", "reproduce", paper, "--fraction", "0.01", "--quiet"]
        place.run(" ".join(command), command)
        assert (place.work / "runs" / f"reproduce-{paper}-0.01" / "report.html").stat().st_size > 1000
    assert [ran for ran in place.ran[before:] if ran.status] == []
