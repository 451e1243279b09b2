"""What devices, hubs, nodes and platforms are given and give refuses arrays of a wrong shape or dtype."""

import numpy as np
import pytest
from jaxtyping import TypeCheckError

from fedrank.deploy.device.trial import Ranking, Round, perturb, rank_documents
from fedrank.deploy.hub.audit import Replayed, write_model
from fedrank.deploy.platforms.client import Visited
from fedrank.deploy.terms import Terms
from fedrank.ranking.on_device import Request, portable_scores
from fedrank_flower.messages import Answer, Question
from fedrank_flower.rounds import Holders
from fedrank_zoo.fleet.device import Person

TERMS = Terms(hub="0" * 32, n_features=3)
WEIGHTS, FEATURES = np.zeros(3, np.float32), np.zeros((2, 3), np.float32)
SILOS = np.array([0, 2])
WHOM, QUESTION = np.array([True, False]), Question(0, 0, b"")


def words(shape):
    return np.zeros(shape, np.uint32)


def round_of() -> Round:
    return Round(TERMS, Request(np.uint32(0), WEIGHTS), None, False)


WRONG = {
    "scores are of a matrix of features": lambda: portable_scores(WEIGHTS, FEATURES[0], 0),
    "features are in single precision": lambda: rank_documents(TERMS, WEIGHTS, FEATURES.astype(np.float64)),
    "weights are a vector": lambda: rank_documents(TERMS, WEIGHTS[None], FEATURES),
    "a perturbation is as long as the weights": lambda: perturb(TERMS, WEIGHTS, WEIGHTS[:2], 0),
    "a list is of numbers of documents": lambda: Ranking(WEIGHTS),
    "a device shows documents of one query": lambda: round_of().show(FEATURES[None], False, words, 0.0),
    "labels of the documents that are shown": lambda: Person.clicks(None, np.zeros((1, 2), np.int32)),
    "a question is to some or all parties": lambda: QUESTION.to(SILOS),
    "an answer says for each party whether it was heard": lambda: Answer.of(0, WHOM[None], b""),
    "parties of a node are numbers": lambda: Holders().introduce(1, WHOM),
    "a replayed model is a vector": lambda: Replayed(1, 1, 0, FEATURES, 0, 0, None),
    "a model's file holds a vector": lambda: write_model("nowhere", FEATURES, "nowhere.json"),
    "one engagement a platform": lambda: Visited(0, 0, [[0], [1]], FEATURES, False),
}


def test_a_wrong_shape_or_type_is_refused():
    for what in WRONG:
        with pytest.raises(TypeCheckError):
            WRONG[what]()


def test_right_shapes_are_taken():
    assert (
        rank_documents(TERMS, WEIGHTS, FEATURES).tolist() == round_of().show(FEATURES, False, words, 0.0).order.tolist()
    )
    assert QUESTION.to(WHOM).whom(2).tolist() == Question(0, 0, b"", b"\1").whom(2).tolist() == [True, False]
    assert Answer.of(0, WHOM, b"").numbers(2).tolist() == [0] and Holders().introduce(1, SILOS)
