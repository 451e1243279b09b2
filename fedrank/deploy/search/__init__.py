"""A federated search as processes: owners that answer, a broker that carries sealed questions, a portal for people.

::

    asker ── sealed questions, one for each owner ──▶ broker ──▶ owner: index, documents
          ◀─ sealed answers: tickets and scores ─────        ◀──

The asker's side (:mod:`~fedrank.deploy.search.federation`) seals, opens and merges: the broker learns who asks when, of
which sizes, and no word. Owners learn the words of a query and who asks (:mod:`fedrank.texts.served.owner`).
"""
