"""Two tables that differ in one record give messages of one shape, whatever the record and whatever the rules say."""

import dataclasses

import numpy as np
import pytest

from fedrank.privacy.audit import audit_mechanism
from fedrank.silos.studies.codebook import MODELS, Rules
from fedrank.silos.studies.messages import Answer, Reply
from fedrank_zoo import study_neighbours
from fedrank_zoo.study_neighbours import (
    NO_RULES,
    QUESTIONS,
    Neighbours,
    compare_neighbours,
    message_shape,
    study_messages,
)


@pytest.mark.parametrize("rules", [Rules(), NO_RULES])
def test_messages_have_one_shape(rules):
    found = compare_neighbours(rules)
    assert found.questions == 15 and {one.model for one in QUESTIONS} == set(MODELS) and found.tables == 22
    assert set(found.shapes) == {found.shapes[0]}
    if rules == NO_RULES:
        assert found.answers == found.replies and found.differences == 0
    else:  # five rows of the rarer sex are one record away from a small cell
        assert 0 < found.answers < found.replies and 0 < found.differences < found.tables * found.replies


def test_a_shape_has_lengths_and_keys_and_no_digits():
    def answer(numbers, **more):
        return Answer("a", "0", 1, "0", {"q": Reply(np.array(numbers), 10, 0, **more)})

    same = message_shape(answer([1.0, 2.0]))
    assert message_shape(answer([np.nan, 1e-9], refused="a rule")) == same
    assert message_shape(answer([1.0])) != same
    assert message_shape(answer(np.array([1, 2], np.uint32))) != same


def test_the_audit_finds_one_table_of_another_shape(monkeypatch):
    found = Neighbours(1, ("one",) * 25, (("",),) * 25)
    for last, broken in (("one", False), ("other", True)):
        made = dataclasses.replace(found, shapes=(*found.shapes[:-1], last))
        monkeypatch.setattr(study_neighbours, "compare_neighbours", lambda made=made: made)
        assert audit_mechanism(study_messages()).broken == broken
