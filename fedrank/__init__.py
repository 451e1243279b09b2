"""Learn to rank and to recommend from what people do, without collecting what they do.

The package is a stack of layers, each importing only those below it::

    cli          commands
    report       files -> tables, figures, a page
    deploy       the same protocols over a network: a hub and its devices, Flower
    experiments  configuration -> run -> files
    simulate     protocols, vectorised over rounds, parties and seeds
    protocols    one paper, one file
    learners     a ranker that learns in a session
    sessions     a query under a ranker meets a user: scores -> ranking -> clicks
    aggregation, clicks, rankers, metrics, privacy
    data         queries, documents, labels
    core         ask -> answer -> tell; messages, ledger, randomness, registry, errors

Nothing heavy is imported here: ``import fedrank`` costs milliseconds, ``import jax`` is paid where arrays are used.
"""

__version__ = "0.1.0"

__all__ = ["__version__"]
