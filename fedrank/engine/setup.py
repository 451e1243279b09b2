"""A protocol's setup, simulated: exchanges on the host, party after party, every message written down.

The same ``ask``, ``respond`` and ``tell`` as in a deployment; a deployed party draws from its operating system.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

import numpy as np

from fedrank.core.arrays import PyTree
from fedrank.core.ledger import Ledger
from fedrank.core.messages import Layout
from fedrank.core.protocol import Party, Protocol


def run_setup(
    setup: Protocol,
    parties: list[Party],
    rng: np.random.Generator,
    *,
    absent: Collection[tuple[str, int]] = (),
    through_bytes: bool = False,
    heard: Callable[[str], None] | None = None,
) -> tuple[PyTree, list[Party], Ledger]:
    """One round of exchanges on the host.

    Args:
        setup: The protocol.
        parties: Its parties.
        rng: The simulation's chance; each party gets its own generator for each exchange.
        absent: Exchange and party that is not heard there, nor in what follows.
        through_bytes: Encode and decode every message, as a network would.
        heard: Is told the name of each exchange before it takes place.

    Returns:
        The server's state, the parties with what they have for themselves now, and what crossed.

    Raises:
        FedrankError: What an exchange raises; too few parties are left, for instance.
    """
    state, parties, ledger = setup.init(None), list(parties), Ledger()
    seeds = rng.bit_generator.seed_seq.spawn(len(setup.exchanges))  # type: ignore[attr-defined]
    gone: set[int] = set()
    for exchange, seed in zip(setup.exchanges, seeds, strict=True):
        if heard is not None:
            heard(exchange.name)
        draws = [np.random.default_rng(own) for own in seed.spawn(len(parties))]
        gone |= {party for name, party in absent if name == exchange.name}
        asked = exchange.asked(state, len(parties))
        asked = np.ones(len(parties), bool) if asked is None else np.asarray(asked, bool)
        replies: list[PyTree] = [None] * len(parties)
        for number in np.flatnonzero(asked).tolist():
            request = exchange.address(state, number)
            if through_bytes:
                request = exchange.request.decode(exchange.request.encode(request))
            if number not in gone:
                parties[number], reply = exchange.respond(request, parties[number], exchange.draw(draws[number]))
                replies[number] = exchange.reply.decode(exchange.reply.encode(reply)) if through_bytes else reply
        arrived = np.array([reply is not None for reply in replies])
        ledger.record(0, exchange.name, exchange.request, sender="server", messages=int(asked.sum()))
        ledger.record(0, exchange.name, exchange.reply, sender="parties", messages=int(arrived.sum()))
        state = exchange.tell(state, stack_replies(exchange.reply, replies), arrived)
    return state, parties, ledger


def stack_replies(layout: Layout, replies: list[PyTree]) -> PyTree:
    """Replies as one message whose leaves have a leading axis of parties; zeros for who was not heard."""
    first = next((reply for reply in replies if reply is not None), None)

    def field(name: str, shape: tuple[int, ...]) -> np.ndarray:
        kind = np.asarray(getattr(first, name)).dtype if first is not None else np.dtype(np.int64)
        nothing = np.zeros(shape, kind)
        return np.stack([nothing if r is None else np.asarray(getattr(r, name), kind) for r in replies])

    return layout.message(**{f.name: field(f.name, f.shape) for f in layout.fields})
