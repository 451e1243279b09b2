"""Records the Choc-and-Kale world of the real RecSim, for two platforms that share one user.

    python tests/slates/golden/make_recsim_traces.py tests/golden      # writes recsim_10.json and recsim_100.json

RecSim's last release needs TensorFlow; the fork ``recsim-no-tf`` is the same simulator without it. Python 3.11::

    pip install --no-deps recsim-no-tf==0.2.3 gym==0.26.2
    pip install numpy scipy gym-notices cloudpickle gin-config absl-py six

What runs is RecSim's own: its engine, its document sampler, its multinomial logit model, and of its
long-term-satisfaction world the response, the state's update and the user sampler. Added here is what RecSim's tutorial
adds to that world (the user chooses from the slate, with logit 1 − kaleness, and shows a noisy satisfaction), and that
two environments hold one user.

All chance of a tick comes from NumPy's global legacy generator, in the order: uniform (choice), normal (engagement),
normal (innovation), truncated normal (observation). A copy of the generator draws the same numbers beforehand; that
its state agrees with the original's after the tick shows that the recorded draws are those that RecSim used. Candidates
are not stored: block b of a platform is row b of ``RandomState(document_seed).random_sample((·, N))``.
"""

from __future__ import annotations

import json
import platform
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

MEMORY_DISCOUNT, TIME_BUDGET, OBSERVATION_NOISE = 0.9, 122, 0.1
USER_SEED = 0
SETTINGS = {
    "recsim_10": {"candidates": 10, "slate": 3, "document_seeds": (42, 42), "episodes": 3, "chance_seed": 7},
    "recsim_100": {"candidates": 100, "slate": 10, "document_seeds": (42, 24), "episodes": 1, "chance_seed": 8},
}


def record(
    candidates: int, slate: int, document_seeds: tuple[int, int], episodes: int, chance_seed: int
) -> dict[str, Any]:
    """Episodes of RecSim under uniformly random slates.

    Returns:
        ``episodes``: for each the uniform number behind the user, the exposure, what B saw at the beginning with its
        noise, and ``ticks``: lists with one entry a tick, platforms in turns.
    """
    from scipy.stats import truncnorm

    user, environments = world(candidates, slate, document_seeds)
    bound = 1.0 / OBSERVATION_NOISE
    np.random.seed(chance_seed)
    slates = np.random.RandomState(chance_seed + 1)
    users = np.random.RandomState(USER_SEED)
    users.random_sample()  # one user is drawn when the world is built
    streams = [np.random.RandomState(seed) for seed in document_seeds]
    blocks = [0, 0]

    def expect_documents(number: int, observed: dict) -> None:
        want = streams[number].random_sample(candidates)
        np.testing.assert_array_equal(np.ravel(list(observed.values())), want)

    for number in range(2):  # one block is drawn when an environment is built
        streams[number].random_sample(candidates)
    recorded = []
    for _ in range(episodes):
        users.random_sample()  # the user whom A sees and who is replaced when B is reset
        newcomer = users.random_sample()
        for number, environment in enumerate(environments):
            copy = _copy_of_global()
            seen, documents = environment.reset()
            noise = truncnorm.rvs(-bound, bound, scale=OBSERVATION_NOISE, random_state=copy)
            blocks[number] += 1
            expect_documents(number, documents)
        ticks: dict[str, list] = {}
        episode = {
            "newcomer": newcomer,
            "exposure": user._user_state.net_positive_exposure,
            "noise": noise,
            "observed": float(seen[0]),
            "ticks": ticks,
        }
        done = False
        while not done:
            for number, environment in enumerate(environments):
                shown = slates.choice(candidates, slate, replace=False)
                copy = _copy_of_global()
                draws = {
                    "choice": copy.random_sample(),
                    "engagement_draw": copy.standard_normal(),
                    "innovation": copy.standard_normal(),
                    "noise": truncnorm.rvs(-bound, bound, scale=OBSERVATION_NOISE, random_state=copy),
                }
                before = list(environment._current_documents.values())
                seen, documents, responses, done = environment.step(shown)
                _same_state(copy)
                slot = [response.clicked for response in responses].index(True)
                row = {
                    "platform": number,
                    "block": blocks[number],
                    "slate": [int(item) for item in shown],
                    **draws,
                    "slot": slot,
                    "kaleness": float(before[shown[slot]][0]),
                    "engagement": float(responses[slot].engagement),
                    "exposure": float(user._user_state.net_positive_exposure),
                    "observed": float(seen[0]),
                    "left": int(user._user_state.time_budget),
                    "done": bool(done),
                }
                for name, value in row.items():
                    ticks.setdefault(name, []).append(value)
                blocks[number] += 1
                expect_documents(number, documents)
        recorded.append(episode)
    return {
        "candidates": candidates,
        "slate": slate,
        "document_seeds": list(document_seeds),
        "episodes": recorded,
    }


def world(candidates: int, slate: int, document_seeds: tuple[int, int]) -> tuple[Any, list[Any]]:
    """The user, and one RecSim environment a platform that holds it."""
    from recsim import user as recsim_user
    from recsim.choice_model import MultinomialLogitChoiceModel
    from recsim.environments import long_term_satisfaction as lts
    from recsim.simulator.environment import SingleUserEnvironment
    from scipy.stats import truncnorm

    class SeenUser(lts.LTSUserState):
        def create_observation(self):
            bound = 1.0 / OBSERVATION_NOISE
            return np.array([self.satisfaction + truncnorm(-bound, bound, loc=0, scale=OBSERVATION_NOISE).rvs()])

        def score_document(self, doc_obs):
            return 1 - doc_obs

    class ChoosingUser(lts.LTSUserModel):
        def __init__(self):
            sampler = lts.LTSStaticUserSampler(
                user_ctor=SeenUser, memory_discount=MEMORY_DISCOUNT, time_budget=TIME_BUDGET, seed=USER_SEED
            )
            recsim_user.AbstractUserModel.__init__(self, lts.LTSResponse, sampler, slate)
            self.choice = MultinomialLogitChoiceModel({})

        def simulate_response(self, documents):
            responses = [self._response_model_ctor() for _ in documents]
            self.choice.score_documents(self._user_state, [document.create_observation() for document in documents])
            clicked = self.choice.choose_item()
            self.generate_response(documents[clicked], responses[clicked])
            return responses

    user = ChoosingUser()
    return user, [
        SingleUserEnvironment(user, lts.LTSDocumentSampler(seed=seed), candidates, slate, resample_documents=True)
        for seed in document_seeds
    ]


def _copy_of_global() -> np.random.RandomState:
    copy = np.random.RandomState()
    copy.set_state(np.random.get_state())
    return copy


def _same_state(copy: np.random.RandomState) -> None:
    ours, global_ = copy.get_state(legacy=False), np.random.get_state(legacy=False)
    np.testing.assert_array_equal(ours["state"]["key"], global_["state"]["key"])
    assert ours["state"]["pos"] == global_["state"]["pos"]
    assert (ours["has_gauss"], ours["gauss"]) == (global_["has_gauss"], global_["gauss"])


def main(folder: Path) -> None:
    """Write the golden traces."""
    made = f"recsim-no-tf {version('recsim-no-tf')}, NumPy {np.__version__}, Python {platform.python_version()}"
    for name, settings in SETTINGS.items():
        trace = json.loads(json.dumps({"made with": made, **record(**settings)}), parse_float=_short)
        (folder / f"{name}.json").write_text(json.dumps(trace, separators=(",", ":")) + "\n", encoding="utf-8")


def _short(text: str) -> float:
    """Ten digits: a thousand times finer than float32."""
    return float(f"{float(text):.10g}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
