"""Dividing silos: who gets which rows, what is learned from which, and what cannot be divided."""

import numpy as np
import pytest

from fedrank.core.errors import ConfigError, DataError, UnknownNameError
from fedrank.silos.data.splits import Rows, Sizes, split, split_many, training_notes, undefined_auc
from fedrank.silos.data.tables import Silo, SiloTable
from fedrank_zoo.local_only import pool_training_rows

SIZES = Sizes(6, 0.4)


def table(lengths=(20, 33, 26), features=3, seed=0):
    """Silos whose first column is a row's number, so that rows can be told apart after standardising."""
    rng = np.random.default_rng(seed)
    silos = []
    for k, rows in enumerate(lengths):
        x = rng.normal(5 * k, 1 + k, (rows, features)).astype(np.float32)
        x[:, 0] = np.arange(rows)
        silos.append(Silo(f"s{k}", x, (rng.random(rows) < 0.5).astype(np.int8)))
    return SiloTable("made", tuple(silos), tuple(f"x{f}" for f in range(features)), "yes")


def numbers(part: Rows, silo: int):
    """The valid rows of a silo, in order of the first column."""
    return np.sort(part.x[silo, : part.n[silo], 0])


def test_every_row_goes_to_one_part_and_padding_is_zero():
    made = table()
    arrays = split(made, 1, SIZES)
    for k, silo in enumerate(made.silos):
        assert arrays.train.n[k] == 6 and sum(part.n[k] for part in arrays) == silo.n_rows
        apart = np.diff(np.sort(np.concatenate([numbers(part, k) for part in arrays])))
        np.testing.assert_allclose(apart, apart[0], rtol=1e-3)  # equally spaced: every row once
    for part in arrays:
        assert part.x.dtype == part.y.dtype == np.float32 and part.n.dtype == np.int32
        assert part.x.shape[:2] == part.y.shape == part.where.shape and part.x.shape[1] == part.n.max()
        assert not part.x[~part.where].any() and not part.y[~part.where].any()
        np.testing.assert_array_equal(part.where.sum(axis=-1), part.n)


def test_training_rows_have_mean_0_and_deviation_1_and_others_are_moved_alike():
    made = table()
    arrays = split(made, 2, SIZES)
    for k, silo in enumerate(made.silos):
        train = arrays.train.x[k, :6].astype(np.float64)
        np.testing.assert_allclose(train.mean(axis=0), 0, atol=1e-6)
        np.testing.assert_allclose(train.std(axis=0), 1, rtol=1e-5)
        # What was done is linear: the original values, in order, are a line over the standardised ones.
        for column in range(3):
            new = np.sort(np.concatenate([part.x[k, : part.n[k], column] for part in arrays]))
            old = np.sort(silo.features[:, column])
            slope, start = np.polyfit(new, old, 1)
            np.testing.assert_allclose(slope * new + start, old, atol=1e-3)


def test_nothing_of_a_silo_or_of_held_out_rows_reaches_another():
    made = table()
    before = split(made, 3, SIZES)
    wild = [silo.features.copy() for silo in made.silos]
    wild[1] *= 100
    silos = list(made.silos)
    silos[1] = Silo("s1", wild[1], made.silos[1].labels)
    after = split(SiloTable("made", tuple(silos), made.feature_names, "yes"), 3, SIZES)
    alone = split(made.without("s1"), 3, SIZES)
    for part, changed, left in zip(before, after, alone, strict=True):
        for old, new in ((0, 0), (2, 1)):
            np.testing.assert_array_equal(part.x[old], changed.x[old])
            rows = part.n[old]
            np.testing.assert_array_equal(part.x[old, :rows], left.x[new, :rows])
    # A test row's value moves no other row.
    row = int(np.flatnonzero(~np.isin(np.arange(20), _taken(made, before)))[0])
    wild[0][row, 1] = 1e6
    silos = [Silo("s0", wild[0], made.silos[0].labels), *made.silos[1:]]
    after = split(SiloTable("made", tuple(silos), made.feature_names, "yes"), 3, SIZES)
    np.testing.assert_array_equal(after.train.x, before.train.x)
    assert (np.abs(np.concatenate([after.vali.x[0], after.test.x[0]])) > 1e3).sum() == 1


def _taken(made, arrays):
    """The training rows of the first silo, by undoing the standardising of the row's number."""
    everything = np.concatenate([part.x[0, : part.n[0], 0] for part in arrays])
    place = np.argsort(np.argsort(everything))
    return place[:6]


def test_constant_columns_and_missing_values_become_zero():
    rng = np.random.default_rng(4)
    x = rng.normal(size=(30, 4)).astype(np.float32)
    x[:, 1], x[:, 2] = 0.1, np.nan
    x[::3, 3] = np.nan
    made = SiloTable("made", (Silo("a", x, np.arange(30).astype(np.int8) % 2),), ("w", "c", "m", "g"), "yes")
    arrays = split(made, 0, Sizes(12, 0.5))
    for part in arrays:
        assert not part.x[..., 1:3].any() and np.isfinite(part.x).all()
    assert sum((part.x[..., 3] == 0).sum() for part in arrays) == 10
    known = arrays.train.x[0, :, 3][arrays.train.x[0, :, 3] != 0].astype(np.float64)
    np.testing.assert_allclose([known.mean(), known.std()], [0, 1], atol=1e-6)


def test_a_column_that_varies_a_little_far_from_zero_is_no_constant():
    x = (1e6 + np.arange(16, dtype=np.float32) % 4)[:, None]
    made = SiloTable("made", (Silo("a", x, np.arange(16).astype(np.int8) % 2),), ("t",), "yes")
    train = split(made, 0, Sizes(12, 0.5)).train.x[0, :, 0].astype(np.float64)
    np.testing.assert_allclose(train.std(), 1, rtol=1e-5)


def test_rows_are_drawn_uniformly():
    """Each of 20 rows is in training with probability 6/20: chi-square of 400 divisions, 19 degrees of freedom."""
    made = table((20,), features=1)
    arrays = split_many(made, range(400), SIZES)
    counts = np.zeros(20)
    for seed in range(400):
        everything = np.concatenate([part.x[seed, 0, : part.n[seed, 0], 0] for part in arrays])
        counts[np.argsort(np.argsort(everything))[:6]] += 1
    statistic = ((counts - 120) ** 2 / (120 * (1 - 0.3))).sum() * 19 / 20
    assert 4.9 < statistic < 45.0  # 0.999 on either side


def test_the_same_seed_divides_alike_and_another_differently():
    made = table()
    many = split_many(made, [5, 6], SIZES)
    for k, seed in enumerate((5, 6)):
        for part, one in zip(many, split(made, seed, SIZES), strict=True):
            for a, b in zip(part, one, strict=True):
                np.testing.assert_array_equal(a[k], b)
    assert many.train.x.shape == (2, 3, 6, 3) and (many.train.x[0] != many.train.x[1]).any()


def test_stratified_parts_have_the_share_of_positive_rows_up_to_one_row():
    for positive in [3, 17, 50]:
        x = np.random.default_rng(0).normal(size=(100, 1)).astype(np.float32)
        made = SiloTable("made", (Silo("a", x, (np.arange(100) < positive).astype(np.int8)),), ("x",), "yes")
        for seed in range(20):
            for part in split(made, seed, Sizes(20, 0.4), stratified=True):
                assert abs(part.y.sum() - positive * part.n[0] / 100) <= 1


def test_sizes():
    for sizes, rows, expected in [
        (Sizes(0.01, 0.4), 1000, (10, 400, 590)),
        (Sizes(40, 40 / 99), 139, (40, 40, 59)),
        (Sizes(40, 40 / 99), 46, (40, 2, 4)),
        (Sizes(40, 0.5), 140, (40, 50, 50)),
        (Sizes(4, 5), 100, (4, 5, 91)),
        (Sizes(0.1, 0.2), 15, (2, 3, 10)),
    ]:
        assert sizes.of(rows) == expected


def test_parts_use_every_row():
    for n in [100, 101, 250, 997]:
        assert {sum(sizes.of(n)) for sizes in (Sizes(0.01, 0.4), Sizes(0.1, 0.2), Sizes(40, 40 / 99))} == {n}


def test_sizes_out_of_range_are_refused():
    for bad in [(0, 0.4), (1.0, 0.4), (0.1, 1.5), (-3, 0.4)]:
        with pytest.raises(ConfigError, match="rows of a silo must"):
            Sizes(*bad)


def test_too_few_rows_name_the_silo_and_what_was_asked():
    with pytest.raises(DataError, match=r"silo 's0' has 20 rows, too few for train=0.01, .* train 0, vali 8, test 12"):
        split(table(), 0, Sizes(0.01, 0.4))
    with pytest.raises(DataError, match=r"silo 's0' has 20 rows, too few .* take 40 rows before anything else"):
        split(table(), 0, Sizes(40, 40 / 99))


def test_pooled_rows_are_those_of_all_silos_and_the_target_judges():
    made = table()
    sizes = Sizes(0.3, 0.3)  # of different lengths
    many = split_many(made, [0, 1], sizes)
    both = pool_training_rows(many, 2)
    for seed in (0, 1):
        one = pool_training_rows(split(made, seed, sizes), 2)
        assert one.train.n.tolist() == [6 + 10 + 8]
        own = [many.train.x[seed, k, :n] for k, n in enumerate((6, 10, 8))]
        np.testing.assert_array_equal(one.train.x[0], np.concatenate(own))
        for part, alone in zip(both, one, strict=True):
            for a, b in zip(part, alone, strict=True):
                np.testing.assert_array_equal(a[seed], b)
    for name in ("vali", "test"):
        for a, b in zip(getattr(both, name), getattr(many, name), strict=True):
            np.testing.assert_array_equal(a[:, 0], b[:, 2])


def test_parts_of_one_class_are_named():
    made = table((40, 40))
    ill = Silo("ill", made.silos[0].features, np.ones(40, np.int8))
    made = SiloTable("made", (ill, made.silos[1]), made.feature_names, "yes")
    assert [(u.silo, u.part) for u in undefined_auc(split(made, 0, SIZES), made.names)] == [(0, "vali"), (0, "test")]
    found = undefined_auc(split_many(made, range(3), SIZES), made.names)
    assert (
        found[0].text == "Silo ill has validation rows of one class only in 3 of 3 divisions; AUC is undefined there."
    )
    assert training_notes(split(made, 0, SIZES), made.names) == ["Silo ill has training rows of one class only."]
    # One row is one class, and can be trained on.
    assert np.isfinite(split(made, 0, Sizes(1, 0.5)).train.x).all()


def test_silos_by_name_or_number():
    made = table()
    assert [made.index(s) for s in ("s2", "S1", 0, "2")] == [2, 1, 0, 2]
    for bad in ("s3", 3, -1):
        with pytest.raises(UnknownNameError, match="There is no silo named"):
            made.index(bad)
    with pytest.raises(UnknownNameError, match="Did you mean 's2'"):
        made.index("ss2")


def test_inverting_one_silo_changes_its_labels_and_nothing_else():
    made = table()
    poisoned = made.with_inverted_labels("s1")
    assert "s1 were inverted" in poisoned.notes[-1] and not made.notes
    for part, bad in zip(split(made, 0, SIZES), split(poisoned, 0, SIZES), strict=True):
        np.testing.assert_array_equal(part.x, bad.x)
        np.testing.assert_array_equal(part.y[[0, 2]], bad.y[[0, 2]])
        n = part.n[1]
        np.testing.assert_array_equal(part.y[1, :n], 1 - bad.y[1, :n])


def test_tables_that_do_not_fit_are_refused():
    x, y = np.zeros((2, 1), np.float32), np.zeros(2, np.int8)
    for features, labels, message in (
        (x[:1], y, "needs features"),
        (x, y + np.int8(2), "0 or 1, got"),
        (x + np.float32(np.inf), y, "no finite number"),
    ):
        with pytest.raises(DataError, match=message):
            Silo("a", features, labels)
    with pytest.raises(DataError, match="two silos"):
        SiloTable("t", (Silo("a", x, y), Silo("a", x, y)), ("x",), "yes")
    with pytest.raises(DataError, match="has 1 columns, but there are 2 names"):
        SiloTable("t", (Silo("a", x, y),), ("x", "z"), "yes")
    with pytest.raises(DataError, match="no silo"):
        SiloTable("t", (Silo("a", x, y),), ("x",), "yes").without("a")
