"""Container files copy what a wheel needs, and start what is there; the hosted CI runs what is there."""

import json
import re
import shutil

import pytest
import yaml
from releases import ROOT, build_wheel

from fedrank.cli.main import call
from fedrank.core import registry

DOCKERFILES = sorted((ROOT / "docker").glob("*.Dockerfile"))
FORMS = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"))
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def instructions(path):
    """The instructions of a Dockerfile, as (word, arguments), with continued lines joined."""
    text = re.sub(r"^#.*\n", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    lines = re.sub(r"\\\n", " ", text).splitlines()
    return [tuple(line.split(maxsplit=1)) for line in lines if line.strip()]


def copied(path):
    """Files and folders that a Dockerfile copies out of the clone."""
    copies = [argument.split() for word, argument in instructions(path) if word == "COPY"]
    return [name for names in copies if not names[0].startswith("--from") for name in names[:-1]]


@pytest.mark.parametrize("path", DOCKERFILES, ids=lambda path: path.stem)
def test_an_image_runs_as_nobody_special_and_gets_signals(path):
    said = instructions(path)
    last = [word for word, _ in said].index("FROM", 1)
    assert all(re.fullmatch(r"python:3\.\d+-slim( AS build)?", argument) for word, argument in said if word == "FROM")
    users = [argument for word, argument in said[last:] if word == "USER"]
    assert users == ["1000:1000"]
    entry = json.loads(next(argument for word, argument in said if word == "ENTRYPOINT"))  # no shell in between
    assert entry[0] in ("fedrank", "flower-supernode")


@pytest.mark.slow
@pytest.mark.parametrize("path", DOCKERFILES, ids=lambda path: path.stem)
def test_what_an_image_copies_is_enough_for_the_wheel(path, tmp_path):
    ignored = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    assert "*" in ignored and {f"!{name}" for name in copied(path) if name != "./"} <= set(ignored)
    for name in copied(path):
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, tmp_path / name)
    assert build_wheel(tmp_path, tmp_path / "wheels").stat().st_size > 1e6


def test_the_hubs_entry_point_and_health_check_are_there(capsys):
    said = dict(instructions(ROOT / "docker" / "hub.Dockerfile"))
    entry = json.loads(said["ENTRYPOINT"])
    assert call([*entry[1:], "--help"]) == 0
    assert set(re.findall(r"--[a-z]+", said["ENTRYPOINT"])) <= set(re.findall(r"--[a-z-]+", capsys.readouterr().out))
    port, route = re.search(r"127\.0\.0\.1:(\d+)(/\w+)", said["HEALTHCHECK"]).groups()
    assert port == said["EXPOSE"] and f'"{route}": Route' in (ROOT / "fedrank/deploy/hub/app.py").read_text()


def test_hosted_ci_runs_what_is_there():
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), flags=re.MULTILINE))
    ran = []
    for path in WORKFLOWS:
        jobs = yaml.safe_load(path.read_text(encoding="utf-8"))["jobs"]
        assert all("timeout-minutes" in job for job in jobs.values())
        for job in jobs.values():
            asked = job.get("strategy", {}).get("matrix", {}).get("target", [""])
            steps = [step["run"] for step in job["steps"] if "run" in step]
            ran += [step.replace("${{ matrix.target }}", target) for step in steps for target in asked]
    assert ".ci/run" in ran and len([command for command in ran if "docker" in command]) == len(DOCKERFILES)
    assert {"make test-minutes", "make mutants"} <= set(ran)
    for command in ran:
        first, *rest = command.split()
        if first == "docker":
            assert (ROOT / rest[rest.index("--file") + 1]) in DOCKERFILES
        elif first == "fedrank":
            assert rest[0] == "compare" or (rest[0] == "run" and rest[1] in registry.names("fedrank.protocols"))
        elif first == "python":
            assert rest == ["-m", "pip", "install", "."]
        else:
            assert (ROOT / first).stat().st_mode & 0o111 if "/" in first else rest[0] in targets


@pytest.mark.parametrize("path", FORMS, ids=lambda path: path.stem)
def test_issue_forms_have_what_a_form_needs(path):
    form = yaml.safe_load(path.read_text(encoding="utf-8"))
    if path.stem == "config":
        assert isinstance(form["blank_issues_enabled"], bool)
        return
    assert {"name", "description", "body"} <= set(form)
    names = [field["id"] for field in form["body"] if field["type"] != "markdown"]
    assert names and len(set(names)) == len(names)
    assert all("label" in field["attributes"] for field in form["body"] if field["type"] != "markdown")
