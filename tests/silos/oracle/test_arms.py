"""Arms against enumeration, and clusters of updates against SciPy."""

import numpy as np
import pytest
from scipy.cluster import hierarchy

from fedrank.core.errors import ConfigError
from fedrank.silos.bandits import rules


def of(table, target):
    return rules.members_of(table, target, table.shape[1] + 1)


def sets(members):
    return [frozenset(np.flatnonzero(row).tolist()) for row in np.asarray(members)]


def test_pairs_are_the_target_with_each_other_silo():
    for target in range(4):
        wanted = [{target, other} for other in range(4) if other != target]
        assert sets(of(rules.pair_table(4, alone=False), target)) == wanted
        assert sets(of(rules.pair_table(4), target)) == [{target}, *wanted]


def test_combinations_are_all_sets_with_the_target_in_binary_order():
    for target, silos in [(0, 2), (1, 4), (4, 5)]:
        others = [silo for silo in range(silos) if silo != target]
        wanted = []
        for number in range(2 ** len(others)):
            wanted.append({target} | {silo for i, silo in enumerate(others) if number & 2**i})
        assert sets(of(rules.combination_table(silos), target)) == wanted
        assert wanted[0] == {target} and wanted[-1] == set(range(silos))


@pytest.mark.parametrize("table", [rules.pair_table, rules.combination_table])
def test_members_of_a_table_are_its_sets_with_the_target(table):
    for target in range(5):
        np.testing.assert_array_equal(of(table(5), target), np.insert(table(5), target, True, axis=1))


def test_the_thesis_writes_an_arm_as_digits():
    assert rules.code(np.array([False, True, True, False])) == "0110"
    assert [rules.code(row) for row in of(rules.pair_table(4, alone=False), 1)] == ["1100", "0110", "0101"]


def test_an_arm_is_named_after_its_silos():
    names = ["Cleveland", "Hungarian", "Switzerland"]
    assert rules.name([True, True, False], names) == "Cleveland + Hungarian"
    assert rules.name([True, True, False], names, target=1) == "Hungarian + Cleveland"
    assert rules.name([False, True, False], names, target=1) == "Hungarian"


def by_scipy(updates, target, clusters):
    others = np.delete(np.arange(len(updates)), target)
    tree = hierarchy.linkage(updates[others].astype(float), method="average", metric="cosine")
    labels = hierarchy.fcluster(tree, clusters, criterion="maxclust")
    return {frozenset({target, *others[labels == label].tolist()}) for label in np.unique(labels)}


@pytest.mark.parametrize("silos, clusters, targets", [(7, 3, range(7)), (100, 6, (0, 13, 99))])
def test_clusters_are_those_of_scipy(silos, clusters, targets):
    random = np.random.default_rng(silos)
    for target in targets:
        updates = random.normal(size=(silos, 12)).astype(np.float32)
        found = np.asarray(rules.cluster_arms(updates, target, clusters))
        assert sets(found)[0] == {target}
        assert set(sets(found)[1:]) == by_scipy(updates, target, clusters)
        firsts = [min(members - {target}) for members in sets(found)[1:]]
        assert firsts == sorted(firsts)


def test_clusters_find_groups_among_a_hundred_silos():
    """Six groups of silos, each around a direction of its own; lengths of updates do not matter."""
    random = np.random.default_rng(3)
    group = random.integers(0, 6, 100)
    updates = np.eye(6, 12)[group] + 0.05 * random.normal(size=(100, 12))
    updates = (updates * random.uniform(0.1, 10, (100, 1))).astype(np.float32)
    for target in (0, 57):
        found = sets(rules.cluster_arms(updates, target, 6))
        assert set(found[1:]) == {frozenset({target, *np.flatnonzero(group == g).tolist()}) for g in range(6)}


def test_one_cluster_is_everyone_and_as_many_as_others_are_pairs():
    updates = np.random.default_rng(4).normal(size=(7, 12)).astype(np.float32)
    assert sets(rules.cluster_arms(updates, 1, 1)) == [{1}, set(range(7))]
    np.testing.assert_array_equal(rules.cluster_arms(updates, 1, 6), of(rules.pair_table(7), 1))


def test_an_update_of_zero_is_orthogonal_to_all():
    updates = np.zeros((7, 12), np.float32)
    updates[:, :2] = [[1, 0], [5, 0.1], [0, 0], [-1, 0.05], [-1, 0], [2, 0], [-3, 0.1]]
    assert sets(rules.cluster_arms(updates, 1, 3))[1:] == [{0, 1, 5}, {1, 2}, {1, 3, 4, 6}]


def test_impossible_arms_are_refused():
    with pytest.raises(ConfigError, match=r"2.12 arms, too many.*Use pairs, or clusters"):
        rules.combination_table(13)
