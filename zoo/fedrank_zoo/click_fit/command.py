"""``fedrank data clicks fit``."""

from __future__ import annotations

from pathlib import Path

from fedrank.cli.terminal import AsJson, print_json, say, table


def fit(
    log: Path,
    /,
    *,
    models: tuple[str, ...] = (),
    held_out: float = 0.25,
    prior: float = 10.0,
    seed: int = 0,
    out: Path | None = None,
    as_json: AsJson = False,
) -> None:
    """Fit click models to most sessions of a log, and judge them on the others.

    The log is one of fedrank learn-from-log, features or not; or text with tabs between columns: query_id; url_ids and
    clicks (1 or 0), lists by rank with spaces between.
    The perplexity of a click is 1 where a model is certain and right, 2 where it tosses a coin. A held-out session's
    log-likelihood is that of all its clicks together.

    Args:
        log: The file, or a folder of User Behavior Insights.
        models: by-rank, position-based, user-browsing, simplified-dynamic-bayesian, dynamic-bayesian; empty: all.
        held_out: Share of the sessions, drawn at random, that models are judged on.
        prior: Sessions that each pair of query and result counts more, with the log's means; 0: the likelihood alone.
        seed: Of that draw.
        out: Also write the model to this file, such as mine.json, for --clicks; with one model.

    Raises:
        ConfigError: Numbers that make no sense, or a file for several models.
    """
    import numpy as np

    from fedrank.core.errors import ConfigError
    from fedrank.ranking.logs.columns import LogFormat
    from fedrank.ranking.logs.read import read_log
    from fedrank_zoo.click_fit import models as fitting

    if not 0 < held_out < 1:
        raise ConfigError(f"held-out must be between 0 and 1, got {held_out}.")
    if out is not None and (len(models) != 1 or models[0] == "by-rank" or out.suffix != ".json"):
        raise ConfigError("out writes one model, not by-rank, to a file that ends with .json; name it with --models.")
    for name in models:
        if name not in fitting.MODELS:
            raise ConfigError(f"models must be of {', '.join(fitting.MODELS)}, got {name!r}.")
    form = LogFormat(features=(), all_clicked=False, deepest=255)
    sessions = fitting.Sessions.of_log(read_log(log, form))
    n = len(sessions.pair)
    cut = n - max(1, round(n * held_out))
    if cut < 1:
        raise ConfigError(f"{n} sessions with {held_out:.0%} held out leave none to fit.")
    order = np.random.default_rng(seed).permutation(n)  # a log may be sorted by query
    seen, unseen = sessions.part(order[:cut]), sessions.part(order[cut:])
    rows, user = [], None
    for name in models or fitting.MODELS:
        # Pairs are numbered over the whole log; those without a fitted session get the mean.
        whole = fitting.fit(seen, name, prior=prior, pairs=sessions.pairs)
        perplexity = whole.perplexity(unseen)
        rows.append(
            {
                "model": name,
                "perplexity": float(perplexity.mean()),
                "perplexity_by_rank": perplexity.tolist(),
                "log_likelihood": float(whole.log_likelihoods(unseen).mean()),
                "log_likelihood_fitted": float(whole.log_likelihoods(seen).mean()),
                "perseverance": whole.perseverance,
            }
        )
        if out is not None:
            clicks = np.bincount(seen.pair[seen.clicked], minlength=sessions.pairs)
            user = whole.user(out.stem, 2, clicks if clicks.any() else None)
            about = {"model": name, "log": log.name, "sessions": cut, "prior": prior}
            fitting.write_user(user, about, out)
    known = float(np.isin(unseen.pair, seen.pair[seen.shown])[unseen.shown].mean())
    if as_json:
        results = sessions.pair.shape[1]
        print_json({"fitted": cut, "held_out": n - cut, "known": known, "results": results, "models": rows})
        return
    drawn = table("model", "perplexity", "log-likelihood", "at rank 1", "at the last", whole=("model",))
    for row in rows:
        by_rank = row["perplexity_by_rank"]
        numbers = (row["perplexity"], row["log_likelihood"], by_rank[0], by_rank[-1])
        drawn.add_row(row["model"], *(f"{value:.4f}" for value in numbers))
    say(drawn)
    print(f"{cut:,} sessions fitted, {n - cut:,} held out; perplexity of a click, log-likelihood of a session in nats.")
    print(f"{known:.0%} of the held-out results were seen in the fitted sessions, under the same query.")
    if out is not None:
        print(f"wrote {out}: --clicks {out}")
