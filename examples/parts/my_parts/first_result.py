"""Users who look at one result."""

from fedrank.ranking.clicks.cascade import CascadeUser


def first_result(grades, depth=10):
    """Clicks the first result, the more surely the more relevant it is, and looks at no other."""
    clicks = tuple(grade / (grades - 1) for grade in range(grades))
    return CascadeUser("first-result", clicks, (1.0,) * grades, depth, abandon=1.0)
