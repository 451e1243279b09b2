"""The attack by clicks: attackers poison the data rather than their messages.

A device with such a user keeps to its protocol. It ranks, privatises and reports as it should, so that no check of its
messages can tell; what it reports is true, of a person who wants the opposite.
"""

from __future__ import annotations

import dataclasses

from fedrank.ranking.clicks.cascade import CascadeUser


def inverted_user(user: CascadeUser) -> CascadeUser:
    """The user with the click probabilities of the grades in reverse order: the worst document is the most attractive.

    The stop probabilities stay with their grades, so that only what is clicked is a lie. The poisoned click model of
    the published studies is this one of the *perfect* user (P(click) = 1, 0.5, 0 for grades 0, 1, 2; it never stops),
    whatever the honest users are.

    Args:
        user: An honest user.

    Returns:
        The same user, poisoned; its name begins with ``inverted``.

    Source:
        Wang and Zuccon: *An analysis of untargeted poisoning attack and defense methods for federated online learning
        to rank systems*, ICTIR 2023; Tao et al.: *Unlearning for federated online learning to rank: a reproducibility
        study*, SIGIR 2025.

    >>> from fedrank.ranking.clicks.cascade import cascade
    >>> inverted_user(cascade("perfect")).click
    (1.0, 0.5, 0.0)
    """
    return dataclasses.replace(user, name=f"inverted {user.name}", click=user.click[::-1])
