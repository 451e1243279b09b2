"""Everything that decides the outcome of a run: a frozen dataclass, a TOML file, the flags of ``fedrank run``.

A field is a flag (``--clients 2000``), a key of the file (``clients = 2000``) and an argument in Python; a nested field
is ``--privacy.p`` and the key ``p`` of the table ``[privacy]``. What is not given has the default of the protocol's
paper; :meth:`RunConfig.resolved` says which that is. A setting that the protocol does not know is refused there, so
that nobody believes to have changed something.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Literal

from fedrank.core.errors import ConfigError
from fedrank.core.fields import setting
from fedrank.experiments.known import family, refuse_meaningless, step_size
from fedrank.experiments.protocols import PROTOCOLS
from fedrank.privacy.accountant import DELTA
from fedrank.privacy.randomised_response import probability
from fedrank.silos.config import Bandit, Network, Silos
from fedrank.texts.config import Sketch, Texts, Training

#: p of FOLtR-ES when neither p nor ε is given: the paper's choice for its main results (Section 6.3).
DEFAULT_P = 0.9
#: Norm that FPDGD clips to where there is noise (ICTIR 2021, at its larger budgets).
DEFAULT_CLIP = 5.0


@dataclass(frozen=True)
class Privacy:
    """What a device does to what it sends. FOLtR-ES: give ``p`` or ``epsilon``, not both; without them p = 0.9."""

    p: float | None = setting(
        None,
        "foltr-es: probability that an interaction's metric is sent as it is. Without p and epsilon: 0.9.",
    )
    epsilon: float | None = setting(
        None, "foltr-es: ε of one interaction, instead of p. foltr-pdgd: ε of one round; without it nothing is noised."
    )
    delta: float = setting(DELTA, "δ of the tighter bound for a user over the whole run, and of Gaussian noise.")
    mechanism: Literal["randomised-response", "laplace", "gaussian"] = setting(
        "randomised-response", "foltr-es: a lie for each interaction, or noise on the sums that are sent."
    )
    clip: float | None = setting(
        None, "foltr-pdgd: largest norm of the weights that a device sends; with epsilon 5 if nothing is said."
    )
    clip_norm: Literal["l1", "l2"] = setting("l1", "foltr-pdgd: the norm that is clipped; the paper's is l2.")
    secure_sum: bool | None = setting(
        None,
        "foltr-pdgd: the server sees the sum only, without which a device's noise protects nothing. As said, or where "
        "there is an epsilon.",
    )

    def probability(self, n: int) -> float:
        """The p of randomised response over n values."""
        if self.epsilon is not None:
            return probability(self.epsilon, n)
        return DEFAULT_P if self.p is None else self.p


@dataclass(frozen=True)
class Devices:
    """How devices differ, and what happens to their replies; by default all are alike and all are heard."""

    users: tuple[str, ...] = setting((), "Click models dealt out to the devices; empty: 'clicks' everywhere.")
    amounts: Literal["equal", "skewed"] = setting(
        "equal", "Interactions of a device in a round: equal, or from few to 'interactions'."
    )
    dropout: float = setting(0.0, "Probability that a device is not heard in a round.")
    late: float = setting(0.0, "Probability that a reply is to the question of 'delay' rounds ago: a straggler.")
    delay: int = setting(5, "Rounds that stragglers are behind.")


@dataclass(frozen=True)
class Liars:
    """Devices that lie."""

    kind: str = setting("none", "What liars send (see the reference), or 'poisoned-clicks' for inverted users.")
    share: float = setting(0.0, "Share of the devices that lie.")


@dataclass(frozen=True)
class Evaluation:
    """What is measured about the server's model while it learns."""

    every: int = setting(
        0,
        "Rounds between evaluations; the first and the last model are always evaluated. 0: 10; of silos 1; with texts "
        "100; of platforms 1,220.",
    )
    measures: tuple[str, ...] = setting(
        (),
        "Offline measures, each over all queries and over judged queries; empty: nDCG@10 and RR@10. Of silos: AUC; "
        "with texts nDCG@10, nDCG, ERR, MAP and MAP-JOS; platforms have engagement and no choice.",
    )
    users: tuple[str, ...] = setting((), "Click models for the exact expected metric; empty: the one that trains.")
    tie_orders: int = setting(
        1, "Shuffles of equal scores that an evaluation averages over, the same each time; 0: in the order of the data."
    )
    baselines: tuple[str, ...] = setting(
        ("auto",),
        "Rankers trained on labels, to compare with: MSE, RankingSVM, LambdaMART; auto is MSE. Of silos: alone and "
        "everyone; with texts bm25, local, local-plus, global, exact, pooled; of platforms random, choc, kale, myopic, "
        "optimum; auto is all of them.",
    )
    episodes: int = setting(128, "Platforms: stays of fresh users that an evaluation averages over, in each run.")


@dataclass(frozen=True)
class Compute:
    """How the run is computed. Nothing here changes what a device draws."""

    chunk: int = setting(16384, "Devices × seeds that answer at once; bounds the memory.")
    kernels: Literal["auto", "on", "off"] = setting(
        "auto", "Compiled CPU kernels: auto uses them on a CPU, off is pure JAX."
    )
    checkpoint_seconds: float = setting(30.0, "Seconds between checkpoints, which a killed run resumes from.")
    debug: bool = setting(
        False, "Without jit, device by device: slow, but an error names exchange, device and arguments."
    )


@dataclass(frozen=True)
class Personal:
    """Settings of single methods that bandit-fedavg is compared with."""

    pull: float = setting(1.0, "ditto: λ, how strongly a silo's model is pulled to everybody's.")
    share: float = setting(0.5, "apfl: α, the part of a silo's own model before the first round.")
    adaptive: bool = setting(True, "apfl: let every silo adapt it.")
    downloads: int | None = setting(None, "fedfomo: how many models of others a silo is sent; without it all.")
    explore: float = setting(0.3, "fedfomo: the chance that one of them is random.")
    clusters: int = setting(2, "ifca: models that silos choose from.")
    evidence: float = setting(
        0.0, "leave-one-out: e-value at which a silo is dropped for good; 0: 20 times the number of silos."
    )


@dataclass(frozen=True)
class RunConfig:
    """One experiment: the same protocol, data and users under several seeds.

    Raises:
        ConfigError: A setting is out of range or contradicts another.
        UnknownNameError: A name that no registry has.
    """

    protocol: str = setting(
        "foltr-es",
        "The protocol: foltr-es, foltr-pdgd; a central learner: pdgd, dbgd, mgd; of silos with tables: bandit-fedavg "
        "and what it is compared with (fedrank protocols); with texts: silo-sketch; of platforms that share users: "
        "vertical-slate, slateq, slateq-central.",
    )
    data: str = setting(
        "generated",
        "Name in the catalogue (fedrank data list), or a LETOR file or folder, of silos a CSV or parquet file, or "
        "a folder of texts, or several sets of texts joined by +; or 'generated'.",
    )
    fold: int = setting(1, "Fold of the data set, 1 to 5.")
    data_seed: int = setting(0, "Seed of generated data, of shares and of who differs how.")
    normalise: Literal["auto", "none", "query-minmax"] = setting(
        "auto", "Features: auto leaves data in [0, 1] alone and scales other data to it, query by query."
    )
    holdout: float = setting(
        0.0, "Share of the training queries that become the test part, where the data has none; by data_seed."
    )
    clicks: str = setting("navigational", "Click model: perfect, navigational or informational.")
    ranker: str = setting("linear", "Ranker: linear or mlp.")
    hidden: int = setting(10, "Hidden units of the mlp.")
    clients: int = setting(2000, "Devices; all take part in every round. A central learner has their interactions.")
    share: Literal["uniform", "fixed", "topic", "labels"] = setting(
        "uniform",
        "Queries of a device: uniform draws from all in each interaction, fixed keeps a share of its own, topic a "
        "share of similar queries, labels sees documents of few relevance grades only.",
    )
    queries_per_client: int | None = setting(
        None, "Size of a fixed share; without it, the queries are dealt out evenly."
    )
    topics: int = setting(10, "Topics that share = 'topic' cuts the queries into.")
    labels_per_client: int = setting(1, "Relevance grades that a device sees with share = 'labels'.")
    interactions: int = setting(4, "B, interactions of a device in a round.")
    rounds: int = setting(
        0,
        "Rounds; a round is one step of the server. 0: what the budget gives, or 250; of silos 15, with texts 2,000; "
        "of platforms, each of which shows a slate in a round, 24,400.",
    )
    budget: int | None = setting(None, "Interactions of all devices in a run, instead of rounds.")
    reward: str = setting("MaxRR", "Metric of an interaction's clicks that is maximised: MaxRR, DCG, nDCG or MeanRR.")
    reward_values: int | None = setting(
        None, "Round the reward to so many evenly spaced values: fewer mean a smaller ε at the same p."
    )
    sigma: float = setting(0.01, "foltr-es: σ, standard deviation of the perturbation.")
    learning_rate: float | None = setting(None, "Step size; without it the protocol's own, see the reference.")
    antithetic: bool = setting(True, "foltr-es: try the perturbation in both directions.")
    ties: Literal["fixed", "random"] = setting(
        "fixed", "foltr-es: equal scores in the order of the data, or shuffled each time."
    )
    as_published: bool = setting(
        False,
        "foltr-es: draw queries and clicks from the perturbation's seed, as the published code does; biased. "
        "foltr-pdgd: the paper's noise, without what it needs to protect anybody.",
    )
    candidates: int = setting(9, "mgd: rankers that are compared with the current one in each interaction.")
    radius: float = setting(1.0, "dbgd, mgd: distance of the candidates.")
    batch: bool = setting(
        False, "pdgd: one step a round with the sum of all gradients, as the published baseline does."
    )
    aggregate: str = setting(
        "mean", "What the server makes of the replies: mean, or a rule that stands liars (see the reference)."
    )
    byzantine: int | None = setting(
        None, "Liars that the rule allows for; without it as many as attack.share makes, at least 1."
    )
    i_know: bool = setting(False, "silo-sketch: that sketch.mode = 'paper' does not protect the owners of documents.")
    seeds: int = setting(5, "How many runs with different seeds.")
    seed: int = setting(0, "The first seed; the others follow.")
    privacy: Privacy = field(default_factory=Privacy)
    devices: Devices = field(default_factory=Devices)
    attack: Liars = field(default_factory=Liars)
    evaluation: Evaluation = field(default_factory=Evaluation)
    compute: Compute = field(default_factory=Compute)
    silos: Silos = field(default_factory=Silos)
    network: Network = field(default_factory=Network)
    bandit: Bandit = field(default_factory=Bandit)
    personal: Personal = field(default_factory=Personal)
    texts: Texts = field(default_factory=Texts)
    sketch: Sketch = field(default_factory=Sketch)
    training: Training = field(default_factory=Training)

    def __post_init__(self):
        PROTOCOLS.entry(self.protocol)
        object.__setattr__(self, "evaluation", self._evaluation())  # frozen: resolved once, here
        for name, value, low, high in (
            ("fold", self.fold, 1, 5),
            ("hidden", self.hidden, 1, 4096),
            ("clients", self.clients, 1, 10**8),
            ("interactions", self.interactions, 1, 10**6),
            ("topics", self.topics, 1, 10**4),
            ("labels_per_client", self.labels_per_client, 1, 100),
            ("candidates", self.candidates, 1, 1000),
            ("byzantine", self.byzantine or 0, 0, 10**8),
            ("reward_values", self.reward_values or 2, 2, 65_537),
            ("seeds", self.seeds, 1, 1000),
            ("seed", self.seed, 0, 2**32 - 1001),
            ("data_seed", self.data_seed, 0, 2**63 - 1),
            ("attack.share", self.attack.share, 0, 1),
            ("evaluation.every", self.evaluation.every, 1, 10**7),
            ("evaluation.tie_orders", self.evaluation.tie_orders, 0, 10**4),
            ("evaluation.episodes", self.evaluation.episodes, 2, 10**6),
            ("compute.chunk", self.compute.chunk, 1, 10**8),
        ):
            if not low <= value <= high:
                raise ConfigError(f"{name} must be in {low}..{high}, got {value}.")
        if not 0 <= self.holdout < 1:
            raise ConfigError(f"holdout must be in [0, 1), got {self.holdout}.")
        object.__setattr__(self, "rounds", self._rounds())  # frozen: resolved once, here
        if self.queries_per_client is not None and (self.share != "fixed" or self.queries_per_client < 1):
            raise ConfigError("queries_per_client must be at least 1 and needs share = 'fixed'.")
        if self.privacy.p is not None and self.privacy.epsilon is not None:
            raise ConfigError("privacy.p and privacy.epsilon say the same thing; give one of them.")
        if self.privacy.epsilon is not None and not 0 <= self.privacy.epsilon <= 1000:
            raise ConfigError(
                f"privacy.epsilon must be in 0..1000, got {self.privacy.epsilon}; leave it out for no noise."
            )
        if not 0 < self.privacy.delta < 1:
            raise ConfigError(f"privacy.delta must be between 0 and 1, got {self.privacy.delta}.")
        if self.attack.share and self.attack.kind == "none":
            raise ConfigError(f"attack.share = {self.attack.share} needs attack.kind, what the liars do.")
        if self.compute.checkpoint_seconds < 0:
            raise ConfigError(
                f"compute.checkpoint_seconds must not be negative, got {self.compute.checkpoint_seconds}."
            )

    def resolved(self) -> RunConfig:
        """The same with what the protocol's paper says where nothing is given.

        Raises:
            ConfigError: A setting was changed that this protocol does not know.
        """
        refuse_meaningless(self, RunConfig(protocol=self.protocol))
        privacy = self.privacy
        if self.protocol == "foltr-es":
            if privacy.mechanism != "randomised-response":
                if privacy.epsilon is None or privacy.p is not None:
                    raise ConfigError(f"privacy.mechanism = {privacy.mechanism!r} needs privacy.epsilon, and no p.")
            elif privacy.p is None and privacy.epsilon is None:
                privacy = dataclasses.replace(privacy, p=DEFAULT_P)
        if self.protocol == "foltr-pdgd":
            noised = privacy.epsilon is not None
            clip = DEFAULT_CLIP if noised and privacy.clip is None else privacy.clip
            if noised and privacy.secure_sum is False and not self.as_published:
                raise ConfigError(
                    "privacy.epsilon of foltr-pdgd needs the secure sum: a share of noise protects nothing where the "
                    "server sees single messages. Leave privacy.secure_sum out, or see as_published."
                )
            if privacy.secure_sum and clip is None:
                raise ConfigError("privacy.secure_sum needs privacy.clip, the bound that keeps the sum within 32 bits.")
            secure = (noised and not self.as_published) if privacy.secure_sum is None else privacy.secure_sum
            norm = "l2" if self.as_published else privacy.clip_norm
            privacy = dataclasses.replace(privacy, clip=clip, secure_sum=secure, clip_norm=norm)
        rate = step_size(self.protocol) if self.learning_rate is None else self.learning_rate
        return dataclasses.replace(self, privacy=privacy, learning_rate=rate)

    @property
    def of_silos(self) -> bool:
        """Whether silos with tables average models."""
        return family(self.protocol).name == "silos"

    @property
    def of_texts(self) -> bool:
        """Whether silos learn to rank over each other's texts."""
        return family(self.protocol).name == "texts"

    def _evaluation(self) -> Evaluation:
        e, usual = self.evaluation, family(self.protocol)
        return dataclasses.replace(
            e,
            every=e.every or usual.every,
            measures=e.measures or usual.measures,
            baselines=usual.baselines if e.baselines == ("auto",) else e.baselines,
        )

    def _rounds(self) -> int:
        rounds = self.rounds
        if self.budget is not None:
            a_round = self.clients * self.interactions
            if self.budget < a_round:
                raise ConfigError(f"budget must be at least one round, {a_round:,} interactions; got {self.budget:,}.")
            if rounds not in (0, self.budget // a_round):
                raise ConfigError(
                    f"rounds = {rounds} and budget = {self.budget:,} disagree: the budget is {self.budget // a_round} "
                    f"rounds of {a_round:,} interactions. Give one of them."
                )
            rounds = self.budget // a_round
        elif rounds == 0:
            rounds = family(self.protocol).rounds
        if not 1 <= rounds <= 10**6:
            raise ConfigError(f"rounds must be in 1..{10**6}, got {rounds}.")
        return rounds

    @property
    def all_seeds(self) -> tuple[int, ...]:
        """The seeds of the runs."""
        return tuple(range(self.seed, self.seed + self.seeds))
