"""A sweep over all folds takes those that are on this machine."""

import pytest

from fedrank.core.errors import ConfigError
from fedrank.engine.settings import from_dict
from fedrank.engine.variations import parse_vary, variations
from fedrank.ranking.data.reader import folds_here

ROWS = "".join(f"{d % 2} qid:{{q}} 1:{d / 4}\n" for d in range(4))


@pytest.fixture
def parts(tmp_path, monkeypatch):
    """A cache folder with four of the five parts of MQ2008, by name, and a folder with Fold1 and Fold3."""
    monkeypatch.setenv("FEDRANK_DATA", str(tmp_path))
    (tmp_path / "mq2008").mkdir()
    for number in (1, 2, 3, 4):
        (tmp_path / "mq2008" / f"S{number}.txt").write_text(ROWS.format(q=number))
    for fold in (1, 3):
        (tmp_path / "own" / f"Fold{fold}").mkdir(parents=True)
        (tmp_path / "own" / f"Fold{fold}" / "train.txt").write_text(ROWS.format(q=fold))
    (tmp_path / "own" / "one.txt").write_text(ROWS.format(q=1))
    return tmp_path


def test_folds_that_can_be_trained_are_there(parts):
    assert folds_here("mq2008") == [1, 2] and folds_here(str(parts / "own")) == [1, 3]
    (parts / "mq2008" / "S5.txt").write_text(ROWS.format(q=5))
    assert folds_here("mq2008") == [1, 2, 3, 4, 5] == folds_here("MQ2007")  # of a set that is not here, all
    assert folds_here("generated") == [1] == folds_here("mslr-sample") == folds_here(str(parts / "own" / "one.txt"))


def test_a_sweep_over_all_folds_depends_on_the_data_beside_it(parts):
    vary = {"fold": ["all"], "data": ["mq2008", str(parts / "own")], "clients": [5, 6]}
    found = [
        (v.config.fold, v.config.data.rpartition("/")[2], v.config.clients) for v in variations(from_dict({}), vary)
    ]
    assert found == [
        (fold, data, clients)
        for first_or_second in (0, 1)
        for data, folds in (("mq2008", (1, 2)), ("own", (1, 3)))
        for clients in (5, 6)
        for fold in [folds[first_or_second]]
    ]
    assert list(variations(from_dict({}), vary)[0].where) == ["fold", "data", "clients"]


def test_other_settings_have_no_list_of_all_values():
    assert parse_vary(["fold=all"]) == {"fold": ["all"]}
    with pytest.raises(ConfigError, match="clients"):
        variations(from_dict({}), {"clients": ["all"]})
    with pytest.raises(ConfigError, match="fold"):
        variations(from_dict({"protocol": "fedavg"}), {"fold": ["all"]})
