"""The choice of owners to ask, by what an asker has seen of their answers; it stays with the asker.

Where every owner was asked and has answered, the places that owners have in the list are kept, and the words of titles
and pieces of text that came. A query then asks the owners that led the lists of similar queries (Cetintas, Si & Yuan
2009), and of whose texts most pieces hold its words, as in ReDDE (Si & Callan 2003) with pieces in place of samples:
each way gives owners shares, which are added. The others do not see the query. What is kept is forgotten after
:data:`DAYS` days.
"""

from __future__ import annotations

import json
import logging
import math
import random
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from fedrank.core.errors import RunError
from fedrank.engine.checkpoint import write_atomically

#: Owners that are asked: this part, at least this number. On three seeds, by which :data:`FIRST` was chosen, four of
#: twelve owners have +.002 ± .003 nDCG@10 against all (``benchmarks.choice_of_owners``).
PART, LEAST = 1 / 3, 3
#: Queries that ask every owner before any is left out (after 100, four of twelve owners lose .008), and the part that
#: does so later: owners' documents change.
FIRST, EXPLORED = 300, 0.1
#: Similar queries, and pieces, that vote; the power of a piece's score.
_NEAREST, _VOTES, _POWER = 20, 50, 4
#: Queries and pieces that are kept, the latest ones, and the days for which they are.
_QUERIES, _PIECES = 1000, 20_000
DAYS = 30
_log = logging.getLogger("fedrank.search")


class PastAnswers:
    """Record of owners' answers that an asker has seen; for one thread at a time.

    Args:
        path: File to keep it in, readable by its owner alone; None: it ends with the process.

    Raises:
        RunError: The file cannot be read.
    """

    def __init__(self, path: Path | None = None):
        self._path, self._read = path, 0
        self._queries: list[tuple[int, list[str], dict[str, float]]] = []
        self._pieces: dict[tuple[str, str], set[str]] = {}
        self._days: dict[tuple[str, str], int] = {}
        self._holding: defaultdict[str, set[tuple[str, str]]] = defaultdict(set)
        self._read_again()

    def _read_again(self) -> None:
        """Read the file if another process has written it."""
        path = self._path
        if path is None or not path.exists() or path.stat().st_mtime_ns == self._read:
            return
        try:
            self._read = path.stat().st_mtime_ns
            kept = json.loads(path.read_text(encoding="utf-8"))
            oldest = int(time.time() // 86400) - DAYS
            self._queries = [(day, words, gains) for day, words, gains in kept["queries"] if day > oldest]
            self._pieces, self._days, self._holding = {}, {}, defaultdict(set)
            for day, owner, name, words in kept["pieces"]:
                if day > oldest:
                    self._add_piece(day, owner, name, words)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise RunError(f"{path}: cannot be read as past answers ({error}). Delete it to begin anew.") from error

    def record(self, words: Sequence[str], owners: Sequence[str], pieces: Iterable[tuple[str, str, set[str]]]) -> None:
        """Keep the answer to a query that every owner has answered; where that cannot be written, the log says so.

        Args:
            words: Words of the query.
            owners: The owner of each hit of the list, best first.
            pieces: Owner, title or beginning, and words of each hit that came with a text.
        """
        self._read_again()
        gains, day = defaultdict[str, float](float), int(time.time() // 86400)
        for place, owner in enumerate(owners):
            gains[owner] += 1 / math.log2(place + 2)
        kept = [query for query in self._queries[1 - _QUERIES :] if query[0] > day - DAYS]
        self._queries = [*kept, (day, [*words], dict(gains))]
        for owner, name, held in pieces:
            self._add_piece(day, owner, name, held)
        while self._pieces:
            oldest = next(iter(self._pieces))
            if len(self._pieces) <= _PIECES and self._days[oldest] > day - DAYS:
                break
            del self._days[oldest]
            for word in self._pieces.pop(oldest):
                self._holding[word].discard(oldest)
                if not self._holding[word]:
                    del self._holding[word]
        if self._path is not None:
            rows = [[self._days[key], *key, sorted(held)] for key, held in self._pieces.items()]
            try:
                write_atomically(self._path, json.dumps({"queries": self._queries, "pieces": rows}).encode(), 0o600)
                self._read = self._path.stat().st_mtime_ns
            except (RunError, OSError) as error:
                _log.warning("past answers are not kept: %s", error)

    def _add_piece(self, day: int, owner: str, name: str, words: Iterable[str]) -> None:
        held = self._pieces.setdefault((owner, name), set())
        held.update(words)
        self._days.setdefault((owner, name), day)
        for word in words:
            self._holding[word].add((owner, name))

    def choose(self, words: Sequence[str], owners: Sequence[str], draw: float | None = None) -> list[str]:
        """The owners to ask.

        Args:
            words: Words of the query.
            owners: All owners.
            draw: A number in [0, 1) that decides whether all are asked to learn; None: a random one.
        """
        most = max(LEAST, math.ceil(PART * len(owners)))
        draw = random.random() if draw is None else draw
        if most >= len(owners) or len(self._queries) < FIRST or draw < EXPLORED:
            return [*owners]
        shares = self.shares(words, owners)
        if not any(shares.values()):
            return [*owners]
        return sorted(owners, key=lambda owner: -shares[owner])[:most]

    def shares(self, words: Sequence[str], owners: Sequence[str]) -> dict[str, float]:
        """Each owner's share of the votes of queries, plus that of pieces: 0 to 2, together at most 2."""
        weights = self._weights(words)
        norm, votes = math.hypot(*weights.values()), list[tuple[float, dict[str, float]]]()
        for _, asked, gains in self._queries:
            other = self._weights(asked)
            if common := sum(weights[word] * other[word] for word in weights.keys() & other.keys()):
                votes.append((common / (norm * math.hypot(*other.values())), gains))
        past = defaultdict[str, float](float)
        for similar, gains in sorted(votes, key=lambda vote: -vote[0])[:_NEAREST]:
            for owner, gain in gains.items():
                past[owner] += similar * gain
        scores = defaultdict[tuple[str, str], float](float)
        for word, weight in weights.items():
            for key in self._holding.get(word, ()):
                scores[key] += weight
        best = Counter({key: score / math.sqrt(max(len(self._pieces[key]), 4)) for key, score in scores.items()})
        seen, top = defaultdict[str, float](float), best.most_common(_VOTES)
        for (owner, _), score in top:
            seen[owner] += (score / top[0][1]) ** _POWER
        found = dict.fromkeys(owners, 0.0)
        for way in (past, seen):
            total = sum(way.get(owner, 0.0) for owner in owners)
            for owner in owners:
                found[owner] += way.get(owner, 0.0) / total if total else 0.0
        return found

    def _weights(self, words: Sequence[str]) -> Mapping[str, float]:
        """Words of a query with their number times their rarity among the pieces."""
        count = len(self._pieces)
        return {
            word: number
            * math.log1p((count - len(self._holding.get(word, ())) + 0.5) / (len(self._holding.get(word, ())) + 0.5))
            for word, number in Counter(words).items()
        }
