"""What a hub may say about itself, for tests of its status page."""

EPSILON = {
    "interaction": 4.4998,
    "message": 17.999,
    "messages_most": 17,
    "user_basic": 305.99,
    "user": 120.3,
    "delta": 1e-6,
}
NO_EPSILON = {**EPSILON, "interaction": None, "message": None, "user_basic": None, "user": None}


def point(number, reward=None, half=None, seconds=2.0, reports=50):
    low, high = (None, None) if half is None else (reward - half, reward + half)
    return {"round": number, "reports": reports, "reward": reward, "low": low, "high": high, "seconds": seconds}


def history(rounds):
    return [point(i, 0.3 + 0.2 * i / rounds + 0.01 * (i % 3), 0.04) for i in range(rounds)]


def status(**changes):
    """A hub in its 17th round; fields as :meth:`fedrank.deploy.hub.hub.Hub.status` gives them."""
    return {
        "hub": "3fa9c2d10b7e4c55a1d2e3f405162738",
        "version": "1.2.3",
        "protocol": "foltr-es",
        "now": 1_763_749_200.0,
        "started": 1_763_636_880.0,
        "round": 17,
        "state": "open",
        "seconds_open": 100.3,
        "deadline_s": 3600.0,
        "cohort": 50,
        "least": 2,
        "reports": 12,
        "rounds": 250,
        "devices": 50,
        "ranker": "linear",
        "n_features": 46,
        "weights": 46,
        "reward": "MaxRR",
        "interactions": 4,
        "sigma": 0.01,
        "epsilon": EPSILON,
        "bytes": {"report": 9, "model": 189, "reports": 7758, "models": 233_226},
        "history": history(17),
        **changes,
    }


EXAMPLES = {
    "in the middle": status(),
    "new": status(
        round=0,
        reports=0,
        devices=0,
        rounds=0,
        deadline_s=None,
        history=[],
        epsilon={**EPSILON, "messages_most": 0, "user_basic": 0.0, "user": 0.0},
        bytes={"report": 9, "model": 189, "reports": 0, "models": 0},
    ),
    "one round": status(round=1, history=history(1)),
    "a round without an interval": status(round=2, history=[point(0, 0.3), point(1, 0.4, 0.1)]),
    "no reward": status(round=3, history=[point(i) for i in range(3)], epsilon={**EPSILON, "interaction": 0.0}),
    "unprotected": status(epsilon=NO_EPSILON, state="between", reports=50),
    "done": status(state="done", round=250, reports=0, history=history(250)),
    "large": status(
        round=100_000,
        reports=4_000_000,
        cohort=10_000_000,
        devices=10_000_000,
        rounds=0,
        history=[point(250 * i + 249, 0.3, 0.001, 90_000.0) for i in range(400)],
        bytes={"report": 9, "model": 4_000_005, "reports": 9 * 10**12, "models": 4 * 10**15},
    ),
}
