"""Presentations: the lists that a device shows while it tries a perturbation v, and each ranker's share of the clicks.

A presentation is found by an entry point of ``fedrank.presentations``. *Halves* are the rankers that are judged, θ + σv
and θ − σv; *lists* the kinds of lists that are shown.
"""

from __future__ import annotations

import abc
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float, Int, UInt32
from typing_extensions import override

from fedrank.core.arrays import AnyArray
from fedrank.core.lazy import jnp
from fedrank.core.protocol import Party
from fedrank.ranking.sessions.devices import Device, check_ties, draw_queries, run_interleaved, run_sessions
from fedrank.ranking.sessions.kernel import HostSessions, host_interleaved
from fedrank.ranking.sessions.reference import Interactions, Perturbed, SessionResults


class Presentation(abc.ABC):
    """A choice of the lists that users are shown.

    Attributes:
        name: Name in files and on the command line.
        halves: Rankers that are judged, 1 or 2.
        lists: Kinds of lists that are shown; an interaction shows one of them.
    """

    kind = "presentation"
    name: ClassVar[str]
    halves: ClassVar[int]
    lists: ClassVar[int]

    def steps(self, sigma: float) -> tuple[float, ...]:
        """The factors of the perturbation, one for each half."""
        return (sigma, -sigma)[: self.halves]

    def show(
        self, s: Any, request: Any, party: Party, draws: Any
    ) -> tuple[SessionResults, Int[AnyArray, "halves interactions"]]:
        """The sessions of one simulated user, and the clicks of each half.

        Args:
            s: The :class:`~fedrank.ranking.foltr_es.FoltrES`.
            request: The server's question, with θ as its ``weights``.
            party: The device.
            draws: Its random bits.

        Returns:
            Results of shape [lists, interactions of a list], and int32 [halves, interactions of a half].
        """
        (data, queries), own = party.shared, party.own
        model = Perturbed(s.ranker, s.users, own.user, data, request.weights, draws.seed)
        lists = Interactions(draw_queries(queries, own, draws.queries), draws.clicks, draws.ties)
        sessions = run_sessions(model, self.steps(s.sigma), lists, s.ties)
        return sessions, sessions.patterns

    def show_cohort(
        self,
        s: Any,
        kernel: HostSessions,
        weights: Float[np.ndarray, "runs 1 n"],
        own: Device,
        about: Int[np.ndarray, "runs parties lists interactions"],
        draws: Any,
        words: UInt32[np.ndarray, "runs parties words"],
        places: list[int],
    ) -> tuple[SessionResults, Int[np.ndarray, "runs parties halves interactions"]]:
        """:meth:`show` for the devices of all runs, with the compiled kernels.

        Args:
            s: The protocol.
            kernel: The sessions' kernel.
            weights: θ of each run.
            own: The devices.
            about: The query of each interaction.
            draws: The devices' random bits.
            words: The same as whole rows, in C order.
            places: Offsets in a row of the words for queries, clicks, ties, tosses (if interleaved) and privacy.
        """
        whole = words.base  # rows of whole vectors, in C order
        assert whole is not None
        rows = whole.reshape(-1, whole.shape[-1])
        sessions = kernel(weights, own.user, draws.seed, about, rows, *places[1:3])
        return sessions, np.asarray(sessions.patterns)


@dataclass(frozen=True)
class OneSided(Presentation):
    """All lists are those of θ + σv."""

    name, halves, lists = "one-sided", 1, 1


@dataclass(frozen=True)
class AntitheticHalves(Presentation):
    """One half of the lists are those of θ + σv, the other half those of θ − σv."""

    name, halves, lists = "antithetic", 2, 2


@dataclass(frozen=True)
class Interleaved(Presentation):
    """Each list is made by both rankers (:mod:`fedrank.ranking.on_device`).

    Each ranker is credited with the clicks on its documents, so that the difference is one of rankers and not of the
    queries that each happened to be asked. A click is told twice.
    """

    name, halves, lists = "interleaved", 2, 1

    @override
    def show(self, s, request, party, draws):
        (data, queries), own = party.shared, party.own
        model = Perturbed(s.ranker, s.users, own.user, data, request.weights, draws.seed)
        lists = Interactions(
            draw_queries(queries, own, draws.queries)[0], draws.clicks[0], draws.ties[0], draws.toss[0]
        )
        found = run_interleaved(model, s.sigma, lists, s.ties)
        return SessionResults(found.shown.patterns[None], found.shown.ndcg[None]), jnp.asarray(found.credited)

    @override
    def show_cohort(self, s, kernel, weights, own, about, draws, words, places):
        cohort = Perturbed(s.ranker, s.users, np.asarray(own.user), kernel.data, weights, draws.seed)
        lists = Interactions(about[..., 0, :], draws.clicks[..., 0, :, :], draws.ties[..., 0, :], draws.toss[..., 0, :])
        found = host_interleaved(cohort, s.sigma, lists, check_ties(s.ties))
        shown = SessionResults(found.shown.patterns[..., None, :], found.shown.ndcg[..., None, :])
        return shown, np.asarray(found.credited)


@dataclass(frozen=True)
class Automatic(Presentation):
    """Interleaved lists where a message has one privatised number, else antithetic halves."""

    name = "auto"
