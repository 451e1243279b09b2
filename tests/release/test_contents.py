"""A wheel that is built from the source distribution alone holds the whole package."""

import re
import tomllib
import zipfile

import pytest
from releases import ROOT, build

from fedrank import __version__

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    return build(ROOT, tmp_path_factory.mktemp("release"))


def files(folder):
    """The files below a folder that belong to the project, as paths from the root."""
    return {
        path.relative_to(ROOT).as_posix()
        for path in folder.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and path.suffix not in (".pyc", ".nbi", ".nbc")
    }


def test_the_wheel_has_every_file_of_the_package(built):
    with zipfile.ZipFile(built) as wheel:
        held = set(wheel.namelist())
    assert held >= files(ROOT / "fedrank")
    assert {path.split("/")[0] for path in held} == {
        "fedrank",
        built.name.removesuffix("-py3-none-any.whl") + ".dist-info",
    }


def test_the_zoos_wheel_has_every_reproduction(tmp_path):
    with zipfile.ZipFile(build(ROOT / "zoo", tmp_path)) as wheel:
        held = set(wheel.namelist())
    assert held >= {path.removeprefix("zoo/") for path in files(ROOT / "zoo" / "fedrank_zoo")}
    assert held >= {f"fedrank_zoo/{path}" for path in files(ROOT / "reproductions")}


def test_no_page_offers_what_is_not_published():
    """An index has no fedrank: pages lead to the page on installation, which starts from a clone or a wheel."""
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "apps").rglob("*.[mt]*")]
    offer = re.compile(r"pip3? install( -[\w-]+)* ['\"]?fedrank(?![/\w-])")
    found = {page.relative_to(ROOT).as_posix() for page in pages if offer.search(page.read_text(encoding="utf-8"))}
    assert found <= {"docs/how-to/install.md"}  # where extras are added to what is installed already


def test_what_is_released_together_has_one_version():
    for part in ("zoo", "flower"):
        project = tomllib.loads((ROOT / part / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        assert project["version"] == __version__ and f"fedrank>={__version__}" in project["dependencies"]
    assert f"\nversion: {__version__}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    if "dev" not in __version__:
        assert f"\n## [{__version__}] - 20" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    wheel = re.compile(r"fedrank(?:_zoo|_flower)?-([\w.]+)-py3")
    named = {version for page in pages for version in wheel.findall(page.read_text(encoding="utf-8"))}
    assert named == {__version__}


def test_the_source_distribution_has_what_tests_and_documentation_are_made_of(built):
    (source,) = (path for path in built.parent.iterdir() if path.is_dir())
    held = {path.relative_to(source).as_posix() for path in source.rglob("*") if path.is_file()}
    for folder in ("tests", "examples", "apps", "benchmarks"):
        assert held >= files(ROOT / folder)
    assert held >= {"Makefile", "README.md", "LICENSE", "CHANGELOG.md", "CITATION.cff", "docs/conf.py", ".ci/run"}
