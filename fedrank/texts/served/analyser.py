"""The analyser of a federation: how texts and queries are cut into the words that an index holds.

All owners and askers of a federation use one; ``federation.toml`` names its languages. In order:

* Unicode's compatibility form (NFKC) and case folding; accents of Latin letters are taken off, invisible characters
  left out, digits of every script written as 0 to 9;
* a word is a run of letters and digits of scripts with spaces; ``C++``, ``C#`` and ``R&D`` are words, as is a single
  character or an emoji;
* Chinese, Japanese and Korean runs are cut into overlapping pairs of characters, Thai, Lao, Khmer and Burmese ones into
  pairs of syllable parts (a letter with its marks), since no spaces stand between their words;
* other words are stemmed (Snowball) in the language of the document, among those named that are written in the word's
  script, and left out if they are stop words of it (those that bm25s has). A document's language is the one whose stop
  words it holds most of; a query is too short to tell, so its words are stemmed in each.
"""

from __future__ import annotations

import functools
import hashlib
import json
import re
import sys
import unicodedata
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from fedrank.core.errors import ConfigError
from fedrank.core.lazy import OptionalModule

bm25s = OptionalModule("bm25s", "texts", "The words of texts")
Stemmer = OptionalModule("Stemmer", "texts", "The words of texts")

#: Languages that are cut into pairs, and need no stemmer.
_PAIRED = ("chinese", "japanese", "khmer", "korean", "lao", "burmese", "thai")
#: Scripts of languages that are not written in Latin letters, as Unicode names their letters.
_SCRIPTS = {
    "arabic": "ARABIC",
    "persian": "ARABIC",
    "armenian": "ARMENIAN",
    "russian": "CYRILLIC",
    "greek": "GREEK",
    "hindi": "DEVANAGARI",
    "nepali": "DEVANAGARI",
    "tamil": "TAMIL",
    "yiddish": "HEBREW",
}
_INVISIBLE = dict.fromkeys(map(ord, "\u00ad\u0640\u200b\u200c\u200d\u2060\ufe0e\ufe0f\ufeff"))
#: Latin letters that Unicode does not take apart.
_WHOLE = str.maketrans({"ø": "o", "đ": "d", "ł": "l", "æ": "ae", "œ": "oe", "\u0131": "i"})
#: Han, kana and Hangul; and the scripts of South East Asia that put no spaces between words.
_CJK = "\u3005\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff"
_UNSPACED = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff"
_EMOJI = "\u2600-\u27bf\u2b50\u2b55\U0001f1e6-\U0001f3fa\U0001f400-\U0001faff"
#: Text whose words change where the rules, a list of stop words or a stemmer change.
_PROBE = (
    "The generously happier nationalities were organising rational relational traditions, wolves' knives, dying and "
    "dies; C++ 7 x1 isn't e-mail Ünïcode naïve flies skies agreed hopping hoping able-bodied university universe their "
    "die Häuser der Straße les chevaux étaient نظام المعلومات 信息检索 検索エンジン 정보 검색 ระบบค้นหา "
    "информации R&D 🙂 第3季度C++语言"
)
#: Different words whose stems are kept in memory.
_REMEMBERED = 500_000


@functools.cache
def _patterns() -> tuple[re.Pattern[str], re.Pattern[str], re.Pattern[str]]:
    """Patterns of a word; of one where all is ASCII; of a letter with its marks where words have no spaces."""
    marks = "".join(chr(c) for c in range(0x300, sys.maxunicode) if unicodedata.category(chr(c)).startswith("M"))

    def word(letter: str, joint: str) -> str:
        letter = f"(?:{letter})"
        return rf"{letter}+(?:{joint}{letter}+)*(?:(?:\+\+|\#)(?!{letter}))?"

    any_word = word(rf"(?![{_CJK}{_UNSPACED}{_EMOJI}])(?:[^\W_]|[{marks}])", "['’&]")
    every = f"[{_CJK}]+|[{_UNSPACED}]+|[{_EMOJI}]|{any_word}"
    return re.compile(every), re.compile(word("[a-z0-9]", "&")), re.compile(f"[เ-ไ]?.[{marks}]*", re.DOTALL)


def fold(text: str) -> str:
    """The text in the form in which words are compared."""
    if text.isascii():
        return text.lower()
    text = unicodedata.normalize("NFKC", text).translate(_INVISIBLE).casefold()
    apart = unicodedata.normalize("NFD", text.translate(_WHOLE))
    text = unicodedata.normalize("NFC", re.sub("(?<=[a-z])[\u0300-\u036f]+", "", apart))
    return re.sub(r"[^\D0-9]", lambda digit: str(unicodedata.decimal(digit[0])), text)


@dataclass(frozen=True)
class Analyser:
    """Cuts texts into words.

    Attributes:
        languages: Languages of the texts, such as ``("english", "german", "chinese")``.

    Raises:
        ConfigError: A language is unknown.
        MissingExtraError: The extra ``texts`` is not installed.
    """

    languages: tuple[str, ...] = ("english",)

    def __post_init__(self) -> None:
        known = sorted({*Stemmer.algorithms(), *_PAIRED})
        if not self.languages or (wrong := next((one for one in self.languages if one not in known), None)):
            raise ConfigError(
                f"languages must name some of {', '.join(known)}, got {wrong if self.languages else ''!r}."
            )

    def cut(self, text: str) -> list[str]:
        """The words of a document's text, in order."""
        rough, language = _rough(text), 0
        if len(self._known) > 1:  # the language whose stop words are most often here; the first of as many
            listed = [sum(word in own.stop_words for word in rough) for own in self._known]
            language = listed.index(max(listed))
        known = self._known[language]
        return [stem for word in rough if (stem := known[word])]

    def cut_query(self, query: str) -> list[str]:
        """The words of a query, in order; of one word each different stem, where there are several languages."""
        return [stem for word in _rough(query) for stem in dict.fromkeys(own[word] for own in self._known) if stem]

    def cut_each(self, text: str) -> list[list[str]]:
        """The words of a text in each language that is written in Latin letters; of one, where there is none."""
        rough = _rough(text)
        return [[stem for word in rough if (stem := own[word])] for own in self._known]

    def find(self, text: str, words: Collection[str]) -> list[tuple[int, int, str]]:
        """Start, end and word of each place of a text where one of these words, which were cut, stands; in order."""
        pattern, plain, _ = _patterns()
        ascii = text.isascii() and "'" not in text
        found: list[tuple[int, int, str]] = []
        for run in (plain if ascii else pattern).finditer(text.lower() if ascii else text):
            start, end = run.span()
            if run[0] >= "\u0e00" and re.match(f"[{_CJK}{_UNSPACED}]", run[0]):
                folded = fold(run[0])
                if len(folded) == end - start:
                    places = ((start + one.start(), w) for w in words for one in re.finditer(re.escape(w), folded))
                    found += ((at, at + len(word), word) for at, word in places)
                continue
            stems = (own[word] for word in ([run[0]] if ascii else _rough(run[0])) for own in self._known)
            if stem := next((stem for stem in stems if stem in words), None):
                found.append((start, end, stem))
        return sorted(found)

    @functools.cached_property
    def fingerprint(self) -> str:
        """16 characters that differ where texts are cut otherwise."""
        cut = [self.languages, self.cut(_PROBE), self.cut_query(_PROBE)]
        return hashlib.sha256(json.dumps(cut).encode()).hexdigest()[:16]

    @functools.cached_property
    def _known(self) -> list[_Stems]:
        """The words of texts in each language that is written in Latin letters; of one, where there is none."""
        others = {_SCRIPTS[one]: one for one in reversed(self.languages) if one in _SCRIPTS}
        latin = [one for one in self.languages if one not in _SCRIPTS and one not in _PAIRED]
        return [_Stems({**others, "LATIN": one} if one else others) for one in latin or [""]]


def _rough(text: str) -> list[str]:
    """Words before stop words are left out and stems made."""
    pattern, plain, unit = _patterns()
    folded = fold(text)
    if folded.isascii() and "'" not in folded:
        return plain.findall(folded)
    out: list[str] = []
    for run in pattern.findall(folded):
        if run[0] >= "\u0e00" and re.match(f"[{_CJK}{_UNSPACED}]", run[0]):
            parts = unit.findall(run)
            out += ("".join(parts[place : place + 2]) for place in range(max(1, len(parts) - 1)))
        elif "'" in run or "’" in run:  # isn't, l'eau: the longest part
            out.append(max(re.split("['’]", run), key=len))
        else:
            out.append(run)
    return out


class _Stems(dict[str, str]):
    """Word → its stem, empty for a stop word; made when first asked for.

    Args:
        languages: Script, as Unicode names its letters → language.
    """

    def __init__(self, languages: Mapping[str, str]):
        super().__init__()
        self._stemmers: dict[str, Any] = {script: Stemmer.Stemmer(one) for script, one in languages.items()}
        lists = ("STOPWORDS_EN" if one == "english" else f"STOPWORDS_{one.upper()}" for one in languages.values())
        self.stop_words = {fold(word) for name in lists for word in getattr(bm25s.stopwords, name, ())}

    def __missing__(self, word: str) -> str:
        if len(self) >= _REMEMBERED:
            self.clear()
        script = "LATIN" if word.isascii() else unicodedata.name(word[0], "").partition(" ")[0]
        stemmer = self._stemmers.get(script)
        stem = "" if word in self.stop_words else word if stemmer is None else str(stemmer.stemWord(word))
        self[word] = stem
        return stem


@functools.cache
def english() -> Analyser:
    """The analyser of federations that name no language."""
    return Analyser()
