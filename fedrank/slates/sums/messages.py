"""Messages between platforms that learn from sums over users and their coordinator: sums, models."""

from __future__ import annotations

from fedrank.core.messages import Array, f4, field, i4, message, u4


@message(kind=0)
class RoundStart:
    """Coordinator to platforms: a round begins."""

    round: Array = field(u4, "number of the round")


@message(kind=1)
class Done:
    """Platform to coordinator: it has done so. Has no field."""


@message(kind=2)
class Statistics:
    """Platform to coordinator: sums over its users' stays, once a release.

    Of each user's stay a vector, shortened to the clip and rounded towards zero; of those the sum, with noise if the
    settings say so.
    """

    sums: Array = field(i4["statistics"], "what the learner adds up over all users, in steps of clip / 2^14")


@message(kind=3)
class SharedModel:
    """Coordinator to platforms: the model that the sums of all give."""

    weights: Array = field(f4["parameters"], "weights of the model that the sums of all platforms give")


@message(kind=4)
class NormCounts:
    """Platform with feedback to coordinator: how many users' vectors are how long, once, to find the clip."""

    counts: Array = field(i4["statistics":8], "number of users whose vector has a norm in each bin, with noise")


@message(kind=5)
class Bound:
    """Coordinator to platforms: the clip of what a user adds to the sums."""

    clip: Array = field(f4, "largest L2 norm of what a user adds to the sums")


@message(kind=6)
class StatisticsSummand:
    """Platform with feedback to coordinator, under the masks of a secure sum: as statistics, modulo 2^32."""

    sums: Array = field(u4["statistics"], "what the learner adds up over all users, a part of a secure sum")


@message(kind=8)
class TrialSums:
    """Platform with feedback to coordinator: sums over the stays of a trial, once a look.

    Of each stay a vector with its arm, its engagement and its residuals, clipped, rounded towards zero; with noise if
    the settings say so.
    """

    sums: Array = field(
        i4["statistics":11], "counts, engagement and its squares by arm, and residuals, in steps of 1.25 / 2^14"
    )


@message(kind=9)
class TrialSummand:
    """Platform with feedback to coordinator, under the masks of a secure sum: as sums of a trial, modulo 2^32."""

    sums: Array = field(u4["statistics":11], "as sums of a trial, a part of a secure sum")


@message(kind=10)
class Verdict:
    """Coordinator to platforms: the plan's gain in the trial, and what is served now."""

    verdict: Array = field(
        f4["parameters":7],
        "decision; gain over the fallback and over myopic slates, each with its half-width; residual tests",
    )


@message(kind=7)
class NormSummand:
    """Platform with feedback to coordinator, under the masks of a secure sum: as counts of norms, modulo 2^32."""

    counts: Array = field(u4["statistics":8], "number of users whose vector has a norm in each bin, likewise")
