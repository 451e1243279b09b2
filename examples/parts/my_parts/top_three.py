"""Antithetic halves whose rewards come from the first three results alone."""

from dataclasses import dataclass

from fedrank.ranking.foltr_es.presentations import AntitheticHalves

#: Bit i of a click pattern is the click on rank i + 1.
FIRST_THREE = 0b111


@dataclass(frozen=True)
class TopThree(AntitheticHalves):
    """Antithetic halves; only clicks on the first three results count."""

    name = "top-three"

    def show(self, s, request, party, draws):
        """Lists of one simulated user, and the clicks that count."""
        sessions, patterns = super().show(s, request, party, draws)
        return sessions, patterns & FIRST_THREE

    def show_cohort(self, *known):
        """The same for the devices of all runs, with the compiled kernels."""
        sessions, patterns = super().show_cohort(*known)
        return sessions, patterns & FIRST_THREE
