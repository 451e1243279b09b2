"""The opening of a page: a title, one sentence, what to do next, one chart and at most four numbers.

A task hands an :class:`Opening` over as data; what a specialist needs stands in the folded sections below it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from fedrank.report.claims import Comparison, Measured, Result, Sentence
from fedrank.report.html import Html, h

#: More numbers than this at the top of a page are a table.
MOST_NUMBERS = 4


@dataclass(frozen=True)
class Number:
    """A number at the top of a page.

    Attributes:
        label: What it is.
        value: The result.
        note: What belongs to it; by default the interval of a result that has one.
    """

    label: str
    value: Result
    note: str = ""

    def __post_init__(self):
        if not self.note and isinstance(self.value, Measured | Comparison):
            object.__setattr__(self, "note", self.value.note)  # frozen: resolved once, here

    @property
    def figure(self) -> str:
        """The number as a reader sees it; of a comparison, the difference with its sign."""
        return self.value.signed if isinstance(self.value, Comparison) else str(self.value)


@dataclass(frozen=True)
class Opening:
    """The opening at the top of a page.

    Attributes:
        title: What the page is about, in the words of the task.
        sentence: The result as it can be repeated to others, with its caveat if it has one.
        numbers: At most :data:`MOST_NUMBERS`.
        chart: Name of the page's chart that shows the result; empty if there is none.
        description: What the chart shows, for those who do not see it.
        advice: What to do next, as the beginning of a sentence, and its command; empty if there is nothing.

    Raises:
        ValueError: There are more than :data:`MOST_NUMBERS` numbers.
    """

    title: str
    sentence: Sentence
    numbers: tuple[Number, ...] = ()
    chart: str = ""
    description: str = ""
    advice: tuple[str, str] = ("", "")

    def __post_init__(self):
        if len(self.numbers) > MOST_NUMBERS:
            raise ValueError(f"a page opens with at most {MOST_NUMBERS} numbers, got {len(self.numbers)}")


def head(opening: Opening, about: str, caveats: Iterable[str], chart: Html | None, warning: Html | None = None) -> Html:
    """The top of a page as markup.

    Args:
        opening: What it says.
        about: What tells this page from others of its kind, in one line.
        caveats: What a reader must know beside every number.
        chart: The chart as a figure, or None.
        warning: What must be seen before any number, or None.
    """
    said = [h("li", caveat) for caveat in caveats]
    numbers = [
        h("div", h("dt", one.label), h("dd", h("b", one.figure), h("small", one.note) if one.note else None))
        for one in opening.numbers
    ]
    return h(
        "header",
        h("p", about, class_="about"),
        h("h1", opening.title),
        h("p", str(opening.sentence), class_="sentence"),
        h("p", f"Next: {opening.advice[0]} ", h("code", opening.advice[1]), class_="next")
        if any(opening.advice)
        else None,
        h("ul", *said, class_="caveats", aria_label="Caveats") if said else None,
        warning,
        h("div", chart, h("dl", *numbers, class_="numbers") if numbers else None, class_="opening")
        if chart is not None or numbers
        else None,
    )
