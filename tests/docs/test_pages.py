"""What the pages show is so: sessions print it, imports exist, commands parse, links lead somewhere."""

import ast
import doctest
import importlib
import math
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from pages import PAGES, ROOT, all_blocks, blocks, name, prose

SESSIONS = [page for page in PAGES if blocks(page, "pycon")]


@pytest.mark.parametrize("page", SESSIONS, ids=name)
def test_sessions_print_what_is_shown(page):
    """All ``pycon`` blocks of a page are one session."""
    text = "\n".join(block.text for block in blocks(page, "pycon"))
    test = doctest.DocTestParser().get_doctest(text, {}, name(page), str(page), 0)
    assert test.examples, f"{name(page)} has a session without a prompt"
    ran = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE).run(test)
    assert (ran.failed, ran.attempted) == (0, len(test.examples))


def imports(code: str) -> list[tuple[str, str | None]]:
    """The modules and names that a piece of Python takes from fedrank."""
    found: list[tuple[str, str | None]] = []
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.ImportFrom):
            found += [(node.module or "", alias.name) for alias in node.names]
        elif isinstance(node, ast.Import):
            found += [(alias.name, None) for alias in node.names]
    return [(module, attribute) for module, attribute in found if module.split(".")[0] == "fedrank"]


SNIPPETS = [(str(block), block.text) for block in all_blocks("python")] + [
    (name(path), path.read_text(encoding="utf-8")) for path in sorted((ROOT / "examples").glob("*.py"))
]


def test_snippets_compile_and_their_imports_exist():
    for where, code in SNIPPETS:
        for module, attribute in imports(code):
            loaded = importlib.import_module(module)
            assert attribute is None or hasattr(loaded, attribute), f"{where}: there is no {attribute} in {module}"


GALLERY = sorted((ROOT / "examples" / "gallery").glob("plot_*.py"))


#: Runs the scripts that it is given, one after the other; each must print something.
_RUN_ALL = """
import contextlib, io, runpy, sys
for script in sys.argv[1:]:
    with contextlib.redirect_stdout(io.StringIO()) as said:
        runpy.run_path(script, run_name="__main__")
    if not said.getvalue().strip():
        sys.exit(f"{script} prints nothing")
"""


# In one process, which imports JAX once: fifty CPU-seconds together, a third of them JAX compiling the run of texts.
@pytest.mark.slow
def test_gallery_scripts_run(tmp_path):
    command = [sys.executable, "-c", _RUN_ALL, *map(str, GALLERY)]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=600)
    assert ran.returncode == 0, ran.stderr


def test_gallery_scripts_are_small():
    """The product of what a script says about its size, in a call or a table of settings."""
    sized = 0
    for script in GALLERY:
        said = dict.fromkeys(("clients", "rounds", "seeds", "interactions"), 1)
        for node in ast.walk(ast.parse(script.read_text(encoding="utf-8"))):
            pairs = [(node.arg, node.value)] if isinstance(node, ast.keyword) else []
            if isinstance(node, ast.Dict):
                pairs = [
                    (getattr(key, "value", None), value) for key, value in zip(node.keys, node.values, strict=True)
                ]
            for key, value in pairs:
                if key in said and isinstance(value, ast.Constant) and isinstance(value.value, int):
                    said[key] = max(said[key], value.value)
        sized += math.prod(said.values()) > 1
        assert math.prod(said.values()) <= 2_000_000, f"{name(script)} is too large for every change's checks: {said}"
    assert sized > len(GALLERY) / 2


def test_the_gallery_has_the_examples_that_people_look_for():
    wanted = "first_ranker own_data own_ranker own_protocol privacy attack hospitals texts slates hub flower export"
    assert all(any(word in script.stem for script in GALLERY) for word in [*wanted.split(), "compare"])


# Four processes that learn for minutes; tests/deploy/contract/test_platform_processes.py runs the like.
_LONG = "two_platforms.py"


@pytest.mark.parametrize("script", [p for p in sorted((ROOT / "examples").glob("*.py")) if p.name != _LONG], ids=name)
def test_examples_run(script, tmp_path):
    ran = subprocess.run([sys.executable, script], cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.strip(), f"{name(script)} prints nothing"


def commands() -> list[tuple[str, list[str]]]:
    """Every fedrank command that a page shows, in a block or in a line of text, without the program's name."""
    found = []
    for block in all_blocks("console", "bash", "sh", "shell"):
        lines = block.text.replace("\\\n", " ").splitlines()
        if block.language == "console":  # other lines are output
            lines = [line.lstrip()[2:] for line in lines if line.lstrip().startswith("$ ")]
        found += [(str(block), line) for line in lines]
    for page in PAGES:
        found += [(name(page), code) for code in re.findall(r"(?<!`)`(fedrank [^`\n]+)`(?!`)", prose(page))]
    split = [(where, shlex.split(line, comments=True)) for where, line in found]
    return [(where, words[1:]) for where, words in split if words[:1] == ["fedrank"]]


def understands(words: list[str]) -> None:
    """Parse a command without running it; raises what the command line would refuse it with."""
    from fedrank.cli.main import _offer_settings, app

    words = [word for word in words if word not in {"--help", "-h", "--version"}]
    if words:
        _offer_settings(words)
        app.parse_args(words, exit_on_error=False, print_error=False)


def test_commands_parse(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    refused = []
    for where, words in commands():
        for word in words:  # files that a command reads
            if word.endswith(".toml"):
                Path(word).parent.mkdir(parents=True, exist_ok=True)
                Path(word).touch()
        try:
            understands(words)
        except Exception as error:
            refused.append(f"{where}: fedrank {' '.join(words)}: {error}")
    assert refused == []


def test_a_command_that_does_not_exist_is_refused():
    with pytest.raises(Exception, match="demmo"):
        understands(["demmo"])


TARGETS = sorted({word for block in all_blocks("console") for word in re.findall(r"make ([a-z-]+)", block.text)})


def test_make_targets_exist():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    there = set(re.findall(r"^([a-z-]+(?: [a-z-]+)*):", makefile, flags=re.MULTILINE))
    assert TARGETS and set(TARGETS) <= {target for line in there for target in line.split()}


def test_configurations_are_accepted(tmp_path):
    """A ``toml`` block is a configuration or a study; what it leaves out has its default."""
    from fedrank.engine.settings import from_dict
    from fedrank_zoo.reproduce.study import plan_runs, read_study

    for block in all_blocks("toml"):
        settings = tomllib.loads(block.text)
        if "study" in settings:
            path = tmp_path / "study.toml"
            path.write_text(block.text)
            assert plan_runs(read_study(path)), block
            continue
        plain = from_dict({"protocol": settings.get("protocol", "foltr-es")})
        assert settings and (from_dict(settings) != plain or "protocol" in settings), f"{block} shows only defaults"


def test_links_lead_to_files():
    """Links to files; the documentation's own references are checked by its build."""
    missing = []
    for page in PAGES:
        for link in re.findall(r"\]\(<?([^)>\s]+)>?\)", prose(page)):
            target = link.partition("#")[0]
            if target and not re.match(r"[a-z]+:", target) and not (page.parent / target).exists():
                missing.append(f"{name(page)} links to {link}")
    assert missing == []


def test_pages_are_found():
    """The tests above walk over files: an empty walk must not pass for a clean one."""
    assert {"README.md", "CONTRIBUTING.md", "docs/index.md"} <= {name(page) for page in PAGES}
    assert len(SESSIONS) >= 3 and len(SNIPPETS) >= 3 and len(commands()) >= 1
