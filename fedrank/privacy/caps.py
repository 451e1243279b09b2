"""Largest ε, in nats, that a person's device agrees to where its app, or those who run a node, say nothing.

They are what a hub asks for where nothing is said (:mod:`fedrank.deploy.hub.settings`): one message of ε = 1 in a
device's life. The messages of a device add up over all its rounds and hubs, so a second hub, or a hub that wants more,
is for the app to allow.
"""

from __future__ import annotations

#: Largest ε of one search.
MOST_SEARCH_EPSILON = 1.0
#: Largest ε of one message, or of one round.
MOST_EPSILON = 1.0
#: Largest ε of all messages, or of a run as a whole.
LIFETIME_EPSILON = 1.0
