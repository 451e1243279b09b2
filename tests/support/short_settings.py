"""Methods that rank from settings in short: one name each, from which the parts of a method are made."""

import dataclasses
from typing import Any

from fedrank.aggregation.server_steps import Adam
from fedrank.engine.settings import from_dict, table_of
from fedrank.ranking.foltr_es.presentations import AntitheticHalves, Interleaved, OneSided
from fedrank.ranking.foltr_pdgd import Proximal
from fedrank.ranking.mechanisms import Bounds
from fedrank.ranking.mechanisms.noisy_sums import GaussianSums, LaplaceSums
from fedrank.ranking.mechanisms.piecewise import PiecewiseNumber
from fedrank.ranking.mechanisms.randomised_response import RandomisedResponse
from fedrank.ranking.mechanisms.secure_sum import GaussianShares, LaplaceShares, SecureSum
from fedrank.ranking.mechanisms.weights import ClearWeights
from fedrank_zoo.server_noise import ServerNoised


def es_settings(
    *,
    p: float = 1.0,
    mechanism: str = "",
    epsilon: float | None = None,
    delta: float = 1e-6,
    piecewise: Any = None,
    clip: float = 1.0,
    participations: int | None = None,
    antithetic: bool = True,
    interleaved: bool = False,
    learning_rate: float = 1e-3,
    **other: Any,
) -> dict[str, Any]:
    """Arguments of FOLtR-ES or a variant: mechanism, presentation and server step from their settings."""
    if piecewise is not None:
        privacy: Any = PiecewiseNumber(epsilon_user=piecewise.epsilon, clip=clip, member=piecewise, delta=delta)
    elif mechanism in ("laplace", "gaussian"):
        kind = {"laplace": LaplaceSums, "gaussian": GaussianSums}[mechanism]
        privacy = kind(epsilon_interaction=epsilon, delta=delta)
    else:
        privacy = RandomisedResponse(p=p, delta=delta)
    shown = Interleaved() if interleaved else AntitheticHalves() if antithetic else OneSided()
    bounds = Bounds(participations=participations)
    return {"privacy": privacy, "presentation": shown, "server": Adam(learning_rate), "bounds": bounds, **other}


def pdgd_settings(
    *,
    clip: float | None = None,
    clip_norm: str = "l1",
    noise: str = "none",
    epsilon: float | None = None,
    delta: float = 1e-6,
    times: int = 1,
    rounds: int = 1,
    secure_sum: bool = False,
    grid: int | None = 2**16,
    parties: int | None = None,
    absent: float = 0.0,
    mu: float | None = None,
    **other: Any,
) -> dict[str, Any]:
    """Arguments of FPDGD or a variant: mechanism and objective from their settings."""
    bounds = Bounds(rounds=rounds, clients=parties, participations=times)
    if noise == "polya":
        common = {"clip": clip, "clip_norm": clip_norm, "grid": grid, "absent": absent}
        privacy: Any = LaplaceShares(epsilon=epsilon, delta=delta, **common)
    elif noise == "gaussian":
        privacy = GaussianShares(epsilon_user=epsilon, delta=delta, clip=clip, grid=grid, absent=absent)
    elif noise == "server":
        privacy = ServerNoised(epsilon_user=epsilon, delta=delta, clip=clip)
    elif secure_sum:
        privacy = SecureSum(clip=clip, clip_norm=clip_norm, grid=grid)
    else:
        privacy = ClearWeights(clip=clip, clip_norm=clip_norm)
    objective = {} if mu is None else {"objective": Proximal(mu=mu)}
    return {"privacy": privacy, "bounds": bounds, **objective, **other}


def run_of(protocol: str, **settings: Any) -> Any:
    """The configuration of a run, with settings as keywords; tables may be dataclasses or dictionaries."""
    plain = {
        name: table_of(value) if dataclasses.is_dataclass(value) else list(value) if isinstance(value, tuple) else value
        for name, value in settings.items()
    }
    return from_dict({"protocol": protocol, **{name: value for name, value in plain.items() if value is not None}})
