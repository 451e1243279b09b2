"""Programs that the pages show as whole ones run as they stand: blocks that begin with ``# A whole program``."""

import pytest
from pages import all_blocks

PROGRAMS = [block for block in all_blocks("python") if block.text.startswith("# A whole program")]


@pytest.mark.minutes
@pytest.mark.parametrize(
    "block", PROGRAMS, ids=[f"{b}-pytorch" if "import torch" in b.text else str(b) for b in PROGRAMS]
)
def test_programs_run_and_print_what_they_say(block, tmp_path, monkeypatch, capsys):
    """What a program prints stands beside its ``print`` as a comment."""
    if "import torch" in block.text:
        pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    exec(compile(block.text, str(block), "exec"), {"__name__": "__main__"})
    expected = [line.partition("  # ")[2] for line in block.text.splitlines() if line.startswith("print(")]
    assert expected and capsys.readouterr().out.splitlines() == expected


def test_the_pages_have_the_programs_that_people_look_for():
    text = "\n".join(block.text for block in PROGRAMS)
    for wanted in (
        "FunctionRanker",
        "import torch",
        "foltr-es",
        "bandit-fedavg",
        "silo-sketch",
        "vertical-slate",
        "to_onnx",
    ):
        assert wanted in text, f"no whole program shows {wanted}"
