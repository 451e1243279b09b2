"""Records RecSim's stock world of long-term satisfaction as it is, under random slates.

    python tests/slates/golden/make_recsim_stock_traces.py tests/slates/golden      # writes recsim_stock.json

How RecSim is installed without TensorFlow: ``make_recsim_traces.py`` beside this. All that runs is RecSim's own
(``create_environment``). Chance of users' choices and changes comes from NumPy's global legacy generator: normal
(engagement), normal (exposure). A copy of the generator draws the same numbers beforehand.
"""

from __future__ import annotations

import json
import platform
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np


def _copy_of_global() -> np.random.RandomState:
    copy = np.random.RandomState()
    copy.set_state(np.random.get_state())
    return copy


def long_term_satisfaction(candidates: int, slate: int, seed: int) -> dict[str, Any]:
    """One episode of ``long_term_satisfaction.create_environment``; users click the first slot, always."""
    from recsim.environments import long_term_satisfaction as lts

    env = lts.create_environment(
        {"num_candidates": candidates, "slate_size": slate, "resample_documents": True, "seed": seed}
    ).environment
    np.random.seed(seed)
    slates = np.random.RandomState(seed + 1)
    _, documents = env.reset()
    user, ticks, done = env.user_model._user_state, [], False
    exposure = float(user.net_positive_exposure)
    while not done:
        shown, copy = slates.choice(candidates, slate, replace=False), _copy_of_global()
        before = [float(one[0]) for one in documents.values()]
        _, documents, responses, done = env.step(shown)
        ticks.append(
            {
                "documents": before,
                "slate": shown.tolist(),
                "engagement_draw": copy.standard_normal(),
                "innovation": copy.standard_normal(),
                "slot": [one.clicked for one in responses].index(True),
                "engagement": float(responses[0].engagement),
                "exposure": float(user.net_positive_exposure),
                "left": int(user.time_budget),
            }
        )
    return {"exposure": exposure, "ticks": ticks}


def _short(text: str) -> float:
    """Eight digits: ten times finer than float32."""
    return float(f"{float(text):.8g}")


def main(folder: Path) -> None:
    """Write the golden traces."""
    made = f"recsim-no-tf {version('recsim-no-tf')}, NumPy {np.__version__}, Python {platform.python_version()}"
    traces = {
        "made with": made,
        "long_term_satisfaction": long_term_satisfaction(6, 2, 3),
    }
    short = json.loads(json.dumps(traces), parse_float=_short)
    (folder / "recsim_stock.json").write_text(json.dumps(short, separators=(",", ":")) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
