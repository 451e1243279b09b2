"""A hub's settings, a file ``hub.toml``: the protocol's terms, when a round closes, limits of requests.

What nothing is said of is private and fits together: ε = 1 for all that a device ever sends, tokens that no report is
linked by, draws of who reports, seeds and checks, and the rounds, searches and step size that
:mod:`fedrank.ranking.schedule` chooses for the number of devices (:func:`fit_private`). :data:`TRIAL` has
the defaults of a trial on one machine.
"""

from __future__ import annotations

import math
import secrets
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from fedrank.core.errors import ConfigError
from fedrank.core.fields import setting
from fedrank.core.privacy_report import DELTA
from fedrank.core.trees import Json
from fedrank.deploy.http.origins import check_origins
from fedrank.deploy.hub.attestation import ATTESTORS
from fedrank.deploy.log.submission import Witness
from fedrank.deploy.terms import AGREED, Agreement, Terms, refuse_excluded
from fedrank.engine.settings import from_table, named_in_errors, read_toml
from fedrank.privacy.piecewise import best_clipped, clipped_second_moment
from fedrank.ranking.on_device import clip_of
from fedrank.ranking.schedule import choose_schedule

#: Value of the setting ``log`` of a hub without a log; an empty one stands for a key that is made with the hub.
NO_LOG = "no"
#: ε of a message where nothing is said, of which a device sends one in its life.
MECHANISM_EPSILON = 1.0
#: Most reports that may close a round: they are read at once when it is applied.
MOST_REPORTS = 2_000_000
#: Devices, searches a day of each one's user, and days of training where nothing is said.
DEVICES, SEARCHES, DAYS = 200_000, 3.0, 365.0
#: Part of the messages that check where nothing is said.
CHECKS = 0.1
#: Length of a round in mean times of the searches of a message.
_SLACK = 1.5
#: Fewest tokens that an epoch sells where nothing is said: fewer are no crowd.
_CROWD = 20


def fit_private(
    devices: int = DEVICES,
    searches: float = SEARCHES,
    days: float = DAYS,
    epsilon: float = MECHANISM_EPSILON,
    participations: int = 1,
    checks: float = CHECKS,
) -> dict[str, Any]:
    """Settings that fit each other where a device sends few messages in its life.

    A device is due in each of R rounds by a draw of its token, with one probability q, until it has sent its P
    messages. So for P = 1 a part q(1 − q)^(r − 1) of the devices sends in round r, and 1 − (1 − q)^R in all. With a
    small q many never send; with a large one the first rounds have most of the messages. The noise of all steps
    together, the sum over rounds of one divided by the part that sends, is least at about q = (P + 0.56) / R: for P = 1
    80 % of the devices send, most in the first round, whose expected reports are the cohort, and a fifth of that in
    the last. The schedule is chosen for the messages that are expected so, less those that check.

    A round is open for 1.5 times as long as a user takes for the searches of a message. Searches come as a Poisson
    process does: in their mean time only half of the users would be through, in 1.5 times that it are 85 % of them for
    4 searches, 98 % for 22 and nearly all for 128. In round 0 tokens are sold, and none counts.

    Args:
        devices: Devices that take part.
        searches: Searches of a device's user a day.
        days: Days that training may take.
        epsilon: ε of a message.
        participations: Messages of a device in its life.
        checks: Part of the messages that compare models, from which nothing is learnt.

    Raises:
        ConfigError: There are no devices, or no searches.
    """
    if devices < 1 or participations < 1 or not (0 < searches < math.inf and 0 < days < math.inf and 0 <= checks <= 1):
        raise ConfigError(
            f"devices, participations, searches and days must be above 0, and checks in 0..1; got {devices}, "
            f"{participations}, {searches:g}, {days:g} and {checks:g}."
        )
    most, messages = days * searches / _SLACK, devices * participations
    moment = clipped_second_moment(epsilon)
    due, one = 1.0, choose_schedule(messages, moment, most)
    for _ in range(2):  # the messages follow from the rounds, and these from the messages only in steps
        due = min(1.0, (participations + 0.56) / one.rounds)
        messages = max(1, int(devices * (1 - checks) * expect_messages(due, one.rounds, participations)))
        one = choose_schedule(messages, moment, most)
    due = round(min(1.0, (participations + 0.56) / one.rounds), 6)
    seconds = float(round(_SLACK * one.interactions / searches * 86_400))
    return {
        "interactions": one.interactions,
        "cohort": max(1, int(devices * due * (1 - checks))),
        "rounds": one.rounds + 1,
        "learning_rate": one.learning_rate,
        "due": due,
        "round_seconds": seconds,
        "deadline": seconds,
    }


def expect_messages(due: float, rounds: int, participations: int) -> float:
    """Expected messages of a device that is due in each round with a probability until it has sent all of its own.

    >>> expect_messages(0.5, 2, 1)
    0.75
    """
    some = min(participations, rounds)
    sent, before = 0.0, [1.0, *(some - 1) * [0.0]]  # probability of having sent 0, 1, … so far
    for _ in range(rounds):
        sent += due * sum(before)
        before = [(1 - due) * here + due * less for here, less in zip(before, [0.0, *before[:-1]], strict=True)]
    return sent


_FITTING = fit_private()
#: Defaults of a trial, in which a device reports in every round and under its own token; and of a hub that collects,
#: whose coordinator says what is asked.
TRIAL: dict[str, Json] = {
    "interactions": 4,
    "participations": 0,
    "tokens": 0,
    "least_sales": 1,
    "due": 1.0,
    "drawn_seeds": False,
    "checks": 0.0,
    "cohort": 100,
    "rounds": 0,
    "learning_rate": 1e-3,
    "round_seconds": 0.0,
    "deadline": 3600.0,
}


def _agreed(name: str, default: Any) -> Any:
    """A setting of :class:`~fedrank.deploy.terms.Agreement` with another default."""
    return setting(default, Agreement.__dataclass_fields__[name].metadata["help"])


@dataclass(frozen=True)
class HubSettings(Agreement):
    """A hub's settings. What is agreed on with devices (:class:`~fedrank.deploy.terms.Agreement`) never changes.

    Raises:
        ConfigError: A setting is out of range or contradicts another.
    """

    mechanism: Literal["randomised-response", "laplace", "piecewise"] | None = setting(
        None,
        "Randomised response for each interaction, Laplace noise on the sums that are sent, or one privatised number "
        "about the whole message (piecewise). By default piecewise, which devices agree to by default; "
        "randomised-response if p is given.",
    )
    epsilon: float | None = setting(
        None,
        "ε of one interaction with Laplace noise, of a whole message with piecewise; by default "
        f"{MECHANISM_EPSILON:g} with piecewise.",
    )
    p: float | None = setting(  # by default it follows from the mechanism
        None, f"Probability that an interaction's metric is sent as it is; by default {Terms.p:g}."
    )
    clip: float | None = setting(
        None,
        "Largest difference that a message tells, as a part of the largest there can be; for piecewise 0.12/√B for B "
        "interactions if nothing is said.",
    )

    interleaved: bool | None = setting(
        None, "Both rankers make each list that is shown, by team drafting; if nothing is said, with piecewise."
    )
    interactions: int = setting(
        _FITTING["interactions"], "B, interactions in a message; even unless interleaved. By default for the devices."
    )
    participations: int = setting(1, "Most messages that a device ever sends; 0: any number.")  # type: ignore[assignment]
    tokens: int = _agreed("tokens", 1)
    least_sales: int = _agreed("least_sales", _CROWD)
    due: float = setting(
        _FITTING["due"],
        "Part of the devices that are due in a round, by a draw of each; others do not report. By default as many as "
        "fill the cohort of the first round; later ones have fewer, as devices have sent all that they may.",
    )
    drawn_seeds: bool = _agreed("drawn_seeds", True)
    checks: float = _agreed("checks", CHECKS)

    trial: bool = setting(
        False,
        "Defaults for a trial on one machine: rounds that end at once, no tokens, no limit to a device's messages.",
    )

    collect: bool = setting(
        False, "Collect for a coordinator, which gives the model and takes the reports; the hub does not learn."
    )
    start_from: str = setting(
        "",
        "Model that a new hub starts from, such as one of fedrank learn-from-log; devices then scale features as it "
        "says.",
    )
    database: str = setting(
        "",
        "URL of a PostgreSQL database that several processes of the hub share, without a password; by default the log "
        "is a file in the folder.",
    )
    copy_to: str = setting(
        "",
        "Folder on another disk that holds a copy of the hub, made anew before each head of its log is shown, so that "
        "a hub that is restored from it has every head that devices saw; a database has a synchronous standby for it.",
    )
    learning_rate: float = setting(_FITTING["learning_rate"], "Adam's step size; by default 0.4 divided by the rounds.")
    cohort: int = setting(
        _FITTING["cohort"],
        "Reports that close a round, and the most that are used of one; by default for the devices.",
    )
    round_seconds: float = setting(
        _FITTING["round_seconds"],
        "Seconds that a round is open at least. Of all reports that come, as many as the cohort are then drawn by "
        "lot; with 0 the first ones count, and whoever is fastest decides.",
    )
    deadline: float = setting(
        _FITTING["deadline"],
        "Seconds after which a round closes with the reports that have come; 0: never. Where devices draw, a round in "
        "which none is due ends by it, or by the operator.",
    )
    least: int = setting(2, "Fewest reports that a deadline may close a round with; never more than the cohort.")
    rounds: int = setting(
        _FITTING["rounds"],
        "Rounds until training is over, that in which the first tokens are sold included; 0: no end.",
    )
    gateway_days: float = setting(
        30.0, "Days after which the gateway's key is changed, by an entry of the log; 0: when an operator says so."
    )
    overlap_days: float = setting(
        7.0, "Days for which a key that was changed still works beside the new one; then it is destroyed."
    )
    witnesses: tuple[str, ...] = setting(
        (),
        "Witnesses that every head of the log is shown to, each an address and the witness's public key with a space "
        "in between; see fedrank hub witness of fedrank-zoo.",
    )
    delta: float = setting(DELTA, "δ of the tighter bound for a user over all rounds, as shown on the status page.")
    check_margin: float = setting(
        0.05, "How much worse than the best model the newest may be before it counts, from 0 to 1 in what checks tell."
    )
    check_alarm: float = setting(
        0.05, "Chance that a hub whose model never is that much worse halts all the same, ever in its life."
    )
    alert_command: str = setting(
        "", "Command that gets an alert as JSON on its standard input when the hub halts; run without a shell."
    )
    alert_url: str = setting("", "URL that gets the same by POST.")
    status: Literal["auto", "public", "admin"] = setting(
        "auto",
        "Who may see /status and /metrics; auto: anyone if the hub listens on this machine only and behind no proxy.",
    )
    origins: tuple[str, ...] = setting(
        (), "Origins whose web pages may call the hub, such as https://shop.example; exact, and none by default."
    )
    reports_per_minute: float = setting(600.0, "Requests of one device a minute.")
    most_devices: int = setting(1_000_000, "Most devices that may be enrolled; each takes about 250 bytes of memory.")
    open_enrolment: bool = setting(
        True, "Devices may enrol with the token in enrolment.token; if not, with credentials and their codes only."
    )
    enrolments_per_minute: float = setting(6000.0, "Devices that may enrol in a minute, all together.")
    enrolments_per_network: float = setting(
        20.0,
        "Devices that may enrol in a minute from one network, an IPv4 /24 or an IPv6 /48. This machine's own addresses "
        "and single-use codes are not counted; behind a proxy, name it with --proxies.",
    )
    attestation: tuple[str, ...] = setting(
        (),
        "Kinds of statements of which a device needs one to enrol: app-attest, play-integrity or webauthn of "
        "fedrank-zoo, or one that another package adds; their settings are in attestation.toml. None by default: no "
        "device needs any.",
    )
    attested_devices: int = setting(
        1, "Devices that may enrol with statements of one key or device, where they say it."
    )
    attested_days: int = setting(0, "Window in days within which those count; 0: of all time.")

    def __post_init__(self):
        for low, high, names in (
            (0, 1_000_000, ("n_features",)),
            (0, 4096, ("hidden",)),
            (1, MOST_REPORTS, ("cohort", "least")),
            (1, 100_000_000, ("most_devices", "attested_devices")),
            (0, 10**9, ("deadline", "round_seconds")),
            (0, 10**6, ("gateway_days", "overlap_days")),
            (0, 2**32 - 1, ("rounds",)),
            (1e-3, 1e9, ("reports_per_minute", "enrolments_per_minute", "enrolments_per_network")),
            (0, 36_500, ("attested_days",)),
        ):
            for name in names:
                if not low <= getattr(self, name) <= high:
                    raise ConfigError(f"{name} must be in {low}..{high}, got {getattr(self, name)}.")
        for name, share, most in (("check_margin", self.check_margin, 1.0), ("check_alarm", self.check_alarm, 0.5)):
            if not (0 <= share <= most and (share > 0 or name == "check_margin")):
                raise ConfigError(f"{name} must be between 0 and {most:g}, got {share}.")
        try:
            shlex.split(self.alert_command)
        except ValueError as error:
            raise ConfigError(f"alert_command cannot be read ({error}), got {self.alert_command!r}.") from error
        check_origins(self.origins)
        if self.alert_url and not self.alert_url.startswith(("https://", "http://")):
            raise ConfigError(f"alert_url must begin with https:// or http://, got {self.alert_url!r}.")
        if self.deadline and self.round_seconds > self.deadline:
            raise ConfigError(
                f"round_seconds = {self.round_seconds:g} is longer than the deadline of a round, {self.deadline:g}."
            )
        for kind in self.attestation:
            ATTESTORS.entry(kind)
        if not 0 < self.delta < 1:
            raise ConfigError(f"delta must be between 0 and 1, got {self.delta}.")
        for name, value in self._resolve().items():
            object.__setattr__(self, name, value)  # frozen: resolved once, here
        for witness in self.witnesses:
            Witness.parse(witness)
        if self.start_from and self.collect:
            raise ConfigError("start_from means nothing to a hub that collects: its coordinator has the model.")
        if self.witnesses and self.log == NO_LOG:
            raise ConfigError("witnesses cosign the heads of a log, and log = no: leave one out.")
        if self.copy_to and (self.database or self.log == NO_LOG):
            raise ConfigError(
                "copy_to is for a hub whose store is a file, and that has a log: of a database, give it a synchronous "
                "standby (synchronous_standby_names)."
            )
        refuse_excluded(self)
        if self.n_features:
            self.protocol()

    def _resolve(self) -> dict[str, Any]:
        """The settings that follow from others where nothing is said."""
        mechanism = self.mechanism or ("piecewise" if self.p is None else "randomised-response")
        piecewise = mechanism == "piecewise"
        epsilon = MECHANISM_EPSILON if piecewise and self.epsilon is None else self.epsilon
        clip = (clip_of(self.interactions) if piecewise else 1.0) if self.clip is None else self.clip
        found = {"least": min(self.least, self.cohort), "mechanism": mechanism, "epsilon": epsilon, "clip": clip}
        if self.ranker == "mlp" and self.hidden == 0:
            found["hidden"] = 10
        if self.p is None:
            found["p"] = Terms.p if mechanism == "randomised-response" else 1.0
        if self.interleaved is None:
            found["interleaved"] = piecewise
        if piecewise and epsilon is not None and (self.inside, self.outside) == (0, 0):
            chosen = best_clipped(epsilon, clip or 1.0)
            found |= {"inside": chosen.inside, "outside": chosen.outside}
        return found

    def terms(self, hub: str = "0" * 32) -> Terms:
        """The terms that devices agree to when they enrol; ``hub`` is the hub's name, 32 hexadecimal digits."""
        if not self.n_features:
            raise ConfigError("n_features, the number of features of a document, must be given to make a hub.")
        agreed = {name: getattr(self, name) for name in AGREED}
        agreed["participations"] = self.participations or None
        if self.batch and not self.gateway:  # made with the hub
            agreed["gateway"] = "0" * 64
        if agreed["log"] == NO_LOG:
            agreed["log"] = agreed["operator"] = ""
        return Terms(hub=hub, **agreed)

    def protocol(self, start: Sequence[float] = ()) -> Any:
        """The hub's :class:`~fedrank.ranking.foltr_es.FoltrES`; its click model, for simulators only, never clicks.

        Args:
            start: Weights that learning starts from; empty: those of the ranker's own start.
        """
        from fedrank.aggregation.server_steps import Adam
        from fedrank.core import registry
        from fedrank.ranking.clicks.cascade import CascadeUser
        from fedrank.ranking.foltr_es import FoltrES
        from fedrank.ranking.foltr_es.presentations import AntitheticHalves, Interleaved
        from fedrank.ranking.mechanisms import Bounds
        from fedrank.ranking.rankers.base import RANKERS

        terms = self.terms()
        return FoltrES(
            ranker=RANKERS.get(self.ranker).build(self.n_features, self.hidden),
            user=CascadeUser("none", (0.0,), (0.0,), self.depth),
            metric=terms.metric,
            bounds=Bounds(participations=self.participations or None),
            interactions=self.interactions,
            sigma=self.sigma,
            presentation=Interleaved() if terms.interleaved else AntitheticHalves(),
            privacy=registry.get("fedrank.mechanisms", terms.mechanism).of_terms(terms),
            server=Adam(self.learning_rate),
            start=tuple(start),
        )


#: Settings that decide what the log means; with others it would rebuild another model.
_LEARNING = ("collect", "learning_rate")
#: Settings by the names that hubs once gave them, which stores keep.
_BEFORE = {"collect": "relay"}
#: Settings that hubs once had, with the values that mean what every hub does: the mean of the reports.
_MEAN = {"aggregate": "mean", "byzantine": 1}


def fingerprint(settings: HubSettings, hub: str) -> dict[str, Json]:
    """The settings that a checkpoint and a log belong to, JSON-able."""
    return {
        **settings.terms(hub).as_json(),
        **{_BEFORE.get(name, name): getattr(settings, name) for name in _LEARNING},
        **_MEAN,
    }


def new_hub() -> str:
    """The name of a new hub: 32 random hexadecimal digits."""
    return secrets.token_hex(16)


def read_settings(path: Path) -> HubSettings:
    """Read ``hub.toml``.

    Raises:
        ConfigError: No such file, not TOML, an unknown setting, or a value out of range.
    """
    with named_in_errors(path):
        # Hubs were made before there were logs, and with other defaults, which they did not always write.
        given = {"log": NO_LOG, **TRIAL, **read_toml(path)}
        for name, before in _BEFORE.items():
            if before in given:
                given.setdefault(name, given.pop(before))
        for name, value in _MEAN.items():
            if given.pop(name, value) != value:
                raise ConfigError(
                    f"{name} must be {value!r}: hubs take the mean of all reports that count. This one was made with "
                    "another rule; make a new hub, with round_seconds and drawn_seeds or checks against attackers."
                )
        return from_table(given, HubSettings)


def differing(old: HubSettings, new: HubSettings) -> list[str]:
    """Names of settings that differ and that cannot change once devices have enrolled."""
    return [name for name in (*AGREED, *_LEARNING, "start_from", "trial") if getattr(old, name) != getattr(new, name)]
