"""Runs of silos, from a configuration to the files: what is counted, kept and gone on with."""

import dataclasses
import json
import os
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from scipy.stats import ttest_1samp
from short_settings import run_of

from fedrank.core.errors import ConfigError, DataError
from fedrank.core.ledger import Ledger
from fedrank.engine import runner
from fedrank.engine.config import Compute
from fedrank.engine.run import Interrupted, resume_experiment, run_experiment
from fedrank.engine.settings import from_dict, with_setting
from fedrank.silos.bandit_fedavg import Bandit
from fedrank.silos.build import build_silos
from fedrank.silos.config import Devices, Network, Silos, SilosEvaluation
from fedrank.silos.task import TASK
from fedrank_zoo.reproduce.study import load_file

RULES = load_file(Path(__file__).parents[3] / "reproductions" / "mab_fl_2021" / "rules.py")
STATIONARY, cells, play_cells = RULES.STATIONARY, RULES.cells, RULES.play_cells
SMALL = run_of(
    "bandit-fedavg",
    rounds=4,
    seeds=2,
    silos=Silos(target="all", train=20.0, count=3, rows=60),
    network=Network(widths=(4,), epochs=2),
    bandit=Bandit(arms="all", probe=True),
    evaluation=SilosEvaluation(baselines=()),
)
#: The method with the default bandit.
PAIRS = dataclasses.replace(SMALL.method, bandit=Bandit())
#: What a run and one that was stopped must agree in; the others hold times.
SAME = ("metrics.parquet", "arms.parquet", "crossed.parquet", "evidence.json", "ledger.jsonl", "privacy.json")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return run_experiment(SMALL, tmp_path_factory.mktemp("silos") / "run")


def test_a_run_leaves_what_a_reader_needs(folder):
    about = json.loads((folder / "silos.json").read_text())
    names = about["silos"]
    assert about["targets"] == names and len(names) == 3
    arms = pl.read_parquet(folder / "arms.parquet")
    # Each of three targets, two seeds, four rounds, four sets of the two others.
    assert len(arms) == 3 * 2 * 4 * 4
    assert arms.group_by("seed", "target", "round").agg(pl.col("played").sum())["played"].unique().to_list() == [1]
    # Extreme Explore: the arm that was played had the largest increment of its round.
    best = arms.with_columns(top=pl.col("increment").max().over("seed", "target", "round")).filter("played")
    np.testing.assert_array_equal(best["increment"], best["top"])
    weights = sorted(path.name for path in (folder / "weights").iterdir())
    wanted = [f"{i}-{name.lower()}-seed{seed}.safetensors" for i, name in enumerate(names) for seed in (0, 1)]
    assert weights == sorted(wanted)


def test_the_evidence_is_what_the_increments_say(folder):
    evidence = json.loads((folder / "evidence.json").read_text())
    arms = pl.read_parquet(folder / "arms.parquet")
    names = json.loads((folder / "silos.json").read_text())["silos"]
    target, helper = names[0], names[1]
    mine = arms.filter(pl.col("target") == target)
    wide = mine.pivot("code", index=["seed", "round"], values="increment").sort("seed", "round")
    alone, first, second, both = (wide[code].to_numpy() for code in ("100", "110", "101", "111"))
    assert np.all(alone == 0)
    paired = ((first - alone) + (both - second)) / 2
    got = evidence[target]["silos"][helper]
    assert got["n"] == len(paired) == 8
    assert got["mean"] == pytest.approx(paired.reshape(2, 4).mean(), abs=1e-6)
    # Two seeds, one number each; two other silos are asked about.
    assert got["p"] == pytest.approx(min(1.0, 2 * ttest_1samp(paired.reshape(2, 4).mean(axis=1), 0).pvalue), abs=1e-3)
    # Two helpers: Shapley's value is the mean of the two orders.
    assert got["shapley"]["mean"] == pytest.approx(paired.reshape(2, 4).mean(), abs=1e-6)


def test_a_model_can_be_used_on_rows_as_they_are(folder):
    """The file alone: standardise, multiply, and the AUC on the test rows is the one that the run told."""
    from safetensors.numpy import load_file
    from sklearn.metrics import roc_auc_score

    experiment = build_silos(SMALL.resolved())
    model = load_file(folder / "weights" / "0-hospital-a-seed1.safetensors")
    silo = experiment.table.silos[0]
    rows = experiment.arrays.test
    n = int(rows.n[1, 0])
    x = (silo.features - model["input.mean"]) / model["input.deviation"]
    # Which rows are for the test only the division knows: they are found by their standardised values.
    mine = [int(np.argmin(np.abs(x - rows.x[1, 0, i]).sum(axis=1))) for i in range(n)]
    hidden = x[mine] @ model["layer1.weight"] + model["layer1.bias"]
    hidden = (hidden - model["norm1.running_mean"]) / np.sqrt(model["norm1.running_var"] + 1e-5)
    hidden = np.maximum(hidden * model["norm1.weight"] + model["norm1.bias"], 0)
    logits = hidden @ model["layer2.weight"] + model["layer2.bias"]
    told = pl.read_parquet(folder / "metrics.parquet").filter(
        (pl.col("seed") == 1) & (pl.col("round") == 4) & (pl.col("split") == "test")
    )
    best = told.filter(pl.col("measure") == f"AUC, best so far ({silo.name})")["value"][0]
    assert roc_auc_score(silo.labels[mine], logits[:, 1] - logits[:, 0]) == pytest.approx(best, abs=1e-5)


def test_the_ledger_counts_what_crossed(folder):
    ledger = Ledger.read(folder / "ledger.jsonl")
    by = {(e.round, e.exchange, e.sender): e.messages for e in ledger}
    # Three silos: pre-training and the probe once; training of three and one judgement a round.
    assert by[0, "pretrain", "server"] == by[0, "pretrain", "parties"] == 3
    assert by[0, "probe", "server"] == 1 and (1, "probe", "server") not in by
    assert all(by[n, "train", "server"] == 3 and by[n, "judge-all", "parties"] == 1 for n in range(4))
    metrics = pl.read_parquet(folder / "metrics.parquet")
    last = metrics.filter(pl.col("round") == 4)
    assert last["interactions"].unique().to_list() == [3 + 3 + 2 + 4 * (3 + 3 + 1 + 1)]
    assert last["bytes_up"].unique().to_list() == [ledger.bytes_from("parties")]


@pytest.mark.slow
def test_every_target_by_itself_learns_the_same(folder, tmp_path):
    alone = dataclasses.replace(SMALL, silos=dataclasses.replace(SMALL.silos, target="1"), seeds=1)
    arms = pl.read_parquet(run_experiment(alone, tmp_path / "one") / "arms.parquet")
    name = arms["target"][0]
    together = pl.read_parquet(folder / "arms.parquet").filter((pl.col("target") == name) & (pl.col("seed") == 0))
    np.testing.assert_allclose(arms["increment"], together["increment"], atol=1e-5)


def test_a_run_that_was_stopped_goes_on_to_the_same_files(folder, tmp_path, monkeypatch):
    class Stops(runner.Listener):
        def progress(self, progress):
            if progress.round == 2:
                os.kill(os.getpid(), 2)

    with pytest.raises(Interrupted):
        run_experiment(SMALL, tmp_path / "run", listener=Stops())
    assert (tmp_path / "run" / "checkpoint" / "state.npz").exists()
    resume_experiment(tmp_path / "run")
    for name in SAME:
        if name.endswith(".parquet"):
            assert pl.read_parquet(tmp_path / "run" / name).equals(pl.read_parquet(folder / name)), name
        else:
            assert (tmp_path / "run" / name).read_bytes() == (folder / name).read_bytes(), name


def test_what_cannot_be_is_said():
    for changed, said in [
        ({"sillos.target": "x"}, "no setting named 'sillos'"),
        ({"personal.evidence": 2.0}, "personal means nothing to this protocol; it is a setting of"),
        ({"protocol": "fedavg"}, "bandit means nothing to this protocol; it is a setting of bandit-fedavg"),
        ({"bandit.rule": "thompson"}, "threshold"),
        ({"bandit.arms": "clusters", "bandit.clusters": 3}, "clusters must be"),
        ({"silos.target": "nobody"}, "no silo named 'nobody'"),
        ({"bandit.fixed": 9, "bandit.rule": "fixed"}, "fixed arm"),
        ({"silos.train": 59.0}, "too few"),
        ({"bandit.epsilon": 0.9}, "bandit.epsilon means nothing without bandit.rule"),
        ({"silos.label": "ill"}, "silos.label is about a file"),
        ({"evaluation.baselines": ["MSE"]}, "no baseline of silos named 'MSE'"),
        ({"network.crossing": "local", "network.norm": "layer"}, "batch norm"),
    ]:
        config = SMALL
        with pytest.raises((ConfigError, DataError), match=said):
            for key, value in changed.items():
                config = with_setting(config, key, value)
            TASK.build(config.resolved())


def test_settings_out_of_range_are_refused_by_name():
    for name, values in {
        "bandit.epsilon": (-0.1, 1.1), "bandit.every": (-1,), "bandit.chance": (2.0,), "bandit.fixed": (-1,),
        "bandit.patience": (0,), "network.epochs": (0,), "network.batch": (0,), "network.weight_decay": (-1.0,),
    }.items():  # fmt: skip
        for value in values:
            with pytest.raises(ConfigError, match=f"{name} must be"):
                with_setting(SMALL, name, value)


@pytest.mark.slow
def test_the_marks_are_runs_with_a_fixed_arm(tmp_path):
    one = dataclasses.replace(SMALL, silos=dataclasses.replace(SMALL.silos, target="0"))
    marked = dataclasses.replace(one, evaluation=SilosEvaluation())
    marks = json.loads((run_experiment(marked, tmp_path / "marked") / "baselines.json").read_text())["baselines"]
    for mark, arm in zip(marks, (0, 1), strict=True):
        method = dataclasses.replace(one.method, bandit=Bandit(rule="fixed", arms="everyone", fixed=arm))
        fixed = dataclasses.replace(one, method=method)
        frame = pl.read_parquet(run_experiment(fixed, tmp_path / mark["name"]) / "metrics.parquet")
        last = frame.filter((pl.col("round") == 4) & (pl.col("split") == "test"))
        for said in mark["values"]:
            if said["split"] == "test":
                mine = last.filter(pl.col("measure") == said["measure"])["value"].mean()
                assert said["value"] == pytest.approx(mine, abs=1e-5)


def test_a_protocol_has_its_own_settings_and_keeps_those_that_another_knows():
    assert (run_of("bandit-fedavg").rounds, run_of("bandit-fedavg").evaluation.every) == (15, 1)
    config = from_dict({"protocol": "fedavg", "rounds": 7, "network": {"widths": [3, 2]}})
    other = with_setting(config, "protocol", "leave-one-out")
    assert (other.rounds, other.method.network.widths, other.method.personal.evidence) == (7, (3, 2), 0.0)
    with pytest.raises(ConfigError, match=r"network.crossing means nothing"):
        with_setting(with_setting(config, "network.crossing", "local"), "protocol", "fedper")


def test_table_3_has_forty_cells_that_are_thirty_seven_settings():
    alphas = [STATIONARY, 0.25, 0.5, 0.75]
    table = [
        {"rule": "epsilon-greedy", "epsilon": [0.1, 0.2, 0.5], "alpha": alphas},
        {"rule": "thompson", "threshold": [0.01, 0.025, 0.05], "gamma": [STATIONARY, 0.5, 0.75, 1.0]},
        {"rule": "ucb", "c": [0.01, 0.05, 0.1], "alpha": alphas},
        {"rule": "ucb", "c": [0.05], "threshold": [0.025], "alpha": [STATIONARY, 0.75]},
        {"rule": "extreme-explore"},
        {"rule": "bayesian-extreme-explore", "threshold": [0.05]},
    ]
    assert len(cells(table)) == 37


@pytest.mark.slow
def test_a_table_of_rules_is_each_rule_by_itself():
    config = dataclasses.replace(SMALL, method=PAIRS, silos=dataclasses.replace(SMALL.silos, target="0"))
    experiment = build_silos(config.resolved())
    todo = cells([{"rule": "ucb", "c": [0.05]}, {"rule": "extreme-explore"}])
    together = play_cells(experiment, todo)
    for i, cell in enumerate(todo):
        alone = play_cells(experiment, [cell])
        np.testing.assert_allclose(together.test[i], alone.test[0], atol=1e-5)
        np.testing.assert_array_equal(together.arm[i], alone.arm[0])
    assert together.messages[1] == 3 + 3 + 2


@pytest.mark.slow
@pytest.mark.parametrize(
    "protocol",
    ["fedavg", "fedavg-finetune", "fedper", "leave-one-out", "local-only"],
)
def test_every_method_runs(protocol, tmp_path):
    plain = dataclasses.replace(SMALL, method=PAIRS, rounds=2, seeds=1)
    config = with_setting(plain, "protocol", protocol)
    folder = run_experiment(config, tmp_path / protocol)
    frame = pl.read_parquet(folder / "metrics.parquet").filter(pl.col("split") == "test")
    assert frame["value"].is_between(0, 1).all()
    crossed = pl.read_parquet(folder / "crossed.parquet")
    assert crossed.is_empty() == (protocol == "local-only")


@pytest.mark.slow
def test_a_hundred_silos_work_with_clusters_and_drop_outs(tmp_path):
    config = dataclasses.replace(
        SMALL,
        silos=Silos(target="hospital-A", train=10.0, count=100, rows=40),
        method=dataclasses.replace(PAIRS, bandit=Bandit(rule="ucb", arms="clusters", clusters=6)),
        devices=Devices(dropout=0.2),
        compute=Compute(checkpoint_seconds=0.0),
        rounds=2,
        seeds=1,
    )
    folder = run_experiment(config, tmp_path / "many")
    arms = pl.read_parquet(folder / "arms.parquet")
    assert arms["arm"].n_unique() == 7 and arms["code"].str.len_chars().unique().to_list() == [100]
