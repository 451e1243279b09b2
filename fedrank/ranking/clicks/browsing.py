"""Users who skip ranks or lose patience: position-based, user browsing and dynamic Bayesian click models.

All are a :class:`~fedrank.ranking.clicks.cascade.CascadeUser` with two more probabilities: that a rank is looked at,
and that a user leaves who did not click. So all have exact click probabilities, and every protocol takes them.

* **Position-based** (Richardson et al. 2007): P(examined at rank k) = (1/k)^η whatever happens, with η = 1 (Joachims,
  Swaminathan, Schnabel, WSDM 2017). A user reads to the end.
* **User browsing** (Dupret and Piwowarski, SIGIR 2008): P(examined) depends on the rank and on how far above it the
  last click was. The table is theirs of a commercial engine's log, as the unbiased learning-to-rank literature
  simulates with it (Ai et al., SIGIR 2018). Beyond rank ten its last row goes on.
* **Dynamic Bayesian** (Chapelle and Zhang, WWW 2009): after a click the user is satisfied, and leaves, with a
  probability that rises with the label; who is not satisfied, or did not click, goes on with probability γ = 0.9, and
  leaves otherwise. **Simplified** is γ = 1.

What a result attracts with by its label r of at most R is ε + (1 − ε)(2^r − 1)/(2^R − 1) with ε = 0.1 (Ai et al. 2018);
what it satisfies with is (2^r − 1)/2^R, the editorial grade as expected reciprocal rank reads it (Chapelle, Metzler,
Zhang, Grinspan, CIKM 2009).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from fedrank.core.errors import FormatError, MissingDataError
from fedrank.core.registry import Entry
from fedrank.ranking.clicks.cascade import CascadeUser, check_grades

#: Probability that a result without relevance is clicked when it is looked at.
NOISE = 0.1
#: γ of the dynamic Bayesian user.
PERSEVERANCE = 0.9

#: First line of a file that holds a fitted user.
FORMAT = "fedrank click model 1"

#: Row k: P(examined at rank k), where the last click was 1, 2, … ranks above; the last entry without a click.
_EXAMINE: tuple[tuple[float, ...], ...] = (
    (1.0,),
    (0.98, 1.0),
    (1.0, 0.62, 0.95),
    (1.0, 0.77, 0.42, 0.82),
    (1.0, 0.92, 0.55, 0.31, 0.69),
    (1.0, 0.96, 0.63, 0.4, 0.22, 0.54),
    (1.0, 0.99, 0.73, 0.46, 0.29, 0.17, 0.47),
    (1.0, 1.0, 0.89, 0.52, 0.35, 0.24, 0.14, 0.43),
    (1.0, 1.0, 0.95, 0.68, 0.4, 0.29, 0.19, 0.12, 0.41),
    (1.0, 1.0, 1.0, 0.96, 0.52, 0.36, 0.27, 0.18, 0.12, 0.43),
)


def attraction(grades: int) -> tuple[float, ...]:
    """P(click | label, examined) of each grade; of one grade ε.

    Raises:
        ConfigError: There are more grades than click models know.

    >>> attraction(3)
    (0.1, 0.4, 1.0)
    """
    check_grades(grades)
    best = max(1, 2 ** (grades - 1) - 1)
    return tuple(NOISE + (1 - NOISE) * (2**label - 1) / best for label in range(grades))


def satisfaction(grades: int) -> tuple[float, ...]:
    """P(satisfied | label, click) of each grade.

    >>> satisfaction(3)
    (0.0, 0.25, 0.75)
    """
    return tuple((2**label - 1) / 2 ** (grades - 1) for label in range(grades))


def by_rank(examined: tuple[float, ...]) -> tuple[tuple[float, ...], ...]:
    """``examine`` of a user whose looks at a rank depend on the rank alone: ``examined[k]`` at rank k + 1."""
    return tuple((value,) * (rank + 1) for rank, value in enumerate(examined))


def position_based(grades: int, depth: int = 10, eta: float = 1.0) -> CascadeUser:
    """The position-based user: P(examined at rank k) = (1/k)^η."""
    examined = tuple((1 / rank) ** eta for rank in range(1, depth + 1))
    return CascadeUser("position-based", attraction(grades), (0.0,) * grades, depth, by_rank(examined))


def user_browsing(grades: int, depth: int = 10) -> CascadeUser:
    """The user browsing model's user, with the published table."""
    rows = list(_EXAMINE[:depth])
    while len(rows) < depth:  # further ranks are looked at as the tenth is
        rows.append((*rows[-1][:-1], *rows[-1][-2:]))
    return CascadeUser("user-browsing", attraction(grades), (0.0,) * grades, depth, tuple(rows))


def dynamic_bayesian(
    grades: int, depth: int = 10, perseverance: float = PERSEVERANCE, name: str = "dynamic-bayesian"
) -> CascadeUser:
    """The dynamic Bayesian network's user: leaves when satisfied, or with 1 − γ at every rank."""
    stop = tuple(1 - (1 - satisfied) * perseverance for satisfied in satisfaction(grades))
    return CascadeUser(name, attraction(grades), stop, depth, abandon=1 - perseverance)


def simplified_dynamic_bayesian(grades: int, depth: int = 10) -> CascadeUser:
    """The dynamic Bayesian user who never loses patience, γ = 1."""
    return dynamic_bayesian(grades, depth, 1.0, "simplified-dynamic-bayesian")


def _entry(make: Callable[[int, int], CascadeUser], summary: str, citation: str) -> Entry[Callable]:
    return Entry(make(2, 1).name, make, summary, citation)


def is_file(name: str) -> bool:
    """True if ``name`` is a file with a fitted user, not the name of a click model."""
    return name.endswith(".json")


def user_of_file(path: str | Path, grades: int, depth: int) -> CascadeUser:
    """A user that was fitted to a log (``fedrank data clicks fit`` of ``fedrank-zoo``), for a number of grades.

    Raises:
        MissingDataError: There is no such file.
        FormatError: It is no fitted click model, or one of shorter lists.
    """
    path = Path(path)
    if not path.is_file():
        raise MissingDataError("there is no such file; fedrank data clicks fit --out of fedrank-zoo writes one.", path)
    try:
        kept = json.loads(path.read_text(encoding="utf-8"))
        if kept["format"] != FORMAT:
            raise KeyError("format")
        examine = tuple(tuple(map(float, row)) for row in kept["examine"][:depth])
        stop, abandon = float(kept["stop"]), float(kept["abandon"])
    except (ValueError, KeyError, TypeError, AttributeError) as cause:
        raise FormatError(f"this is no click model of fedrank data clicks fit: {cause}.", path) from cause
    if examine and len(examine) < depth:
        raise FormatError(f"it was fitted to lists of {len(examine)} results, {depth} are shown.", path)
    return CascadeUser(path.stem, attraction(grades), (stop,) * grades, depth, examine, abandon)


POSITION_BASED = _entry(position_based, "Looks at rank k with probability 1/k, come what may.", "joachims2017ips")
USER_BROWSING = _entry(
    user_browsing, "Looks at a rank by how far above it the last click was; the published table.", "dupret2008ubm"
)
DYNAMIC_BAYESIAN = _entry(
    dynamic_bayesian, "Leaves when satisfied, and at any rank with probability 0.1.", "chapelle2009dbn"
)
SIMPLIFIED_DYNAMIC_BAYESIAN = _entry(
    simplified_dynamic_bayesian, "Leaves when satisfied, and only then.", "chapelle2009dbn"
)
