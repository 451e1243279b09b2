"""The cases: tiny runs that together use every protocol, every kind of page, and what else prints numbers.

Command lines are written as one would type them after ``fedrank``. ``@NAME`` is the folder of case NAME's first
command, ``@`` the case's own, and ``@/FILE`` a file of the case.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Case:
    """One or more command lines whose results are recorded together.

    Attributes:
        name: Key in the recording; stays the same when the command line changes.
        commands: Command lines, run in this order. One that leaves a run's directory writes to ``@``.
        files: Files that are written to the case's folder first, by relative path.
        real: Whether the case needs real data (the environment variable ``FEDRANK_DATA``).
        prints: The kind that numbers on standard output belong to, or "" if they are not recorded.
    """

    name: str
    commands: tuple[str, ...]
    files: Mapping[str, str] = field(default_factory=dict)
    real: bool = False
    prints: str = ""

    @property
    def needs(self) -> tuple[str, ...]:
        """Names of the cases whose folders the command lines read."""
        words = [word for command in self.commands for word in command.split()]
        names = (word[1:].split("/")[0] for word in words if word.startswith("@"))
        return tuple(dict.fromkeys(name for name in names if name))


def _letor(first: int, queries: int) -> str:
    """Rows of a LETOR file: 6 documents a query, 5 features in [0, 1], grades 0 to 2 that features 1 and 2 explain."""
    rows = []
    for q in range(first, first + queries):
        for d in range(6):
            features = [((q * 7 + d * 11) % 13) / 13, ((q * 5 + d * d * 3) % 17) / 17]
            features += [((q * 3 + d * 7 + k * 5) % 19) / 19 for k in range(3)]
            grade = min(2, int(1.2 * features[0] + 1.1 * features[1] + ((q + d) % 5) / 10))
            pairs = " ".join(f"{k + 1}:{value:.6f}" for k, value in enumerate(features))
            rows.append(f"{grade} qid:{q} {pairs}")
    return "\n".join(rows) + "\n"


LETOR = {"letor/train.txt": _letor(0, 24), "letor/vali.txt": _letor(100, 8), "letor/test.txt": _letor(200, 8)}

_DEVICES = "--data @/letor --clients 6 --rounds 4 --seeds 2 --evaluation.every 2 --quiet --out @"
_LONGER = "--data @/letor --clients 12 --rounds 6 --seeds 2 --evaluation.every 3 --quiet --out @"
_SILOS = (
    "--rounds 3 --seeds 2 --silos.train 20 --silos.count 3 --silos.rows 60 --network.widths 4 --network.epochs 2 "
    "--evaluation.no-sceptic "
    "--quiet --out @"
)
_TEXTS = (
    "--rounds 4 --seeds 2 --evaluation.every 2 --evaluation.measures nDCG(dcg='exp-log2')@10 --evaluation.measures MAP "
    "--texts.silos 3 --texts.depth 8 --texts.negatives 2 --texts.foreign 4 "
    "--training.local-steps 5 --training.batch 16 --training.cross-batch 16 --training.ramp 2 --evaluation.folds 0 "
    "--quiet --out @"
)
_SMALL = "--sketch.z 2 --sketch.w 64 --sketch.statistics-z 2 --sketch.statistics-w 512"
_ASKING = "--sketch.z 6 --sketch.z1 2 --sketch.w 64 --sketch.statistics-z 2 --sketch.statistics-w 512"
_PLATFORMS = (
    "--rounds 24 --seeds 2 --world.candidates 4 --world.slate 2 --slates.local-widths 3 --slates.batch 2 "
    "--slates.memory 12 --slates.burn-in 5 --evaluation.every 8 --evaluation.episodes 3 --quiet --out @"
)
_TWO = "--world.time-budget 8 --slates.head-widths 2"
_THREE = "--world.platforms 3 --world.time-budget 12 --slates.head-widths 2"
_SOME = "--evaluation.baselines random --evaluation.baselines choc"
_NONE = "--evaluation.empty-baselines"


def _ranking(name: str, protocol: str, flags: str = "", runs: str = _DEVICES) -> Case:
    if protocol == "foltr-es":  # the paper's way, unless the case is about another mechanism
        flags += " --interactions 4" if "--privacy.epsilon-user" in flags else ""
        flags += "" if "--privacy" in flags else " --privacy.p 0.9"
    return Case(name, (f"run {protocol} {flags} {runs}",), files=LETOR)


def _run(name: str, command: str) -> Case:
    return Case(name, (f"run {command}",))


_RANKING = [
    _ranking("es-linear", "foltr-es"),
    _ranking("es-kernels-off", "foltr-es", "--compute.kernels off"),
    _ranking("es-kernels-on", "foltr-es", "--compute.kernels on"),
    _ranking("es-debug", "foltr-es", "--compute.debug --evaluation.empty-baselines"),
    _ranking("es-mlp", "foltr-es", "--ranker mlp --hidden 3 --ties random --reward nDCG"),
    _ranking(
        "es-one-sided", "foltr-es", "--presentation one-sided --clicks informational --privacy.epsilon-interaction 2"
    ),
    _ranking("es-gaussian", "foltr-es", "--privacy gaussian --privacy.epsilon-interaction 1 --clicks perfect"),
    _ranking("es-laplace", "foltr-es", "--privacy laplace --privacy.epsilon-interaction 1 --reward MeanRR"),
    _ranking("es-private", "foltr-es", "--privacy.epsilon-user 1 --population 5000", runs=_LONGER),
    _ranking(
        "es-private-mlp", "foltr-es", "--privacy.epsilon-user 8 --population 400 --presentation antithetic --ranker mlp"
    ),
    _ranking("pdgd-federated-shares", "foltr-pdgd", "--privacy.epsilon-user 8 --population 400"),
    _ranking("pdgd-federated-server", "foltr-pdgd", "--privacy server-noise --privacy.epsilon-user 8 --population 400"),
    *(_ranking(name, name) for name in ("fedprox-pdgd", "fedopt-pdgd", "async-pdgd", "mdprank")),
    _ranking("es-published", "foltr-es-2019", "--clicks perfect"),
    _ranking("es-values", "foltr-es", "--reward DCG --reward-values 5 --privacy.p 0.6 --normalise query-minmax"),
    _ranking("es-liars-clip", "foltr-es", "--attack.kind inverted-metric --attack.share 0.3 --aggregate clip"),
    _ranking(
        "es-liars-quantile",
        "foltr-es",
        "--attack.kind targeted-seeds --attack.share 0.3 --aggregate clip-quantile",
        runs=_LONGER,
    ),
    _ranking(
        "es-liars-medians",
        "foltr-es",
        "--attack.kind random-metric --attack.share 0.3 --aggregate median-of-means --byzantine 2",
        runs=_LONGER,
    ),
    _ranking("es-poisoned", "foltr-es", "--attack.kind poisoned-clicks --attack.share 0.5 --clicks perfect"),
    _ranking("es-dropout", "foltr-es", "--devices.dropout 0.3 --devices.late 0.3 --devices.delay 2", runs=_LONGER),
    _ranking(
        "es-differing",
        "foltr-es",
        "--devices.amounts skewed --devices.users perfect --devices.users informational --share topic --topics 2",
    ),
    _ranking("es-share-fixed", "foltr-es", "--share fixed --queries-per-client 3 --data-seed 4"),
    _ranking("es-share-labels", "foltr-es", "--share labels --labels-per-client 2"),
    _ranking("es-natural", "foltr-nes", "--ties random --reward nDCG"),
    _ranking("es-cma", "foltr-cma", "--covariance full --learning-rate 2 --privacy.epsilon-interaction 2"),
    _ranking("coltr", "coltr", "--candidates 9 --clicks informational"),
    _ranking("coltr-federated", "foltr-coltr", "--candidates 9 --smoothing 1"),
    _ranking("pdgd-personal", "fedper-pdgd", "--personal 0.3 --devices.users perfect --devices.users informational"),
    _ranking("pdgd-personal-layer", "fedper-pdgd", "--ranker mlp --hidden 3"),
    _ranking("rankguard", "rankguard", "--peers 3 --history 8 --attack.kind lie --attack.share 0.3", runs=_LONGER),
    _ranking("pdgd-federated", "foltr-pdgd"),
    _ranking("pdgd-federated-kernels-off", "foltr-pdgd", "--compute.kernels off"),
    _ranking("pdgd-federated-private", "foltr-pdgd", "--privacy.epsilon 4 --privacy.clip 2"),
    _ranking("pdgd-federated-l2", "foltr-pdgd", "--privacy.epsilon 4 --privacy.clip-norm l2 --ranker mlp --hidden 3"),
    _ranking("pdgd-federated-secure", "foltr-pdgd", "--privacy secure-sum --privacy.clip 1 --devices.dropout 0.2"),
    _ranking("pdgd-federated-published", "foltr-pdgd-2021", "--privacy.epsilon 4"),
    _ranking(
        "pdgd-federated-median", "foltr-pdgd", "--aggregate median --attack.kind lie --attack.share 0.3", runs=_LONGER
    ),
    _ranking(
        "pdgd-federated-krum", "foltr-pdgd", "--aggregate krum --attack.kind fang-krum --attack.share 0.3", runs=_LONGER
    ),
    _ranking(
        "pdgd-federated-multi-krum",
        "foltr-pdgd",
        "--aggregate multi-krum --attack.kind scaled-inverse --attack.share 0.3",
        runs=_LONGER,
    ),
    _ranking(
        "pdgd-federated-trimmed",
        "foltr-pdgd",
        "--aggregate trimmed-mean --attack.kind fang-trimmed-mean --attack.share 0.3",
        runs=_LONGER,
    ),
    _ranking("pdgd-central", "pdgd", "--evaluation.baselines RankingSVM --evaluation.baselines LambdaMART"),
    _ranking("pdgd-central-batch", "pdgd", "--batch --ranker mlp --hidden 3 --evaluation.tie-orders 0"),
    _ranking("dbgd", "dbgd", "--radius 0.5 --evaluation.users perfect --evaluation.users informational"),
    _ranking("mgd", "mgd", "--candidates 3 --evaluation.measures ERR(max_label=2) --evaluation.measures MAP"),
    _run(
        "es-generated", "foltr-es --privacy.p 0.9 --clients 4 --rounds 2 --seeds 1 --evaluation.every 2 --quiet --out @"
    ),
]

_TABLES = [
    _run(
        "bandit-extreme-all",
        f"bandit-fedavg --silos.target all --bandit.arms all --bandit.probe {_SILOS} {_NONE}",
    ),
    _run(
        "bandit-greedy",
        f"bandit-fedavg --bandit.rule epsilon-greedy --bandit.alpha 0.5 --bandit.every 2 {_SILOS} {_NONE}",
    ),
    _run("bandit-ucb", f"bandit-fedavg --bandit.rule ucb --bandit.chance 0.3 --bandit.against previous {_SILOS}"),
    _run(
        "bandit-thompson",
        "bandit-fedavg --bandit.rule thompson --bandit.threshold 0.02 --bandit.gamma 0.9 --bandit.no-alone "
        f"{_SILOS} {_NONE}",
    ),
    _run(
        "bandit-bayesian",
        "bandit-fedavg --bandit.rule bayesian-extreme-explore --bandit.threshold 0.02 --bandit.arms clusters "
        f"--bandit.clusters 2 --bandit.patience 2 {_SILOS} {_NONE}",
    ),
    _run("bandit-fixed", f"bandit-fedavg --bandit.rule fixed --bandit.fixed 1 --bandit.arms everyone {_SILOS} {_NONE}"),
    _run(
        "bandit-delayed",
        f"bandit-fedavg --bandit.delayed --bandit.no-pretrain --silos.inverted hospital-C {_SILOS} {_NONE}",
    ),
    _run("fedavg", f"fedavg --network.norm layer --silos.measure log-loss --silos.stratified {_SILOS} {_NONE}"),
    _run(
        "fedavg-dropout",
        f"fedavg --network.norm none --network.crossing average --devices.dropout 0.3 {_SILOS} {_NONE}",
    ),
    _run("fedavg-recalibrate", f"fedavg --network.crossing recalibrate --network.weight-decay 0.01 {_SILOS} {_NONE}"),
    *(
        _run(name, f"{name} {_SILOS} {_NONE}")
        for name in ("fedavg-finetune", "fedper", "fedbn", "fedfomo", "ifca", "local-only", "pooled")
    ),
    _run("ditto", f"ditto --personal.pull 0.5 {_SILOS} {_NONE}"),
    _run("apfl", f"apfl --personal.share 0.4 {_SILOS} {_NONE}"),
    _run("fedfomo-two", f"fedfomo --personal.downloads 1 --personal.explore 0.5 --silos.target 1 {_SILOS} {_NONE}"),
    _run("leave-one-out", f"leave-one-out --personal.evidence 2 {_SILOS} {_NONE}"),
]

_DOCUMENTS = [
    _run("sketch-plain", f"silo-sketch --sketch.mode plain {_SMALL} {_TEXTS}"),
    _run(
        "sketch-published", f"silo-sketch --sketch.epsilon 8 --sketch.w 256 --sketch.statistics-w 512 {_TEXTS} {_NONE}"
    ),
    _run(
        "sketch-gaussian",
        "silo-sketch --sketch.epsilon 8 --sketch.noise gaussian --sketch.kind count-min --sketch.estimate median "
        f"--texts.scale federation --training.loss regression --training.serial {_SMALL} {_TEXTS} {_NONE}",
    ),
    _run(
        "sketch-paper",
        "silo-sketch-2021 --sketch.decoys icde --sketch.as-published --training.loss listwise "
        f"{_ASKING} {_TEXTS} {_NONE}",
    ),
    _run(
        "sketch-topics",
        "silo-sketch --sketch.mode plain --texts.cut topic --texts.candidates reverse-top-k --texts.scale query "
        f"--training.beta 0.1 --devices.dropout 0.3 {_SMALL} {_TEXTS} {_NONE}",
    ),
]

_SLATES = [
    _run("slates-two", f"vertical-slate {_TWO} {_PLATFORMS} {_SOME}"),
    _run("slates-baselines", f"vertical-slate --world.preset tension {_TWO} {_PLATFORMS}"),
    _run("slates-published", f"vertical-slate-2024 {_TWO} {_PLATFORMS} {_SOME}"),
    _run(
        "slates-paper",
        "vertical-slate --world.preset paper --world.choice multinomial-no-click --world.no-shared-candidates "
        f"--slates.optimiser top-k --slates.target sarsa --slates.choice learned {_TWO} {_PLATFORMS} {_NONE}",
    ),
    _run(
        "slates-team",
        "vertical-slate --slates.feedback all --slates.objective team --slates.head linear --world.turns shuffled "
        f"--world.time-budget 8 {_PLATFORMS} {_NONE}",
    ),
    _run("slates-three-pooled", f"vertical-slate --slates.others pooled {_THREE} {_PLATFORMS} {_NONE}"),
    _run(
        "slates-noise",
        f"vertical-slate --sharing.clip 2 --sharing.centre 1 --sharing.epsilon 4 {_TWO} {_PLATFORMS} {_NONE}",
    ),
    _run(
        "slates-laplace",
        f"vertical-slate --sharing.clip 2 --sharing.epsilon 4 --sharing.mechanism laplace {_TWO} {_PLATFORMS} {_NONE}",
    ),
    _run(
        "planned",
        "planned-slates --rounds 40 --seeds 2 --world.candidates 4 --world.slate 2 --world.time-budget 8 "
        "--slates.explorers 4 --slates.evidence 0 --evaluation.every 20 --evaluation.episodes 3 "
        f"--quiet --out @ {_SOME}",
    ),
    _run("slateq", f"slateq --world.time-budget 8 {_PLATFORMS} {_SOME}"),
    _run(
        "slateq-central",
        f"slateq --slates.central --slates.optimiser exact --world.time-budget 8 {_PLATFORMS} {_SOME}",
    ),
]

_ATTACKS = [
    Case(
        "attack-sketch",
        ("privacy attack sketch --trials 60 --z 6 --w 40 --z1 2 --vocabulary 500 --json",),
        prints="metrics",
    ),
    Case(
        "attack-sketch-gaussian",
        (
            "privacy attack sketch --modes publish-once --mechanism gaussian --trials 40 --z 6 --w 40 --z1 2 "
            "--vocabulary 99 --json",
        ),
        prints="metrics",
    ),
    Case(
        "attack-slates",
        (
            "privacy attack slates --modes corrected --modes noisy-values --seeds 1 "
            " --episodes 6 --candidates 4 --slate 2 --json",
        ),
        prints="metrics",
    ),
]

_PRIVACY = [
    Case(
        "privacy",
        (
            "privacy epsilon --p 0.9 --json",
            "privacy epsilon --epsilon 2 --n 5 --interactions 3 --rounds 7 --no-antithetic --json",
            "privacy sketch --epsilon 4 --json",
            "privacy sketch --z 30 --w 200 --json",
        ),
        prints="privacy",
    ),
]

_SWEEP = """\
protocol = "foltr-es"
data = "@/letor"
clients = 4
rounds = 2
seeds = 2

[evaluation]
every = 1

[vary]
"privacy.p" = [0.9, 0.6]
clicks = ["perfect", "navigational"]
"""

_PAPER = {
    "paper/expected.json": """\
{"name": "small", "title": "A small study", "citation": "kharitonov2019foltr",
 "studies": ["curves", "account"],
 "values": [{"study": "curves", "where": {"clicks": "perfect"}, "split": "test", "measure": "nDCG(dcg='exp-log2')@10",
             "value": 0.5, "source": "nowhere"}]}
""",
    "paper/account.toml": """\
[study]
title = "Account"
program = "privacy.py:privacy_results"
text = "Computed."
""",
    "paper/privacy.py": (Path(__file__).parents[3] / "reproductions/foltr_es_2019/privacy.py").read_text("utf-8"),
    "paper/curves.toml": """\
protocol = "foltr-es"
data = "@/letor"
clients = 4
rounds = 4
seeds = 2

[evaluation]
every = 2

[study]
title = "Curves"
text = "Two click models."
measures = ["test: nDCG(dcg='exp-log2')@10"]
curves = ["test: nDCG(dcg='exp-log2')@10"]

[vary]
clicks = ["perfect", "navigational"]
""",
}

_PAGES = [
    Case("report", ("report @es-linear --out @/page.html --json",), prints="output"),
    Case("report-silos", ("report @bandit-extreme-all --out @/page.html --json",), prints="output"),
    Case("report-texts", ("report @sketch-plain --out @/page.html --json",), prints="output"),
    Case("report-platforms", ("report @slates-two --out @/page.html --json",), prints="output"),
    Case("compare", ("compare @es-linear @es-mlp @pdgd-central --out @ --json",), prints="output"),
    Case("compare-silos", ("compare @bandit-extreme-all @fedfomo-two --out @ --json",), prints="output"),
    Case("compare-texts", ("compare @sketch-plain @sketch-published --out @ --json",), prints="output"),
    Case("compare-platforms", ("compare @slates-two @slateq --out @ --json",), prints="output"),
    Case(
        "sweep", ("sweep @/sweep.toml --out @ --quiet --json",), files=LETOR | {"sweep.toml": _SWEEP}, prints="output"
    ),
    Case("study", ("reproduce @/paper --out @ --quiet --json",), files=LETOR | _PAPER, prints="output"),
]

_REAL = [
    Case(
        "real-mq2008",
        (
            "run foltr-es --privacy.p 0.9 --data mq2008 --fold 2 --clients 6 --rounds 2 --seeds 1 --evaluation.every 2 "
            "--evaluation.empty-baselines --quiet --out @",
        ),
        real=True,
    ),
    Case(
        "real-heart-disease",
        (
            "run bandit-fedavg --data heart-disease --silos.train 40 --silos.exclude switzerland --rounds 2 --seeds 1 "
            "--evaluation.no-sceptic --network.widths 4 --network.epochs 2 --quiet --out @",
        ),
        real=True,
    ),
    Case(
        "real-adi",
        (
            "run silo-sketch --data adi --sketch.mode plain --rounds 2 --seeds 1 --evaluation.every 2 "
            "--evaluation.measures nDCG(dcg='exp-log2')@10 --texts.silos 2 --texts.depth 8 --texts.foreign 4 "
            f"--training.local-steps 5 --training.batch 16 --training.cross-batch 16 --evaluation.folds 0 "
            f"{_SMALL} --quiet --out @",
        ),
        real=True,
    ),
]

CASES: tuple[Case, ...] = (*_RANKING, *_TABLES, *_DOCUMENTS, *_SLATES, *_ATTACKS, *_PRIVACY, *_PAGES, *_REAL)

#: Cases that take a second or two; the quick tests run these.
QUICK = ("privacy",)
