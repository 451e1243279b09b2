"""Pictures of the documentation, drawn by code when it is built: diagrams, formulas, message flows, measurements.

A page shows one by its name, with a text alternative and a caption::

    ```{picture} greed
    :alt: What one sees, for those who do not see it.

    What it means.
    ```

The SVG becomes part of the page, so that its colours follow the reader's theme (``_static/fedrank.css``). To look at
one without building all: ``python -m pictures greed > greed.svg``, in ``docs``.
"""

from __future__ import annotations

import html
import re
from collections.abc import Callable
from functools import cache
from typing import Any, ClassVar

import house

from pictures import diagrams, flows, formulas, measured


def _foltr_es() -> str:
    import generate

    (protocol,) = (p for title, p in generate.devices().items() if title.startswith("FOLtR-ES, the paper"))
    return flows.flow("server", "one device", [("every round", protocol.exchanges)])


def _mab_fl() -> str:
    import generate

    (protocol,) = (p for title, p in generate.silos().items() if "one set a round" in title)
    first, *rest = protocol.exchanges
    train, judge = rest
    groups = [("before the first round", [first]), ("the silos of the arm", [train]), ("the target", [judge])]
    return flows.flow("server", "one silo", groups)


def _silo_sketch() -> str:
    import generate

    setup, training = generate.texts().values()
    *first, step = training.exchanges
    groups = [("once: the setup", setup.exchanges), ("in the first round", first), ("in every round", [step])]
    return flows.flow("server", "one silo", groups)


def _fedslate() -> str:
    import generate

    protocol, _ = next(iter(generate.platforms().values()))
    look, recommend, *batch, _copy = protocol.exchanges
    groups = [("every round: to show slates", [look, recommend]), ("every third round: to learn", batch)]
    return flows.flow("coordinator", "one platform", groups)


#: By name, what draws it: a string of SVG, or a chart.
PICTURES: dict[str, Callable[[], Any]] = {
    "attackers": formulas.search_of_seeds,
    "bytes": measured.sent_bytes,
    "correlations": measured.correlations,
    "demo": lambda: _as_large_as_read(measured.kept("demo")),
    "epsilon": formulas.epsilon_by_p,
    "exchange": diagrams.exchange,
    "flow-fedslate": _fedslate,
    "flow-foltr-es": _foltr_es,
    "flow-mab-fl": _mab_fl,
    "flow-silo-sketch": _silo_sketch,
    "greed": formulas.greed,
    "house": house.svg,
    "model-file": diagrams.model_file,
    "noise-and-gain": measured.noise_and_gain,
    "private-ways": measured.private_ways,
    "observers": diagrams.observers,
    "perturbation": diagrams.perturbation,
    "result-hospitals": lambda: measured.result(
        "| at Hungarian", "Test AUC at one of four hospitals", ("Extreme",), "20 seeds; higher is better"
    ),
    "result-platforms": lambda: measured.result(
        "| a user brings",
        "Gain over random slates",
        ("A,", "B,"),
        "Engagement of a user; five seeds, 95 % intervals",
        0,
    ),
    "result-texts": lambda: measured.result(
        "| searching",
        "nDCG(dcg='exp-log2')@10 of a search in everybody’s documents",
        ("CS-F-LTR",),
        "Generated texts, ε = 8, five seeds",
    ),
    "smoothing": formulas.smoothing,
    "speed": measured.speeds,
    "streams": diagrams.streams,
    "who-helps-whom": lambda: _as_large_as_read(measured.kept("who-helps-whom")),
}


@cache
def markup(name: str, alt: str) -> str:
    """A picture as SVG with its text alternative.

    Raises:
        KeyError: There is no picture of that name.
    """
    drawn = PICTURES[name]()
    if not isinstance(drawn, str):
        return _as_large_as_read(str(drawn.inline(alt)))
    return drawn.replace('role="img"', f'role="img" aria-label="{html.escape(alt)}"', 1)


def _as_large_as_read(chart: str) -> str:
    """A chart that is not drawn larger than its text should be, and fits a phone."""
    width = float(re.search(r'viewBox="[-\d.]+ [-\d.]+ ([\d.]+) ', chart)[1])  # type: ignore[index]
    return chart.replace("<svg ", f'<svg style="max-width:{1.2 * width:.0f}px;min-width:18rem" ', 1)


def setup(app: Any) -> dict[str, bool]:
    """Register the directive ``picture``."""
    from docutils import nodes
    from docutils.parsers.rst import directives
    from sphinx.util.docutils import SphinxDirective

    class Picture(SphinxDirective):
        """A figure with a picture of :data:`PICTURES`; its content is the caption."""

        required_arguments = 1
        has_content = True
        option_spec: ClassVar = {"alt": directives.unchanged_required}

        def run(self) -> list[Any]:
            name = self.arguments[0]
            if name not in PICTURES:
                raise self.error(f"there is no picture {name!r}; there are {', '.join(sorted(PICTURES))}")
            if not self.options.get("alt"):
                raise self.error(f"the picture {name!r} needs an :alt:")
            figure = nodes.figure(classes=["picture"])
            figure += nodes.raw("", f'<div class="drawn">{markup(name, self.options["alt"])}</div>', format="html")
            if self.content:
                caption = nodes.caption()
                said, messages = self.parse_inline(" ".join(self.content))
                caption += said
                return [figure.__iadd__([caption]), *messages]
            return [figure]

    app.add_directive("picture", Picture)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
