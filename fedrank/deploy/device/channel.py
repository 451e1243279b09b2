"""What a device can say about who could put its messages together, and what a relay is worth. NumPy."""

from __future__ import annotations

import math

from fedrank.core.privacy_report import DELTA, Promise, Unit
from fedrank.core.words import counted
from fedrank.deploy.terms import Terms
from fedrank.privacy.accounts.shuffle import any_shuffled_epsilon, shuffled_epsilon

#: Basis of the ε of a message that is hidden among those which a relay passes on with it.
AMONG = "an anonymous channel"
#: Whom one has to trust for that.
RELAY = "whoever runs the relay and whoever runs the hub, not to tell each other what they see"
#: What no ε is about, by how messages reach the hub.
HISTORY = (
    "Which messages are of the same device: they show one token, and the hub keeps them under one number, as a history."
)
ADDRESS = (
    "Which messages come from the same network address: the hub cannot tell by their tokens that they are of one "
    "device, and sees the address."
)


def credit(terms: Terms, relayed: bool) -> Promise | None:
    """ε of one message among those that a relay passes on together; None where none is credited.

    None is where the terms promise no batch, where the device does not go through a relay, where the bound is no
    better than the ε that holds without it, and where SciPy is not installed, which computes it.

    Args:
        terms: Of the hub.
        relayed: Whether the device reports through a relay.
    """
    if not relayed or terms.batch < 2 or not 0 < terms.epsilon_message < math.inf:
        return None
    try:
        if terms.piecewise is not None:
            epsilon = shuffled_epsilon(terms.piecewise, terms.batch, DELTA)
        else:
            epsilon = any_shuffled_epsilon(terms.epsilon_message, terms.batch, DELTA)
    except ImportError:
        return None
    if epsilon > 0.99 * terms.epsilon_message:
        return None
    return Promise(Unit.MESSAGE, epsilon, DELTA, AMONG)


def linking(terms: Terms, relayed: bool) -> tuple[str, ...]:
    """What nothing promises about who can put messages of a device together."""
    if not terms.tokens:
        return (HISTORY,)
    return () if relayed else (ADDRESS,)


def in_words(terms: Terms, relayed: bool) -> tuple[str, ...]:
    """Who could put messages of a device together, in a paragraph; none where the hub can."""
    if not terms.tokens:
        return ()
    rounds = "a round" if terms.tokens == 1 else counted(terms.tokens, "round")
    words = (
        f"A message is shown with a token that this device bought blindly, one for {rounds}: whoever sold it cannot "
        "tell whose it is, nor which messages are of one device."
    )
    if not relayed:
        return (words,)
    words += (
        " Everything goes through a relay, which sees this device's network address and nothing inside, while the hub "
        f"sees what is inside and no address. The relay passes on at least {counted(terms.batch, 'report')} together. "
        f"One has to trust {RELAY}."
    )
    if (among := credit(terms, relayed)) is not None:
        words += (
            f" Then, and if the others in the batch are other people's, one message has ε = {among.epsilon:.3g}, but "
            f"for a chance of 1 in {1 / among.delta:,.0f} (δ). Else what is said above holds."
        )
    return (words,)
