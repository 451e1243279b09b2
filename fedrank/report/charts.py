"""Charts as SVG: lines, bands, points, bars and cells on axes.

Charts are drawn here and not by a charting library, because those that write SVG start a browser engine, which costs
more than most runs. A chart is a :class:`Chart`; a drawing area with its axes is a :class:`Panel`; :func:`compose` puts
panels below each other under a title and a legend. Lengths are in pixels, and y grows downward.
"""

from __future__ import annotations

import html
import itertools
import math
import re
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from fedrank.report.html import Html, h

#: Okabe and Ito's palette (Color Universal Design, jfly.uni-koeln.de/color), strongest on white first.
OKABE_ITO = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")

#: Colours of everything that is not data. Each is used for one purpose only, so that a page can exchange it.
INK, MUTED, RULE, PAPER = "#1A1D21", "#5A616B", "#DDE1E6", "#FFFFFF"

#: Names of the page's colours, by the figure's. The page's style sheet gives each a light and a dark value.
COLOURS = {INK: "ink", MUTED: "muted", RULE: "rule", PAPER: "paper"} | {c: f"c{i}" for i, c in enumerate(OKABE_ITO)}

_FONT = "Helvetica Neue, Helvetica, Arial, DejaVu Sans, sans-serif"
#: Sizes of text: labels of ticks, titles of axes, legends, the title, its further lines.
_TICK, _AXIS, _LEGEND, _TITLE, _SAID = 12.5, 13.0, 13.0, 15.0, 12.0
#: Width of an average letter as a part of its size; a reader's font may be wider than the one that was measured.
_LETTER = 0.56
#: The same in bold letters.
_BOLD_LETTER = 0.7
#: Room around a chart, between its parts, and between two panels.
_EDGE, _GAP, _BETWEEN = 6.0, 8.0, 14.0
#: Characters that a file of XML cannot hold.
_NOT_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")
#: Characters of a line of the title, and of a line of what is said below it.
_TITLE_LINE, _SAID_LINE = 40, 62

Label = Callable[[float], str]


@dataclass(frozen=True)
class Chart:
    """A chart.

    Attributes:
        markup: Its SVG elements.
        width: Width of the picture.
        height: Height of the picture.
    """

    markup: str
    width: float
    height: float

    @property
    def svg(self) -> str:
        """A file of SVG, on paper's colour."""
        size = f'width="{self.width:.0f}" height="{self.height:.0f}" viewBox="0 0 {self.width:.0f} {self.height:.0f}"'
        paper = f'<rect width="100%" height="100%" fill="{PAPER}"/>'
        return f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="{_FONT}">{paper}{self.markup}</svg>\n'

    def _repr_svg_(self) -> str:
        return self.svg

    def figure(self, name: str, description: str) -> Html:
        """A figure on a page, which follows the page's colours and answers to a pointer without a script.

        Args:
            name: Unique on the page, such as ``"online-bytes"``: letters, digits and hyphens; links lead to it.
            description: What it shows, for those who do not see it.
        """
        return h("figure", self.inline(description), class_="chart", id=f"figure-{name}")

    def inline(self, description: str) -> Html:
        """The ``<svg>`` element alone; description as of :meth:`figure`."""
        colour = re.compile("|".join(f'"{one}"' for one in COLOURS))
        body = colour.sub(lambda found: f'"var(--{COLOURS[found[0].strip(chr(34))]})"', self.markup)
        return h(
            "svg",
            Html(body),
            viewBox=f"0 0 {self.width:.0f} {self.height:.0f}",
            role="img",
            aria_label=description,
            xmlns="http://www.w3.org/2000/svg",
        )


@dataclass(frozen=True)
class Scale:
    """A map from values to pixels, linear or logarithmic.

    Attributes:
        low: The value at ``start``.
        high: The value at ``end``, another one.
        start: Pixels from the panel's left or upper edge.
        end: Pixels from the same edge.
        log: Equal ratios are equally long; values are above 0.
    """

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def __call__(self, value: float) -> float:
        """The place of a value in pixels, between :attr:`start` and :attr:`end` for one between the two ends."""
        low, high = self.low, self.high
        if self.log:
            low, high, value = math.log(low), math.log(high), math.log(value)
        return self.start + (value - low) / (high - low) * (self.end - self.start)


def ticks(low: float, high: float, count: int, *, whole: bool = False) -> list[float]:
    """Round values from ``low`` to ``high``, about ``count`` of them; ``low`` alone if there is none between them.

    Args:
        low: Lower end.
        high: Upper end.
        count: Number that is aimed at, at least 1.
        whole: Only whole numbers.

    >>> ticks(0, 10, 5), ticks(0.35, 0.65, 6), ticks(0, 2, 5, whole=True)
    ([0.0, 2.0, 4.0, 6.0, 8.0, 10.0], [0.35, 0.4, 0.45, 0.5, 0.55, 0.6, 0.65], [0.0, 1.0, 2.0])
    """
    if not high > low:
        return [low]
    rough = (high - low) / count
    power = 10.0 ** math.floor(math.log10(rough))
    step = power * next(times for bound, times in ((1.42, 1), (3.17, 2), (7.08, 5), (11, 10)) if rough / power < bound)
    step = max(1.0, step) if whole else step
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [round(i * step, 12) + 0.0 for i in range(first, last + 1)] or [low]


def nice_domain(values: Sequence[float]) -> tuple[float, float]:
    """Round ends of an axis that holds all values.

    >>> nice_domain([0.352, 0.613]), nice_domain([-3.0, 41.0]), nice_domain([0.5])
    ((0.35, 0.65), (-10.0, 50.0), (0.49, 0.51))
    """
    known = [value for value in values if math.isfinite(value)] or [0.0]
    low, high = min(known), max(known)
    if high - low <= 1e-12 * max(abs(low), abs(high), 1.0):
        room = abs(high) * 0.02 or 0.01
        return low - room, high + room
    rough = (high - low) / 6
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * times for times in (1, 2, 5, 10) if power * times >= rough * 0.999)
    return round(math.floor(low / step + 1e-9) * step, 12), round(math.ceil(high / step - 1e-9) * step, 12)


def decimal_labels(places: Sequence[float], *, signed: bool = False) -> Label:
    """Labels with as many decimals as tell neighbouring ticks apart.

    >>> list(map(decimal_labels([0.35, 0.4], signed=True), [0.35, -0.4, 0]))
    ['+0.35', '−0.40', '0.00']
    """
    steps = [b - a for a, b in itertools.pairwise(places)] or [abs(places[0]) or 1.0]
    digits = next((d for d in range(9) if all(abs(round(v, d) - v) < 1e-9 + 1e-3 * min(steps) for v in places)), 9)

    def label(value: float) -> str:
        return f"{value:{'+' if signed and value else ''},.{digits}f}".replace("-", "−")

    return label


def si_label(value: float) -> str:
    """A number with a prefix for thousands.

    >>> si_label(0), si_label(1500), si_label(2_000_000)
    ('0', '1.5k', '2M')
    """
    for unit, prefix in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= unit:
            return f"{value / unit:.6g}{prefix}"
    return f"{value:.6g}"


def text_width(words: str, size: float, *, bold: bool = False) -> float:
    """Estimate of the width of a line of text."""
    return len(words) * size * (_BOLD_LETTER if bold else _LETTER)


def _attributes(values: dict[str, str | float | None]) -> str:
    written = {k: f"{v:.2f}".rstrip("0").rstrip(".") if isinstance(v, float) else v for k, v in values.items()}
    names = {name: name.rstrip("_").replace("_", "-") for name in written}
    return "".join(f' {names[name]}="{value}"' for name, value in written.items() if value is not None)


def element(tag: str, inside: str = "", /, **attributes: str | float | None) -> str:
    """An SVG element; attributes that are None are left out, and an underscore within a name is a hyphen."""
    return f"<{tag}{_attributes(attributes)}>{inside}</{tag}>" if inside else f"<{tag}{_attributes(attributes)}/>"


def text(
    x: float,
    y: float,
    words: str,
    *,
    size: float = _TICK,
    fill: str = INK,
    anchor: str | None = None,
    weight: str | None = None,
    turn: float | None = None,
) -> str:
    """A line of text.

    Args:
        x: Place of its start, middle or end, by ``anchor``.
        y: Place of its base line.
        words: The text.
        size: Size of the font.
        fill: Its colour.
        anchor: ``"middle"`` or ``"end"``; None: ``"start"``.
        weight: Weight of the font.
        turn: Degrees that it is turned by, clockwise around its place.
    """
    turned = None if turn is None else f"rotate({turn:g},{x:.2f},{y:.2f})"
    about: dict[str, str | float | None] = {"text_anchor": anchor, "font_weight": weight, "transform": turned}
    return element("text", _escape(words), x=float(x), y=float(y), font_size=size, fill=fill, **about)


def tooltip_of(note: str) -> str:
    """The content of an element that a pointer shows as a tooltip; empty without a note."""
    return f"<title>{_escape(note)}</title>" if note else ""


def _escape(words: str) -> str:
    return html.escape(_NOT_XML.sub("\N{REPLACEMENT CHARACTER}", words))


def _all_finite(*values: float) -> bool:
    return all(map(math.isfinite, values))


class Panel:
    """A drawing area with axes at its edges.

    Args:
        width: Its width.
        height: Its height.
        x: Values at its left and right edge.
        y: Values at its lower and upper edge.
        title: Written above it.
        log_x: The horizontal axis is logarithmic.
        log_y: The vertical axis is logarithmic.

    Attributes:
        left: Room that labels take at the left of the area; ``right``, ``above`` and ``below`` likewise.
    """

    def __init__(
        self,
        width: float,
        height: float,
        x: tuple[float, float] = (0.0, 1.0),
        y: tuple[float, float] = (0.0, 1.0),
        title: str = "",
        log_x: bool = False,
        log_y: bool = False,
    ):
        self.width, self.height = width, height
        if x[0] == x[1]:
            x = (x[0] - 0.5, x[1] + 0.5)
        self.x, self.y = Scale(*x, 0.0, width, log_x), Scale(*y, height, 0.0, log_y)
        self.left = self.right = self.above = self.below = 0.0
        self.elements: list[str] = []
        if title:
            self.above = 20.0
            self.add(text(0, -8, title, size=13.0, weight="600"))

    def add(self, *elements: str) -> None:
        """Draw elements, above those before them."""
        self.elements.extend(elements)

    def x_axis(
        self, places: Sequence[float], label: Label, title: str = "", *, grid: bool = False, line: bool = True
    ) -> None:
        """Draw the axis at the lower edge, with a label at each of the places, which are values."""
        for value in places:
            at = self.x(value)
            if grid:
                self.add(element("line", x1=at, x2=at, y1=0.0, y2=self.height, stroke=RULE))
            self.add(element("line", x1=at, x2=at, y1=self.height, y2=self.height + 5, stroke=RULE))
            self.add(text(at, self.height + 18, label(value), fill=MUTED, anchor="middle"))
        if line:
            self.add(element("line", x1=0.0, x2=self.width, y1=self.height, y2=self.height, stroke=RULE))
        self.below = 22.0
        if title:
            self.add(text(self.width / 2, self.height + 38, title, size=_AXIS, anchor="middle"))
            self.below = 42.0
            beside = max(0.0, (text_width(title, _AXIS) - self.width) / 2)
            self.left, self.right = max(self.left, beside), max(self.right, beside)
        if places:
            first, last = (text_width(label(value), _TICK) / 2 for value in (places[0], places[-1]))
            self.left, self.right = max(self.left, first), max(self.right, last)

    def y_axis(self, places: Sequence[float], label: Label, title: str = "") -> None:
        """Draw the axis at the left edge, with lines across the panel and a label at each of the places."""
        widest = 0.0
        for value in places:
            at, words = self.y(value), label(value)
            self.add(element("line", x1=-5.0, x2=self.width, y1=at, y2=at, stroke=RULE))
            self.add(text(-8, at + 4, words, fill=MUTED, anchor="end"))
            widest = max(widest, text_width(words, _TICK))
        self.add(element("line", x1=0.0, x2=0.0, y1=0.0, y2=self.height, stroke=RULE))
        self.left = max(self.left, widest + 10)
        self.above = max(self.above, 8.0)
        if title:
            x, y = -self.left - 8, self.height / 2
            self.add(text(x, y, title, size=_AXIS, anchor="middle", turn=-90))
            self.left += 8 + _AXIS
            tall = max(0.0, (text_width(title, _AXIS) - self.height) / 2)
            self.above = max(self.above, tall)

    def rows(self, names: Sequence[str], *, grid: bool = False) -> None:
        """Write a name at the left of each of rows of equal height, from the upper edge on."""
        step = self.height / max(1, len(names))
        for i, name in enumerate(names):
            at = (i + 0.5) * step
            if grid:
                self.add(element("line", x1=0.0, x2=self.width, y1=at, y2=at, stroke=RULE))
            self.add(text(-8, at + 4, name, anchor="end"))
            self.left = max(self.left, text_width(name, _TICK) + 10)

    def line(
        self,
        points: Iterable[tuple[float, float]],
        colour: str,
        *,
        width: float = 2.0,
        dash: str | None = None,
        opacity: float | None = None,
        steps: bool = False,
    ) -> None:
        """Draw a line through points, which are values.

        Args:
            points: Pairs of x and y, without those that are not finite; a single one is drawn as a dot.
            colour: Of the line.
            width: Of the line.
            dash: SVG dash pattern.
            opacity: From 0 to 1.
            steps: Each value stands until the next.
        """
        places = [(self.x(x), self.y(y)) for x, y in points if _all_finite(x, y)]
        if not places:
            return
        if len(places) == 1:
            (x, y), *_ = places
            self.add(element("circle", cx=x, cy=y, r=3.0, fill=colour))
            return
        path = [f"M{places[0][0]:.2f},{places[0][1]:.2f}"]
        for x, y in places[1:]:
            path.append(f"H{x:.2f}V{y:.2f}" if steps else f"L{x:.2f},{y:.2f}")
        about: dict[str, str | float | None] = {
            "stroke_dasharray": dash,
            "opacity": opacity,
            "stroke_linejoin": "round",
        }
        self.add(element("path", d="".join(path), fill="none", stroke=colour, stroke_width=float(width), **about))

    def band(self, points: Sequence[tuple[float, float | None, float | None]], colour: str) -> None:
        """Shade the area between a lower and an upper curve; where there is one point between gaps, draw a bar.

        Args:
            points: x, low and high; where an end is None or not finite the band has a gap.
            colour: Of the area.
        """
        piece: list[tuple[float, float, float]] = []
        for x, low, high in [*points, (0.0, None, None)]:
            if low is not None and high is not None and _all_finite(low, high):
                piece.append((self.x(x), self.y(low), self.y(high)))
                continue
            if len(piece) == 1:
                about: dict[str, str | float | None] = {"stroke_width": 2.0, "opacity": 0.45}
                (x, below, above), *_ = piece
                self.add(element("line", x1=x, x2=x, y1=below, y2=above, stroke=colour, **about))
            if len(piece) > 1:
                corners = [(x, high) for x, _, high in piece] + [(x, low) for x, low, _ in reversed(piece)]
                path = "M" + "L".join(f"{x:.2f},{y:.2f}" for x, y in corners) + "Z"
                self.add(element("path", d=path, fill=colour, opacity=0.18))
            piece = []

    def interval(
        self, low: float, high: float, at: float, colour: str, *, width: float = 2.0, opacity: float = 0.55
    ) -> None:
        """Draw a horizontal bar between two finite values, ``at`` pixels from the upper edge; else nothing."""
        if not _all_finite(low, high):
            return
        about: dict[str, str | float | None] = {"stroke": colour, "stroke_width": width, "opacity": opacity}
        self.add(element("line", x1=self.x(low), x2=self.x(high), y1=at, y2=at, **about))

    def dot(
        self,
        x: float,
        y: float,
        colour: str,
        *,
        radius: float = 4.5,
        filled: bool = True,
        note: str = "",
        opacity: float | None = None,
    ) -> None:
        """Draw a dot at a finite place in pixels, with a tooltip; one that is not filled is a ring."""
        if not _all_finite(x, y):
            return
        fill, stroke = (colour, None) if filled else (PAPER, colour)
        about: dict[str, str | float | None] = {"stroke": stroke, "stroke_width": None if filled else 2.0}
        self.add(element("circle", tooltip_of(note), cx=x, cy=y, r=radius, fill=fill, opacity=opacity, **about))

    def stacks(
        self, columns: Sequence[Mapping[str, float]], colours: Mapping[str, str], note: Callable[[int, str], str]
    ) -> None:
        """Draw a stack of bars at each whole number of the horizontal axis, from 0 on.

        Args:
            columns: Heights by name, as values.
            colours: By name, in the order from the lower edge.
            note: Tooltip of a column's bar.
        """
        wide = 0.88 * self.width / max(1, len(columns))
        for place, heights in enumerate(columns):
            below = 0.0
            for name, colour in colours.items():
                if height := heights.get(name, 0.0):
                    top, bottom = self.y(below + height), self.y(below)
                    size = {"x": self.x(place) - wide / 2, "y": top, "width": wide, "height": bottom - top}
                    self.add(element("rect", tooltip_of(note(place, name)), fill=colour, **size))
                    below += height

    def vertical(self, value: float, *, width: float = 1.4) -> None:
        """Draw a vertical line at a value."""
        at = self.x(value)
        self.add(element("line", x1=at, x2=at, y1=0.0, y2=self.height, stroke=MUTED, stroke_width=width))


@dataclass(frozen=True)
class Entry:
    """An entry of a legend.

    Attributes:
        name: Its words.
        colour: Its colour.
        symbol: ``"line"``, ``"square"``, ``"circle"`` or ``"cross"``.
        dash: Dash pattern of a line.
    """

    name: str
    colour: str
    symbol: str = "line"
    dash: str | None = None


def cross(x: float, y: float, colour: str, *, arm: float = 4.5, note: str = "") -> str:
    """A cross at a place, with a tooltip."""
    path = f"M{x - arm:.2f},{y - arm:.2f}l{2 * arm:.2f},{2 * arm:.2f}m0,{-2 * arm:.2f}l{-2 * arm:.2f},{2 * arm:.2f}"
    return element("path", tooltip_of(note), d=path, fill="none", stroke=colour, stroke_width=2.0)


def _symbol(entry: Entry, x: float, y: float) -> str:
    if entry.symbol == "line":
        about: dict[str, str | float | None] = {"stroke_width": 2.5, "stroke_dasharray": entry.dash}
        return element("line", x1=x, x2=x + 14, y1=y, y2=y, stroke=entry.colour, **about)
    if entry.symbol == "square":
        return element("rect", x=x + 1, y=y - 6, width=12.0, height=12.0, fill=entry.colour)
    if entry.symbol == "cross":
        return cross(x + 7, y, entry.colour)
    return element("circle", cx=x + 7, cy=y, r=4.5, fill=entry.colour)


def _legend(entries: Sequence[Entry], width: float) -> tuple[list[str], float, float]:
    """Elements of a legend from (0, 0) on, its width and its height; entries that do not fit begin a new row."""
    out, x, y, widest = [], 0.0, 0.0, 0.0
    for entry in entries:
        needed = 20 + text_width(entry.name, _LEGEND)
        if x and x + needed > width:
            x, y = 0.0, y + 19
        words = text(x + 20, y + 13.5, entry.name, size=_LEGEND)
        out.append(element("g", _symbol(entry, x, y + 9) + words, class_="entry"))
        widest = max(widest, x + needed)
        x += needed + 14
    return out, widest, y + 19 if entries else 0.0


def compose(panels: Sequence[Panel], title: str, said: Sequence[str] = (), legend: Sequence[Entry] = ()) -> Chart:
    """A chart of panels below each other.

    Args:
        panels: At least one.
        title: Of the chart.
        said: What a reader must know, in lines below the title.
        legend: Its entries; none for no legend.
    """
    left = max(panel.left for panel in panels)
    inner = max(panel.width for panel in panels)
    heading = textwrap.wrap(title, _TITLE_LINE)
    lines = [line for words in said for line in textwrap.wrap(words, _SAID_LINE)]
    out: list[str] = []
    y = 0.0
    for line in heading:
        y += 18
        out.append(text(0, y - 3, line, size=_TITLE, weight="600"))
    for line in lines:
        y += 16
        out.append(text(0, y - 2, line, size=_SAID, fill=MUTED))
    bold, plain = [text_width(line, _TITLE, bold=True) for line in heading], [text_width(line, _SAID) for line in lines]
    widest = max([0.0, *bold, *plain])
    y += _GAP if heading or lines else 0.0
    entries, wide, high = _legend(legend, max(inner, widest))
    out.append(element("g", "".join(entries), transform=f"translate(0,{y:.2f})") if entries else "")
    y += high + (4.0 if entries else 0.0)
    widest = max(widest, wide)
    for number, panel in enumerate(panels):
        y += panel.above + (_BETWEEN if number else 0.0)
        out.append(element("g", "".join(panel.elements), transform=f"translate(0,{y:.2f})", class_="panel"))
        y += panel.height + panel.below
        widest = max(widest, panel.width + panel.right)
    markup = element("g", "".join(out), transform=f"translate({left + _EDGE:.2f},{_EDGE:.2f})")
    return Chart(markup, math.ceil(left + widest + 2 * _EDGE), math.ceil(y + 2 * _EDGE))
