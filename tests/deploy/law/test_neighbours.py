"""What leaves a party with an ε has one shape for data that differ in one unit, however extreme: length, who is heard.

Silos' tables are in ``tests/silos/law/test_neighbours.py``, their nodes in ``test_flower_kept_answers.py``.
"""

import dataclasses
import json

import jax
import numpy as np
import pytest
from flower_nodes import table
from text_folders import experiment_of, write_folders
from text_folders import table as text_table

from fedrank.engine.deployment import NodeSettings
from fedrank.engine.simulator import run_setup
from fedrank_flower import settings as flat
from fedrank_flower.answers import answer_for, node_of
from fedrank_flower.messages import Question

FEATURES = 4


def letor(path, labels, sizes=(6, 6, 6), scale=1.0):
    """Queries of a device whose documents have these labels."""
    rng = np.random.default_rng(0)
    lines = []
    for query, size in enumerate(sizes):
        for document in range(size):
            x = " ".join(f"{k + 1}:{scale * value:.4f}" for k, value in enumerate(rng.random(FEATURES)))
            lines.append(f"{labels(query, document)} qid:{query + 1} {x}")
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture(scope="module")
def devices(tmp_path_factory):
    """Own data of a device: an ordinary one, and others in its place."""
    folder = tmp_path_factory.mktemp("devices")
    return [
        letor(folder / "some.txt", lambda query, document: (query + document) % 3),
        letor(folder / "none.txt", lambda query, document: 0),  # nothing to click on
        letor(folder / "all.txt", lambda query, document: 2),  # clicks everywhere
        letor(folder / "one.txt", lambda query, document: 1, sizes=(1,)),  # one document: no order
        letor(folder / "flat.txt", lambda query, document: query, scale=0.0),  # documents that are alike
    ]


@pytest.mark.minutes
@pytest.mark.parametrize(
    "settings",
    [
        {"privacy_p": 0.9},
        {"privacy_mechanism": "laplace", "privacy_epsilon_interaction": 1.0},
        {"privacy_mechanism": "gaussian", "privacy_epsilon_interaction": 1.0},
        {"privacy_epsilon_user": 8.0},
    ],
    ids=["randomised-response", "laplace", "gaussian", "piecewise"],
)
def test_a_devices_message_has_one_shape(devices, tmp_path, settings):
    values = table(tmp_path, n_features=FEATURES, clients=4, clicks="perfect", **settings)
    config, _ = flat.read_run(values)
    shapes = set()
    for path in devices:
        told = NodeSettings(0, 4, data=str(path), chance="seed", state_dir=str(tmp_path / path.stem), most_epsilon=1e9,
                            most_run_epsilon=1e9)  # fmt: skip
        exchange = (protocol := node_of(config, told).protocol).exchanges[0]
        request = exchange.request.encode(exchange.ask(protocol.init(jax.random.key(0))))
        answer = answer_for(config, told, Question(0, 0, request))
        shapes.add((answer.first, answer.heard, len(answer.replies)))
    assert len(shapes) == 1


def test_the_messages_of_a_secure_sum_have_sizes_that_no_data_sets(devices, tmp_path):
    """Those of FPDGD with shares of noise, which the Flower adapter does not carry."""
    config, _ = flat.read_run(table(tmp_path, protocol="foltr-pdgd", privacy_epsilon=4.0, clients=4))
    sizes = set()
    for path in devices:
        protocol = flat.task_of(config).build(dataclasses.replace(config, data=str(path))).protocol
        sizes.add(tuple(sorted(protocol.sizes.items())))
    assert len(sizes) == 1


#: What stands in the place of one word of a document: a word that no other has, one that is no term, none, a long one.
WORDS = ("zymurgy", "the", "", "x" * 300, "drag drag drag")


@pytest.mark.minutes
@pytest.mark.parametrize("mode", [{}, {"sketch_noise": "gaussian"}, {"sketch_kind": "count-min"}], ids=str)
def test_what_a_silo_with_texts_shows_has_one_shape(tmp_path, mode):
    """Of all messages of the setup, sketches and statistics among them; one word of one document is another."""
    sent = []
    for number, word in enumerate((None, *WORDS)):
        home = tmp_path / str(number)
        home.mkdir()
        folders = write_folders(home)
        if word is not None:
            path = folders[0] / "documents.jsonl"
            first, *rest = path.read_text().splitlines()
            document = json.loads(first)
            document["text"] = " ".join([word, *document["text"].split()[1:]])
            path.write_text("\n".join([json.dumps(document), *rest]) + "\n")
        experiment = experiment_of(text_table(home, sketch_epsilon=8.0, **mode), folders)
        parties = experiment.setup.parties(list(experiment.texts[0]))
        *_, ledger = run_setup(experiment.setup, parties, np.random.default_rng(0))
        sent.append([(one.exchange, one.sender, one.message, one.messages, one.bytes_each) for one in ledger])
    assert all(one == sent[0] for one in sent[1:])
