"""A node with a record's ε reads tables that differ in one record alike, whatever it holds."""

import logging

import numpy as np
import pytest
from neighbour_tables import tables  # noqa: F401 - a fixture
from short_settings import run_of

from fedrank.core.errors import DataError
from fedrank.engine.deployment import NodeSettings
from fedrank.silos.config import Network, RecordPrivacy, Silos
from fedrank.silos.deployment import read_table, silos_node

NETWORK = Network(widths=(2,), norm="layer", epochs=1)


def test_a_node_with_an_epsilon_reads_every_neighbour_alike(tables, caplog):
    settings = Silos(label="ill", positive="1", drop=("sex", "ward"))
    with caplog.at_level(logging.WARNING):
        made = {name: read_table(path, settings, private=True) for name, path in tables.items()}
    base = made["an ordinary one"][0]
    for name, (silo, columns) in made.items():
        assert columns == ("age", "hiv") and silo.features.shape == (40, 2), name
        others = np.arange(40) != 7
        np.testing.assert_array_equal(silo.features[others], base.features[others], err_msg=name)
        np.testing.assert_array_equal(silo.labels[others], base.labels[others], err_msg=name)
    assert "count as missing" in caplog.text


@pytest.mark.parametrize(
    ("cells", "positive", "ones"),
    [
        (("True", "False", "TRUE", "false"), None, [1, 0, 1, 0]),
        (("True", "False", "1", "0"), "1", [1, 0, 1, 0]),
        (("1", "0", "1.0", ""), "true", [1, 0, 1, 0]),
        (("1", "0", "true", "false"), "false", [0, 1, 0, 1]),
        (("yes", "no", "yes", "no"), "yes", [1, 0, 1, 0]),
    ],
)
def test_a_node_reads_true_and_false_with_an_epsilon_as_without(tmp_path, caplog, cells, positive, ones):
    path = tmp_path / "own.csv"
    path.write_text("x,ill\n" + "".join(f"{row},{cell}\n" for row, cell in enumerate(cells)))
    for private in (True, False):
        silo, _ = read_table(path, Silos(label="ill", positive=positive), private=private)
        assert silo.labels.tolist() == ones[: len(silo.labels)]
    assert not [said for said in caplog.records if said.levelno >= logging.ERROR]


@pytest.mark.parametrize(("cells", "positive"), [(("yes", "no"), None), (("yes", "no"), "ja"), (("2", "1"), None)])
def test_labels_that_may_not_be_read_as_meant_are_told_at_the_node_as_an_error(tmp_path, caplog, cells, positive):
    path = tmp_path / "own.csv"
    path.write_text("x,ill\n" + "".join(f"{row},{cells[row % 2]}\n" for row in range(6)))
    silo, _ = read_table(path, Silos(label="ill", positive=positive), private=True)
    assert silo.labels.sum() == 3 * cells.count("1") and len(silo.labels) == 6
    assert [said.levelno for said in caplog.records if "silos-positive" in said.getMessage()] == [logging.ERROR]


@pytest.mark.slow
@pytest.mark.parametrize("ill", [0, 1])
def test_a_target_with_labels_of_one_kind_is_neither_refused_nor_marked_with_an_epsilon(tmp_path, ill):
    """The only row with the other label is one record; without it AUCs are one half, with the noise of all others."""
    path = tmp_path / "own.csv"
    silos = Silos(count=2, target="0", label="ill")
    private = RecordPrivacy(epsilon=3.0, ranges=("x=0:60",))
    shapes = set()
    for other in (-1, 7):
        rows = "".join(f"{row},{1 - ill if row == other else ill}\n" for row in range(60))
        path.write_text("x,ill\n" + rows)
        config = run_of("bandit-fedavg", data="own", rounds=2, silos=silos, network=NETWORK, privacy=private).resolved()
        block = silos_node(config, NodeSettings(partition_id=0, num_partitions=2, data=str(path))).block({})
        models = np.random.default_rng(0).normal(size=(1, 3, block.protocol.parameters)).astype(np.float32)
        noise = np.array([[0, 0, 2**12, -(2**12)]], np.int32)
        judged = block.protocol.judge(models, block.parties, noise)
        told = np.append(judged.own, judged.models)
        assert np.all((told >= 0) & (told <= 1)), told
        shapes.add(told.shape)
        if other < 0:
            np.testing.assert_allclose(told[:2], 0.5, atol=0.05)
            assert told[2] > told[0] > told[3]
    assert len(shapes) == 1
    told = run_of("bandit-fedavg", data="own", rounds=2, silos=silos, network=NETWORK).resolved()
    with pytest.raises(DataError, match="one class"):
        path.write_text("x,ill\n" + "".join(f"{row},{ill}\n" for row in range(60)))
        silos_node(told, NodeSettings(partition_id=0, num_partitions=2, data=str(path)))
