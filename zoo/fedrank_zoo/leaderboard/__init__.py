"""Every method that ranks, under the same budgets: a grid of cells, and a page of what they came to.

A cell is a method on one division of a data set, for one kind of users, one way in which devices differ, one promise of
privacy, and attackers or none (:mod:`~fedrank_zoo.leaderboard.grid`). It is an ordinary run
(:mod:`~fedrank_zoo.leaderboard.cell`), whose values are pooled over divisions and seeds and compared query by query
(:mod:`~fedrank_zoo.leaderboard.standings`). Methods are those that packages register: there is no list of them
here.
"""
