"""A query as people type it: words, phrases, exclusions, filters; and the piece of a text that shows why it was found.

========================================  ====================================================================
``heated wings``                          documents with any of the words, best first
``heat*``                                 documents with words whose stem begins so (three letters or more)
``"heated wings"``                        only documents that have these words in this order
``-supersonic``, ``-"heated wings"``      only documents without
``type:pdf``, ``author:smith``            only documents of this type; whose author's name holds this
``after:2024-03``, ``before:2025``        only documents whose date is that or later; is earlier
========================================  ====================================================================

Anything else with a colon is words. What a document lacks, such as a date of this form, meets no filter. A word that no
document holds is searched as it stands; an owner names the nearest word that one does.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any, NamedTuple

from fedrank.core.errors import ConfigError, WireError
from fedrank.core.trees import Json
from fedrank.texts.served.analyser import Analyser, fold
from fedrank.texts.served.documents import Words

#: Filters, and when the value that a document has meets what was asked for; both in lower case.
_FILTERS: dict[str, tuple[str, Callable[[str, str], bool]]] = {
    "type": ("type", lambda has, asked: has == asked),
    "author": ("author", lambda has, asked: asked in has),
    "after": ("date", lambda has, asked: has >= asked),
    "before": ("date", lambda has, asked: has < asked),
}
_DATE = re.compile(r"\d{4}(-\d\d(-\d\d)?)?", re.ASCII)
#: Most phrases, and exclusions, of a query; characters of one, and of a filter's value.
_MOST, _LONGEST = 16, 100
#: Characters of a snippet, and before its first word that was asked for.
SNIPPET, _BEFORE = 200, 40
_PART = re.compile(
    rf'(?<!\S)(?:(?P<filter>{"|".join(_FILTERS)}):(?P<value>"[^"]+"|\S+)|(?P<not>-?)"(?P<phrase>[^"]+)"|-(?P<word>\w\S*))'
)


@dataclass(frozen=True)
class Conditions:
    """Conditions that documents have to meet beside holding words of the query.

    Attributes:
        phrases: Texts whose words stand one after the other in title or text.
        without: Texts whose words do not.
        filters: Name → value, see the table above.
    """

    phrases: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    filters: Mapping[str, str] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.phrases or self.without or self.filters)

    def as_json(self) -> dict[str, Json]:
        """JSON of the conditions; empty where there are none."""
        parts = {"phrases": [*self.phrases], "without": [*self.without], "filters": dict(self.filters)}
        return {name: value for name, value in parts.items() if value}

    @classmethod
    def from_json(cls, given: Any) -> Conditions:
        """The inverse, of a question that may come from a stranger.

        Raises:
            WireError: It is none, or larger than any.
        """
        parts = given if isinstance(given, dict) else {"": given}
        filters = parts.get("filters", {})
        lists = [parts.get(name, []) for name in ("phrases", "without")]
        if (
            not set(parts) <= {"phrases", "without", "filters"}
            or not isinstance(filters, dict)
            or not set(filters) <= set(_FILTERS)
            or not all(isinstance(one, list) and len(one) <= _MOST for one in lists)
            or not all(
                isinstance(one, str) and len(one) <= _LONGEST for one in [*lists[0], *lists[1], *filters.values()]
            )
            or not all(_is_date(name, value) for name, value in filters.items())
        ):
            raise WireError(
                f"conditions are phrases and without, lists of at most {_MOST} texts of at most {_LONGEST} characters, "
                f"and filters, of {', '.join(_FILTERS)}."
            )
        return cls(tuple(lists[0]), tuple(lists[1]), filters)

    def meet(self, about: Mapping[str, str], words: Words, analyser: Analyser) -> bool:
        """True if a document, or a passage of it, meets all of them.

        Args:
            about: What is known about the document.
            words: Its words.
            analyser: Cuts phrases as it cut the words.
        """
        for name, asked in self.filters.items():
            key, meets = _FILTERS[name]
            has = about.get(key, "").lower()
            if not has or (key == "date" and not _DATE.fullmatch(has)) or not meets(has, asked):
                return False
        texts = [f" {' '.join(part)} " for part in (words.title, words.body)] if self.phrases or self.without else []

        def stands(phrase: str) -> bool:  # in whichever language the document was cut
            ways = [f" {' '.join(words)} " for words in analyser.cut_each(phrase)]
            return any(way in text for way in ways for text in texts)

        return all(map(stands, self.phrases)) and not any(map(stands, self.without))

    def list_needed(self, analyser: Analyser) -> set[str]:
        """Words that every document that meets them holds; none where words have several forms."""
        ways = [analyser.cut_each(phrase) for phrase in self.phrases]
        return {word for way in ways if len(way) == 1 for word in way[0]}


NO_CONDITIONS = Conditions()


def _is_date(name: str, value: str) -> bool:
    """False of a value that is no date where a filter needs one."""
    return _FILTERS[name][0] != "date" or _DATE.fullmatch(value) is not None


def parse_query(query: str, analyser: Analyser) -> tuple[str, Conditions]:
    """The words of a query as they were typed, those of its phrases among them, and its conditions.

    Args:
        query: What a person typed.
        analyser: Cuts texts into words; a phrase of stop words alone is no condition.

    Raises:
        ConfigError: A filter stands twice, or has no date where it needs one.
    """
    phrases, without, filters = list[str](), list[str](), dict[str, str]()
    rest, at = list[str](), 0
    for found in _PART.finditer(query):
        rest.append(query[at : found.start()])
        at = found.end()
        if found["filter"]:
            name, value = found["filter"], found["value"].strip('"').lower()[:_LONGEST]
            if name in filters:
                raise ConfigError(f"{name}: stands twice in the query; say it once.")
            filters[name] = value
            continue
        text, negative = (found["phrase"] or found["word"])[:_LONGEST], bool(found["word"] or found["not"])
        if "*" in text:
            raise ConfigError(
                f"an asterisk stands for endings of single words, not in phrases and exclusions: {text!r}."
            )
        if any(analyser.cut_each(text)):
            (without if negative else phrases).append(text)
        if not negative:
            rest.append(text)
    if wrong := next((name for name, value in filters.items() if not _is_date(name, value)), None):
        raise ConfigError(f"{wrong}: needs a date such as 2024-03, got {filters[wrong]!r}.")
    typed = " ".join(" ".join([*rest, query[at:]]).split())
    return typed, Conditions(tuple(phrases[:_MOST]), tuple(without[:_MOST]), filters)


_BEGINNING = re.compile(r"(?<![\w*&'-])([^\W_]{3,})\*(?![\w*])")
#: Most beginnings of words of a query.
_MOST_BEGINNINGS = 4


def words_of_query(query: str, analyser: Analyser) -> list[str]:
    """The words of a query that owners look for; of ``heat*`` the beginning, with the asterisk.

    Args:
        query: The first result of :func:`parse_query`.
        analyser: Cuts it.
    """
    begins = list[str]()
    for typed in _BEGINNING.findall(query)[:_MOST_BEGINNINGS]:
        folded = fold(typed)
        for stem in analyser.cut_query(typed):  # energy* is looked for as energ*: the index holds energi
            common = "".join(a for a, _ in takewhile(lambda pair: pair[0] == pair[1], zip(folded, stem, strict=False)))
            begins.append((common if len(common) >= min(3, len(folded)) else folded) + "*")
    return [*analyser.cut_query(_BEGINNING.sub(" ", query, count=_MOST_BEGINNINGS)), *dict.fromkeys(begins)]


class Snippet(NamedTuple):
    """A piece of a text.

    Attributes:
        text: At most :data:`SNIPPET` characters in one line.
        marks: Start and end of each word that was asked for, in order.
    """

    text: str
    marks: tuple[tuple[int, int], ...]


NO_SNIPPET = Snippet("", ())


def find_snippet(text: str, words: Sequence[str], analyser: Analyser) -> Snippet:
    """The piece of a text with most different words of a query; its beginning where there is none.

    Args:
        text: The text.
        words: Words of the query.
        analyser: Cut them.
    """
    text = " ".join(text.split())
    places, width = analyser.find(text, words), SNIPPET - _BEFORE
    best, most, first, within = 0, 0, 0, Counter[str]()
    for place, (_, end, word) in enumerate(places):
        within[word] += 1
        while first < place and end > places[first][0] + width:
            within[places[first][2]] -= 1
            within += Counter()  # forgets words that the window has left
            first += 1
        if len(within) > most:
            best, most = first, len(within)
    start = max(0, places[best][0] - _BEFORE) if most else 0
    if start:  # at the beginning of a word, where one is near
        start = next((at + 1 for at in range(start, start + _BEFORE) if text[at] == " "), start)
    piece, marks = text[start : start + SNIPPET], list[tuple[int, int]]()
    if len(text) > start + SNIPPET:  # ends with a word, where one ends near and all that was asked for stays
        last = max((end for at, end, _ in places if at >= start and end <= start + SNIPPET), default=start)
        cut = text.rfind(" ", max(last, start + SNIPPET - _BEFORE), start + SNIPPET + 1)
        piece = text[start:cut] if cut >= 0 else piece
    for at, end, _ in places:
        if at < start or end > start + len(piece):
            continue
        if marks and at - start <= marks[-1][1]:  # pairs of characters overlap
            marks[-1] = marks[-1][0], max(marks[-1][1], end - start)
        else:
            marks.append((at - start, end - start))
    return Snippet(piece, tuple(marks))


def snippet_of(given: Any) -> Snippet:
    """A snippet of an owner's answer; empty where it is none."""
    try:
        text, at = str(given["text"])[:SNIPPET], 0
        marks = [(int(start), int(end)) for start, end in given["marks"][:SNIPPET]]
        for start, end in marks:
            if not at <= start < end <= len(text):
                return Snippet(text, ())
            at = end
        return Snippet(text, tuple(marks))
    except (KeyError, TypeError, ValueError, IndexError, OverflowError):
        return NO_SNIPPET
