"""Every method that ranks, under the same budgets: a grid of cells, and a page of what they came to.

A cell is a method on one division of a data set, for one kind of users, one way in which devices differ, one promise of
privacy, and attackers or none (:mod:`~fedrank.ranking.leaderboard.grid`). It is an ordinary run
(:mod:`~fedrank.ranking.leaderboard.cell`), whose values are pooled over divisions and seeds and compared query by query
(:mod:`~fedrank.ranking.leaderboard.standings`). Methods are those that packages register: there is no list of them
here.
"""
