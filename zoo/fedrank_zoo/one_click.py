"""Users who click once: the cascade model (Craswell, Zoeter, Taylor, Ramsey, WSDM 2008, Section 3.4)."""

from __future__ import annotations

from fedrank.ranking.clicks.browsing import attraction
from fedrank.ranking.clicks.cascade import CascadeUser


def one_click(grades: int, depth: int = 10) -> CascadeUser:
    """Reads from the top, clicks the first result that attracts, and leaves.

    With the attraction a(r) of a label r, :func:`fedrank.ranking.clicks.browsing.attraction`, the only click is at rank
    k with probability a(r_k) Π_{j<k} (1 − a(r_j)).

    Args:
        grades: Grades of relevance in the data.
        depth: Results shown.

    Raises:
        ConfigError: There are more grades than click models know.
    """
    return CascadeUser("one-click", attraction(grades), (1.0,) * grades, depth)
