"""Learn to rank and to recommend from what people do, without collecting what they do.

The house: what is shared stands in layers, each importing only those below it, and every task has a wing of its own::

    cli                              commands
    deploy                           the same protocols over a network: a hub and its devices, platforms, Flower
    ranking, silos, texts, slates    the wings: settings, data, protocols, baselines, attacks, pages of a task
    report                           files -> tables, figures, a page
    engine                           configuration -> run -> files; simulation, sweeps, studies
    aggregation, metrics, privacy    rules for weights, measures, mechanisms and their accounts
    data                             sources, catalogue, checks
    core                             ask -> answer -> tell; messages, ledger, randomness, registry, errors

Nothing heavy is imported here: ``import fedrank`` costs milliseconds, ``import jax`` is paid where arrays are used.
"""

__version__ = "0.2.0.dev0"

__all__ = ["__version__"]
