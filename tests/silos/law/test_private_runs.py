"""Runs in which a record has an ε: what is written, how rows are scaled, and a silo's node with a table of its own."""

import json

import numpy as np
import polars as pl
import pytest
from short_settings import run_of
from silo_worlds import for_all, word

import fedrank
from fedrank.core.errors import ConfigError, UnknownNameError
from fedrank.core.privacy_report import PrivacyReport, Unit
from fedrank.engine.deployment import NodeSettings
from fedrank.engine.run import run_experiment
from fedrank.engine.run_folder import RunFolder
from fedrank.silos.baselines import run_baselines
from fedrank.silos.build import build_silos, load_table, public_standards, sizes
from fedrank.silos.config import Network, RecordPrivacy, Silos, SilosEvaluation
from fedrank.silos.data.splits import split_many
from fedrank.silos.deployment import silos_node, silos_server
from fedrank.silos.model import SiloModel
from fedrank.silos.records.private_sgd import Draws, NoisyJudgements
from fedrank.silos.records.ranges import parse_ranges, standards_of

pytestmark = pytest.mark.slow
NETWORK = Network(widths=(2,), norm="layer", epochs=1)
PRIVACY = RecordPrivacy(epsilon=3.0)


def test_a_run_says_what_a_record_has_and_keeps_the_scale_of_public_ranges(tmp_path):
    config = run_of(
        "bandit-fedavg",
        rounds=2,
        silos=Silos(rows=60, count=3),
        network=NETWORK,
        privacy=PRIVACY,
        evaluation=SilosEvaluation(sceptic=False),
    )
    run_experiment(config, tmp_path / "run")
    report = PrivacyReport.from_json(json.loads((tmp_path / "run" / "privacy.json").read_text()))
    assert 2.9 < report.epsilon(Unit.RECORD, scope="training rows") <= 3.0
    assert 2.9 < report.epsilon(Unit.RECORD, scope="validation rows") <= 3.0
    assert any("DP-SGD" in said for said in report.words)
    model = fedrank.load(tmp_path / "run")
    assert set(model.mean) == {0.0} and set(model.deviation) == {1.5}


def test_everyone_beside_a_private_run_is_chosen_by_noised_aucs_and_alone_by_its_own(monkeypatch):
    silos = Silos(rows=66, count=3)
    config = run_of("bandit-fedavg", rounds=2, silos=silos, network=NETWORK, privacy=PRIVACY).resolved()
    noised: list[tuple[int, ...]] = []
    right = NoisyJudgements.add_noise

    def counted(self, values, rows, noise):
        noised.append((self.values, *values.shape))
        return right(self, values, rows, noise)

    monkeypatch.setattr(NoisyJudgements, "add_noise", counted)
    experiment = build_silos(config)
    run_baselines(experiment, ("alone",))
    assert not noised
    run_baselines(experiment, ("everyone",))
    assert noised and {one[::2] for one in noised} == {(4, 2)}  # two AUCs in each of two rounds


def test_one_record_in_anothers_place_changes_one_row_of_one_part():
    config = run_of("fedavg", silos=Silos(rows=60, count=2), network=NETWORK, privacy=PRIVACY).resolved()
    table = load_table(config)
    public = public_standards(config, table.feature_names)
    before = split_many(table, [0], sizes(config), config.silos.stratified, public)
    table.silos[0].features[3] += 2.5
    table.silos[0].labels[3] = 1 - table.silos[0].labels[3]
    after = split_many(table, [0], sizes(config), config.silos.stratified, public)
    changed = [np.any(a.x != b.x, axis=-1) | (a.y != b.y) for a, b in zip(after, before, strict=True)]
    assert sum(int(one.sum()) for one in changed) == 1


def test_a_node_with_its_own_table_trains_with_noise_for_its_rows_from_the_operating_system(tmp_path):
    rng = np.random.default_rng(0)
    lines = ["age,dose,label", *(f"{rng.integers(20, 80)},{rng.random():.3f},{k % 2}" for k in range(50))]
    (tmp_path / "own.csv").write_text("\n".join(lines))
    ranges = ("age=20:90", "dose=0:1")
    config = run_of(
        "fedavg",
        data="own",
        rounds=2,
        silos=Silos(count=2),
        network=NETWORK,
        privacy=RecordPrivacy(epsilon=3.0, ranges=ranges),
        evaluation=SilosEvaluation(sceptic=False),
    ).resolved()
    node = silos_node(config, NodeSettings(partition_id=0, num_partitions=2, data=str(tmp_path / "own.csv")))
    node.refuse_unprotected()
    careful = NodeSettings(partition_id=0, num_partitions=2, data=str(tmp_path / "own.csv"), most_run_epsilon=2.0)
    with pytest.raises(ConfigError, match="agrees to 2"):
        silos_node(config, careful).refuse_unprotected()
    # One round: two of the run's three trainings, that before the first round among them.
    one_round = node.protocol.account(1, 1e-6).epsilon(Unit.RECORD)
    assert 1.5 < one_round < node.protocol.account(2, 1e-6).epsilon(Unit.RECORD) <= 3.0
    for most, agrees in ((one_round * 1.01, True), (one_round * 0.99, False)):
        told = NodeSettings(partition_id=0, num_partitions=2, data=str(tmp_path / "own.csv"), most_epsilon=most)
        if agrees:
            silos_node(config, told).refuse_unprotected()
        else:
            with pytest.raises(ConfigError, match="a round of this run: ε"):
                silos_node(config, told).refuse_unprotected()
    block = node.block({})
    ((rows, z),) = block.protocol.sgd.multipliers
    assert rows == 30 == block.protocol.most_rows and z > 1
    np.testing.assert_allclose(public_standards(config, ("age", "dose"))[0], [55, 0.5])
    train = block.protocol.exchanges[-1]
    request = for_all(train.ask(block.protocol.init(word(0))), 1)
    draws = [Draws(*(leaf[None] for leaf in train.draw_from_os())) for _ in range(2)]
    one, other = (train.respond(request, block.parties, drawn)[1].weights for drawn in draws)
    assert np.isfinite(one).all() and np.abs(one - other).max() > 1e-3


def test_the_model_of_a_server_without_rows_scores_rows_as_the_silos_train_on_them(tmp_path):
    ranges = ("dose=0:1", "age=20:90")
    config = run_of(
        "fedavg",
        data="own",
        rounds=2,
        silos=Silos(count=2, label="ill", positive="yes"),
        network=NETWORK,
        privacy=RecordPrivacy(epsilon=3.0, ranges=ranges),
    ).resolved()
    server = silos_server(config, 2)
    (tmp_path / "kept" / "weights").mkdir(parents=True)
    server.write_models(RunFolder(tmp_path / "kept"), server.state())
    (file,) = (tmp_path / "kept" / "weights").glob("*-last.safetensors")
    model = fedrank.load(file)
    (tmp_path / "rows.csv").write_text("dose,ill,age\n0.25,no,20\n0.5,yes,55\n,yes,90\n")
    scored = model.score(pl.read_csv(tmp_path / "rows.csv"))
    # (age − 55) / 17.5 and (dose − 0.5) / 0.25 by hand; what is missing is in the middle.
    by_hand = np.array([[-2, -1], [0, 0], [2, 0]], np.float32)
    plain = SiloModel(model.network, model.weights, np.zeros(2), np.ones(2), names=("age", "dose"))
    np.testing.assert_allclose(scored, plain.score(by_hand), rtol=1e-5, atol=1e-6)
    assert model.evaluate(tmp_path / "rows.csv")["all"]["rows"] == 3
    with pytest.raises(ConfigError, match="ranges are of 2 columns, and rows have 3"):
        silos_server(config, 3)


def test_columns_without_a_range_and_ranges_of_no_column_are_refused():
    config = run_of("fedavg", data="own", privacy=RecordPrivacy(epsilon=1.0, ranges=("age=20:90",)))
    with pytest.raises(ConfigError, match="codebook"):
        public_standards(config, ("age", "dose"))
    with pytest.raises(UnknownNameError):
        public_standards(config, ("dose",))


def test_ranges_are_read_and_those_that_are_none_are_refused():
    assert parse_ranges(["a=0:1", "g=u=-1:1"]) == {"a": (0.0, 1.0), "g=u": (-1.0, 1.0)}
    for text in ("a", "a=1", "=0:1", "a=x:1", "a=0:1:2"):
        with pytest.raises(ConfigError, match="low:high"):
            parse_ranges([text])
    for bad in ((1, 1), (0, np.inf), (np.nan, 1)):
        with pytest.raises(ConfigError, match="rise"):
            standards_of(("a", "b"), {"a": bad, "b": (0, 1)})
    mean, deviation = standards_of(("a", "g=u"), {"a": (-2.0, 6.0)})
    np.testing.assert_array_equal([mean, deviation], [[2.0, 0.5], [2.0, 0.25]])
