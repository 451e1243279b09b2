"""The gallery's small pictures: a script's chart where it has one, else a picture of the documentation."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

#: By script, the picture of one that draws none.
INSTEAD = {
    "plot_05_privacy_budget": "epsilon",
    "plot_10_hub": "observers",
    "plot_11_flower": "flow-foltr-es",
    "plot_12_export": "model-file",
}
#: The page's colours on a white ground.
LIGHT = {"paper": "#ffffff", "ink": "#1a1d21", "muted": "#5a616b", "rule": "#dde1e6"} | dict(
    zip(
        ("c0", "c1", "c2", "c3", "c4", "c5", "c6"),
        ["#0072b2", "#c04f00", "#00805b", "#a8557f", "#8a6100", "#2878a8", "#000"],
        strict=True,
    )
)


def scrape(block: Any, variables: dict[str, Any], conf: dict[str, Any]) -> str:
    """Called by Sphinx-Gallery after each block of a script.

    A ``chart`` is shown below the block. The first chart of a ``result`` becomes the thumbnail only, since a result
    shows itself.

    Returns:
        What stands below the block.
    """
    from sphinx_gallery.scrapers import figure_rst

    from fedrank.report.figures import save

    names, known = variables["image_path_iterator"], variables["example_globals"]
    stem = Path(variables["src_file"]).stem
    if "chart" in known and "chart" in block[1]:
        file = str(save(known["chart"], next(names)))
        return figure_rst([file], conf["src_dir"], "Curves of the runs")
    if len(names) == 0 and re.search(r"^result$", block[1], flags=re.MULTILINE):
        save(known["result"].plot(), next(names))
    elif len(names) == 0 and stem in INSTEAD:
        Path(next(names)).write_bytes(png(INSTEAD[stem]))
    return ""


def png(name: str) -> bytes:
    """A picture as PNG, in light colours."""
    import resvg_py

    from pictures import markup

    drawn = re.sub(r"var\(--(\w+)\)", lambda found: LIGHT[found[1]], markup(name, name))
    drawn = drawn.replace(' font-family="inherit"', "")
    wide, high = re.search(r'viewBox="[-\d.]+ [-\d.]+ ([\d.]+) ([\d.]+)"', drawn).groups()  # type: ignore[union-attr]
    drawn = drawn.replace(
        "<svg ", f'<svg font-family="Helvetica, Arial, sans-serif" width="{wide}" height="{high}" ', 1
    )
    return resvg_py.svg_to_bytes(svg_string=drawn)
