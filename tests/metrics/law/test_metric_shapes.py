"""Metrics refuse arrays of a wrong shape or dtype before they compute anything."""

import numpy as np
import pytest
from jaxtyping import TypeCheckError

from fedrank.metrics.offline import OFFLINE, err
from fedrank.metrics.online import OnlineMetric, max_rr

SCORES, LABELS, WHERE = np.zeros((2, 4)), np.ones((2, 4), np.int32), np.ones((2, 4), bool)
LISTS = {entry.name: entry.obj for entry in OFFLINE if entry.obj is not err}


def test_one_value_comes_for_each_list():
    for name in LISTS:
        assert LISTS[name](SCORES, LABELS, WHERE).shape == (2,)


def test_a_wrong_shape_is_refused():
    for wrong in ["labels", "where", "dtype of where"]:
        for name in LISTS:
            labels = LABELS[:, :3] if wrong == "labels" else LABELS
            where = {"where": WHERE[0], "dtype of where": LABELS}.get(wrong, WHERE)
            with pytest.raises(TypeCheckError):
                LISTS[name](SCORES, labels, where)


def test_scores_are_real_numbers_and_labels_whole_ones():
    for name in LISTS:
        with pytest.raises(TypeCheckError):
            LISTS[name](LABELS, LABELS, WHERE)
        with pytest.raises(TypeCheckError):
            LISTS[name](SCORES, SCORES, WHERE)


def test_an_online_metric_has_one_number_a_click_pattern():
    metric = max_rr(2)
    with pytest.raises(TypeCheckError):
        OnlineMetric("MaxRR", 2, metric.numerators, metric.scale, np.zeros((2, 2), np.int32))
    with pytest.raises(TypeCheckError):
        OnlineMetric("MaxRR", 2, metric.numerators, metric.scale, np.zeros(4, np.float32))
