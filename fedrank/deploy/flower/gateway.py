"""A node that answers for real devices: the hub beside it asks them, and collects.

The hub is one that relays (``fedrank serve --relay``). It is given the round's question, its devices report as they do
to any hub, and when the round has closed there, the node takes their messages and sends them on. The hub's rounds close
by its own count or deadline; what comes later is too late for this round.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from fedrank.core.errors import ConfigError, RunError
from fedrank.deploy.flower.messages import Answer, Question
from fedrank.deploy.flower.settings import NodeSettings, Settings, block
from fedrank.deploy.http.client import HttpClient
from fedrank.deploy.hub.settings import MOST_REPORTS
from fedrank.deploy.terms import Terms
from fedrank.ranking.build import DEPTH
from fedrank.ranking.config import FoltrESConfig

_log = logging.getLogger("fedrank.flower")

#: Seconds between two looks at the hub.
_LOOK = 0.2
#: Seconds that the hub may take for one answer.
_TIMEOUT = 30.0


class Gateway:
    """A relaying hub, as its operator sees it: no redirects, no proxies, no answer without end.

    Args:
        url: Of the hub; plain http on this machine only.
        token: Its admin token.

    Raises:
        ConfigError: Plain http to another machine: the token would cross in the clear.
    """

    def __init__(self, url: str, token: str):
        self._hub, self._token = HttpClient(url, timeout=_TIMEOUT), token

    def __call__(self, method: str, path: str, body: bytes | None = None, limit: int = 65_536) -> tuple[int, bytes]:
        """Status code and body of one answer, at most ``limit`` bytes of it and one more.

        Raises:
            RunError: The hub does not answer.
        """
        try:
            answer = self._hub.request(method, path, self._token, body=body, limit=limit)
        except OSError as error:
            raise RunError(f"{self._hub.url}: the gateway's hub does not answer ({error}). Is it served?") from error
        return answer.status, answer.body

    def terms(self) -> Terms:
        """What its devices agreed to.

        Raises:
            RunError: It does not say: the token is wrong, or it is no hub that relays.
        """
        code, body = self("GET", "/v1/admin/terms")
        if code != 200:
            raise RunError(
                f"{self._hub.url}: refused the gateway's node with {code}. Is gateway-token its admin.token, was it "
                "made with --relay?"
            )
        return Terms.from_json(body)


def check_terms(terms: Terms, config: Settings, size: int) -> None:
    """Refuse a hub whose devices do something else than the run.

    Args:
        terms: The hub's.
        config: The run, resolved.
        size: Weights in the run's questions.

    Raises:
        ConfigError: Says what differs.
    """
    if not isinstance(config, FoltrESConfig):
        raise ConfigError(f"the gateway's devices speak foltr-es; they cannot answer for {config.protocol!r}.")
    privacy, noisy = config.privacy, config.privacy.mechanism != "randomised-response"
    asked = {
        "protocol": config.protocol,
        "ranker": config.ranker,
        "hidden": config.hidden if config.ranker == "mlp" else 0,
        "size": size,
        "depth": DEPTH,  # the reward's values and their unit hang on it
        "reward": config.reward,
        "reward_values": config.reward_values,
        "interactions": config.interactions,
        "sigma": config.sigma,
        "mechanism": privacy.mechanism,
        "p": 1.0 if noisy else privacy.probability(terms.metric.n),
        "epsilon": privacy.epsilon if noisy else None,
    }
    wrong = [
        f"{name} is {getattr(terms, name)!r}, not {value!r}"
        for name, value in asked.items()
        if getattr(terms, name) != value
    ]
    if wrong or not config.antithetic:
        raise ConfigError(
            f"the gateway's devices agreed to other terms than the run's: {', '.join(wrong) or 'antithetic halves'}. "
            "Run with theirs, or make another hub."
        )


def answer_through(
    config: Settings, node: NodeSettings, question: Question, sleep: Callable[[float], None] = time.sleep
) -> Answer:
    """Ask the hub's devices and collect their messages.

    Args:
        config: The run, resolved.
        node: With ``gateway``, ``gateway_token`` and ``gateway_seconds``.
        question: What the server asked.
        sleep: Waits.

    Returns:
        The messages as replies of the first parties of the node's block, by the devices' numbers. Those beyond the
        block are left out.

    Raises:
        ConfigError: The hub's terms are not the run's.
        RunError: The hub does not answer, refuses, or nobody reported.
    """
    try:
        token = Path(node.gateway_token).expanduser().read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"gateway-token = {node.gateway_token!r}: cannot be read ({error}).") from error
    hub = Gateway(node.gateway, token)
    terms = hub.terms()
    check_terms(terms, config, (len(question.request) - 5) // 4)
    code, body = hub("PUT", "/v1/admin/round", question.request)
    if code not in (200, 201):
        raise RunError(
            f"the gateway's hub refused the question of round {question.round}: {_reason(body, code)}. A hub collects "
            "for one run, whose rounds only go up; another run needs another hub."
        )
    layout, numbers = terms.reply, block(config.clients, node.partition_id, node.num_partitions)
    most = MOST_REPORTS * layout.nbytes
    messages = _collected(hub, question.round, node.gateway_seconds, most, sleep)
    count = len(messages) // layout.nbytes
    if count > len(numbers):
        _log.warning("%d devices reported, the node answers for %d: the rest is left out", count, len(numbers))
        count = len(numbers)
    heard = np.arange(len(numbers)) < count
    return Answer.of(numbers.start, heard, messages[: count * layout.nbytes])


def _collected(hub: Gateway, round_: int, seconds: float, most: int, sleep: Callable[[float], None]) -> bytes:
    end, closing = time.monotonic() + seconds, False
    while True:
        code, body = hub("GET", f"/v1/admin/reports/{round_}", limit=most)
        if code == 200:
            return body
        if code not in (409, 503):
            raise RunError(f"the gateway's hub does not give the reports of round {round_}: {_reason(body, code)}.")
        if time.monotonic() > end:
            if closing:
                raise RunError(f"nobody reported to the gateway's hub in round {round_}.")
            closing = hub("POST", "/v1/admin/close")[0] != 503
        sleep(_LOOK)


def _reason(body: bytes, code: int) -> str:
    """The hub's own word for it."""
    try:
        return str(json.loads(body)["error"])[:100]
    except (ValueError, KeyError, TypeError):
        return str(code)
