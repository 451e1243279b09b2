"""Largest ε, in nats, that a person's device agrees to where its app, or those who run a node, say nothing.

The messages of a device add up over all its rounds and hubs. Eight is the largest sum for which the project states what
learning costs (one, four and eight); the factor by which it bounds what anybody can tell of a person, e⁸, is large, and
an app that can do with less should say so.
"""

from __future__ import annotations

#: Largest ε of one search.
MOST_SEARCH_EPSILON = 4.0
#: Largest ε of one message, or of one round.
MOST_EPSILON = 4.0
#: Largest ε of all messages, or of a run as a whole.
LIFETIME_EPSILON = 8.0
