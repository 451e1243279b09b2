"""Flower where silos have texts: a simulator's setup and rows, each question answered once, nothing shown unasked."""

import dataclasses
import json
import math
import re

import jax
import numpy as np
import pytest
from flower_nodes import Heard, Nodes
from text_folders import DOCUMENTS, ROUNDS, SILOS, experiment_of, node, silo, table, write_folders

from fedrank.core.errors import ConfigError, DataError, RunError, SecureSumError
from fedrank.core.ledger import Ledger
from fedrank.core.privacy_report import PrivacyReport, Unit
from fedrank.engine.simulator import Simulator, run_keys, run_setup
from fedrank.texts.deployment import agree_terms, cuts_words, rows_after_setup
from fedrank.texts.silo_sketch.setup.exchange_sketches import rows_of_party
from fedrank.texts.silo_sketch.state import SketchRows
from fedrank_flower import settings as flat
from fedrank_flower.answers import SHOWN, answer_for
from fedrank_flower.kept_answers import FileStore, Remembered, setups_shown
from fedrank_flower.messages import Question
from fedrank_flower.rounds import SetupRounds
from fedrank_flower.server_app import serve

HELLO = Question(0, 0, b"", setup=True)


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    return write_folders(tmp_path_factory.mktemp("texts"))


def everybody(values, folders, folder, **told):
    """Numbers in the network say nothing about silos."""
    return {90 - 7 * i: silo(values, i, home, folder, **told) for i, home in enumerate(folders)}


def remembered(folder, number):
    (path,) = (folder / f"node{number}").glob("setup-*.npz")
    return Remembered.unpack(path.read_bytes())


def names_of(values):
    """Names of the exchanges of a run's setup, in the order in which they take place."""
    return [exchange.name for exchange in agree_terms(flat.read_run(values)[0]).setup.exchanges]


def gone_from(values, nodes, name):
    """The last silo stops answering with an exchange of that name."""
    last = 90 - 7 * (SILOS - 1)
    step, answers = names_of(values).index(name), nodes[last]
    return {**nodes, last: lambda q: [None] if q.request and q.exchange >= step else answers(q)}


def rows_in(own):
    return {name.removeprefix("rows."): array for name, array in own.items() if name.startswith("rows.")}


def over_nodes(values, nodes):
    """The server's state after the setup, the log, the network and the tallies."""
    config, told = flat.read_run(values)
    network, log = Nodes(nodes), Heard()
    state, tallies = SetupRounds(agree_terms(config).setup, SILOS, network, told, log).run_once()
    return state, log, network, tallies


def simulated(values, folders, absent=()):
    """The same in a simulator: the server's state, each silo's rows and what crossed."""
    experiment = experiment_of(values, folders)
    rng = np.random.default_rng([experiment.config.seed, 0x5E7C])
    parties = experiment.setup.parties(list(experiment.texts[0]))
    state, parties, ledger = run_setup(experiment.setup, parties, rng, absent=absent)
    return state, [rows_of_party(party) for party in parties], ledger


def alike(got, expected):
    assert got.keys() == expected.keys() and got["cross_where"].any()
    for name, array in expected.items():
        np.testing.assert_allclose(got[name], array, rtol=1e-5, atol=1e-5, err_msg=name)


#: Where answers get lost once, and where the last silo goes away for good.
LOST, GONE = ("keys", "sum-shares", "publish"), "sum-vectors"


class Opened:
    """One setup of which some answers were lost on their way, once each, and which one silo leaves halfway."""

    def __init__(self, folders, folder):
        self.folder, self.values = folder, table(folder, min_available_nodes=SILOS - 1, round_attempts=2)
        self.questions, self.said = {}, {}
        names = names_of(self.values)

        def losing(number, honest):
            def behaviour(question):
                (record,) = honest(question)
                if question.request:
                    key = number, names[question.exchange]
                    self.questions[key] = question
                    self.said.setdefault(key, []).append(record)
                    if key[1] in LOST and len(self.said[key]) == 1:
                        return [None]
                return [record]

            return behaviour

        nodes = everybody(self.values, folders, folder)
        nodes = {node: losing(number, honest) for number, (node, honest) in enumerate(nodes.items())}
        nodes = gone_from(self.values, nodes, GONE)
        self.state, self.log, self.network, self.tallies = over_nodes(self.values, nodes)


@pytest.fixture(scope="module")
def shared(folders, tmp_path_factory):
    return Opened(folders, tmp_path_factory.mktemp("setup"))


def test_a_setup_over_nodes_comes_to_a_simulators_statistics_and_rows(shared, folders):
    """Answers are lost, and a silo leaves with its masks in the sum."""
    expected, rows, ledger = simulated(shared.values, folders, absent=[(GONE, SILOS - 1)])
    np.testing.assert_array_equal(shared.state.totals, expected.totals)
    assert shared.state.totals[-1] == (SILOS - 1) * DOCUMENTS, "the masks came off"
    for number in range(SILOS - 1):
        own = remembered(shared.folder, number).own
        alike(rows_in(own), rows[number])
        assert not {"secret", "sum"} & set(own), "keys are gone when they have done their work"
    heard: dict[str, int] = {}
    for _, name, count in shared.log.replies:
        heard[name] = heard.get(name, 0) + count
    assert heard == {e.exchange: e.messages for e in ledger if e.sender == "parties"}
    asked = [count for _, name, count in shared.log.requests if name == "publish"]
    assert asked == [SILOS, SILOS], "nobody was heard, so everybody was asked again"
    again = [answers for answers in shared.said.values() if len(answers) > 1]
    assert len(again) >= 3 * (SILOS - 1) and all(one == answers[0] for answers in again for one in answers)


def test_what_a_message_is_too_large_for_says_what_fits(tmp_path):
    config, _ = flat.read_run(table(tmp_path, texts_documents=20_000, sketch_w=4096))
    with pytest.raises(ConfigError, match="documents a silo fit") as refused:
        agree_terms(config)
    fitting, cells = (int(found.replace(",", "")) for found in re.search(
        r"([\d,]+) documents a silo fit .* with sketch-w = ([\d,]+)", str(refused.value)).groups())  # fmt: skip
    texts, method = config.texts, config.method
    for documents, w in ((fitting, 4096), (20_000, cells)):
        wider = dataclasses.replace(method, sketch=dataclasses.replace(method.sketch, w=w))
        changed = dataclasses.replace(config, texts=dataclasses.replace(texts, documents=documents), method=wider)
        assert agree_terms(changed).n_parties == SILOS
    with pytest.raises(ConfigError, match="fit"):
        agree_terms(dataclasses.replace(config, texts=dataclasses.replace(texts, documents=fitting * 102 // 100)))


@pytest.mark.slow
def test_a_silos_rows_alone_are_its_part_of_everybodys(folders, tmp_path):
    values = table(tmp_path)
    over_nodes(values, everybody(values, folders, tmp_path))
    whole = experiment_of(values, folders).setup_results().arrays.rows
    for number in range(SILOS):
        mine = rows_after_setup(
            Remembered.unpack(FileStore(next((tmp_path / f"node{number}").glob("setup-*.npz"))).read()).own
        )
        for name in SketchRows._fields:
            one, other = getattr(mine, name)[0, 0, 0], np.asarray(getattr(whole, name))[0, 0, number]
            assert one.dtype == other.dtype, name
            np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5, err_msg=name)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["sum-shares", "sum-unmasking", "publish", "receive"])
def test_a_silo_that_is_gone_between_two_steps_is_left_out_as_in_a_simulator(name, folders, tmp_path):
    values = table(tmp_path, min_available_nodes=SILOS - 1)
    expected, rows, _ = simulated(values, folders, absent=[(name, SILOS - 1)])
    state, *_ = over_nodes(values, gone_from(values, everybody(values, folders, tmp_path), name))
    np.testing.assert_array_equal(state.totals, expected.totals)
    for number in range(SILOS - 1):
        own = remembered(tmp_path, number).own
        alike(rows_in(own), rows[number])


@pytest.mark.slow
def test_too_few_silos_end_the_setup_with_one_sentence(folders, tmp_path):
    values = table(tmp_path, round_attempts=2)
    with pytest.raises(RunError, match=r"3 of 4 silos answered 'sum-vectors', 4 are needed .* 2 times in a row"):
        over_nodes(values, gone_from(values, everybody(values, folders, tmp_path), "sum-vectors"))
    values = table(tmp_path, min_available_nodes=2)
    with pytest.raises(SecureSumError, match="3 of 4 silos are there; a sum needs all of them"):
        over_nodes(values, gone_from(values, everybody(values, folders, tmp_path / "b"), "keys"))
    two = gone_from(values, everybody(values, folders, tmp_path / "c"), "sum-vectors")
    step, honest = names_of(values).index("sum-vectors"), two[90]
    two[90] = lambda q: [None] if q.request and q.exchange >= step else honest(q)
    with pytest.raises(SecureSumError, match="2 parties sent a vector, 3 are needed"):
        over_nodes(values, two)


def test_a_silo_that_cuts_words_in_another_way_takes_no_part(folders, tmp_path, monkeypatch):
    config, _ = flat.read_run(table(tmp_path))
    hashes = {cuts_words(flat.read_run(table(tmp_path, texts_stem=stem))[0]) for stem in (True, False)}
    assert len(hashes) == 2 and cuts_words(config) in hashes
    nodes = everybody(table(tmp_path), folders, tmp_path)
    honest = nodes[90]

    def other(question):
        (record,) = honest(question)
        return [record if question.request else {**record, "replies": b"other"}]

    with pytest.raises(RunError, match=r"3 of 4 silos said that they take part.*Nothing crossed"):
        over_nodes(table(tmp_path), {**nodes, 90: other})


def test_a_server_that_unmasks_twice_gets_nothing(shared, folders):
    """For other survivors the shares would show a single silo's vector."""
    config, _ = flat.read_run(shared.values)
    step = names_of(shared.values).index("sum-unmasking")
    exchange = agree_terms(config).setup.exchanges[step]
    question = shared.questions[0, "sum-unmasking"]
    request = exchange.request.decode(question.request)
    fewer = dataclasses.replace(request, survived=np.array([1, 0, 0], np.uint8))
    changed = dataclasses.replace(question, request=exchange.request.encode(fewer))
    with pytest.raises(RunError, match="asked 'sum-unmasking' a second time with another question"):
        answer_for(config, node(0, folders[0], shared.folder), changed)


@pytest.mark.slow
def test_a_second_setup_is_refused_by_silos_with_texts_of_their_own(folders, tmp_path):
    values = table(tmp_path, round_attempts=1)
    over_nodes(values, everybody(values, folders, tmp_path, chance="os"))
    with pytest.raises(RunError, match="in 1 setup"):
        over_nodes(values, everybody(values, folders, tmp_path, chance="os"))
    over_nodes(values, everybody(values, folders, tmp_path, chance="os", most_setups=2))
    assert setups_shown(FileStore(tmp_path / "node0" / SHOWN)) == 2
    with pytest.raises(RunError, match="in 2 setup"):  # another seed is another run
        other = {**values, "seed": 1}
        over_nodes(other, everybody(other, folders, tmp_path, chance="os", most_setups=2))


def refusals():
    """Settings of the run, settings of the node, and what is said."""
    endless = {"most_sketch_epsilon": math.inf}
    return [
        ({"sketch_mode": "plain"}, endless, ""),
        ({}, {"most_epsilon": 5.0}, "nothing bounds the ε of a round; most-epsilon = 5 cannot be kept"),
        ({}, {"most_sketch_epsilon": 0.19}, r"ε = 0\.2 .* this node agrees to 0\.19"),
        ({"sketch_mode": "plain"}, {}, "takes part only with most-sketch-epsilon = inf"),
        ({}, {"state_dir": ""}, "needs state-dir"),
        ({"texts_silos": 5}, {}, "the run has 5 silos"),
        ({"texts_grades": 0, "texts_documents": 0}, {}, "agree on texts-documents and texts-grades beforehand"),
        ({"data": "/etc"}, {}, "a run does not say which files a node reads"),
        ({"data": "generated"}, {}, "no place for this node's own texts"),
        ({}, {"data": ""}, "this node has no texts"),
        ({"texts_cut": "topic"}, {}, "here each silo has its own"),
        ({"texts_grades": 2}, {}, "a document has grade 2; agreed were 2 grades"),
        ({"texts_documents": 3}, {}, "has 6 documents, agreed were at most 3"),
        ({"texts_documents": 10**7, "sketch_w": 400}, {}, "GiB that a message may have"),
        ({}, {"gateway": "http://h", "gateway_token": "t"}, "Leave gateway out"),
    ]


@pytest.mark.parametrize(("run", "told", "said"), refusals())
def test_what_does_not_fit_or_protect_is_told_before_anything_crosses(run, told, said, folders, tmp_path):
    config, _ = flat.read_run(table(tmp_path, **run))
    mine = node(1, folders[1], tmp_path, **told)
    if not said:
        assert answer_for(config, mine, HELLO).numbers(SILOS).tolist() == [1]
        return
    with pytest.raises((ConfigError, DataError), match=said):
        answer_for(config, mine, HELLO)


@pytest.mark.slow
def test_a_server_that_is_stopped_after_the_setup_goes_on_without_another(folders, tmp_path):
    values, asked = table(tmp_path, round_attempts=1), []
    nodes = everybody(values, folders, tmp_path, chance="os")

    def until(ends, honest):
        return lambda q: asked.append(q) or (honest(q) if not ends(q) else [None])

    with pytest.raises(RunError, match=r"round 0: fewer than 4 nodes were heard"):
        serve(values, Nodes({n: until(lambda q: not q.setup, h) for n, h in nodes.items()}))
    assert sum(q.setup for q in asked) > SILOS
    asked.clear()
    with pytest.raises(RunError, match="round 0"):
        serve(values, Nodes({n: until(lambda q: True, h) for n, h in nodes.items()}))
    assert asked and not any(q.setup for q in asked)
    kept = tmp_path / "kept"
    (row,) = (json.loads(line) for line in (kept / "metrics.jsonl").read_text().splitlines())
    assert [(one["exchange"], one["parties"]) for one in row["setup"]][-2:] == [("receive", 4), ("scale", 4)]
    promise = PrivacyReport.from_json(json.loads((kept / "privacy.json").read_text()))
    assert promise.epsilon(Unit.OCCURRENCE) == 0.2 and promise.epsilon_round == math.inf
    assert {"Published", "Change"} <= set(json.loads((kept / "messages.json").read_text()))
    assert json.loads((kept / "model.json").read_text())["n_features"] == 16
    config, _ = flat.read_run(values)
    with pytest.raises(RunError, match="no rows to train on"):
        answer_for(config, node(0, folders[0], tmp_path / "elsewhere"), Question(0, 0, b"?"))


@pytest.mark.slow
@pytest.mark.parametrize("settings", [{}, {"training_serial": True}])
def test_silos_with_their_own_folders_learn_what_a_simulator_learns(settings, folders, tmp_path, caplog):
    values = table(tmp_path, **settings)
    nodes = everybody(values, folders, tmp_path)
    serve({**values, "num-server-rounds": 1}, Nodes(nodes))
    with caplog.at_level("INFO", "fedrank.flower"):
        state = serve(values, Nodes(nodes))  # goes on
    experiment, keys = experiment_of(values, folders), run_keys([0])
    seen = experiment.setup_results()
    parties, simulator = experiment.protocol.parties(seen.arrays.rows), Simulator(experiment.protocol)
    states, own = simulator.start(keys, parties, per_run=True)
    first = np.asarray(states.weights)[0]
    states, own, _ = simulator.advance(keys, states, parties.shared, own, 0, ROUNDS)
    np.testing.assert_allclose(state.weights, np.asarray(states.weights)[0], rtol=1e-5, atol=1e-6)
    assert np.abs(np.asarray(states.weights)[0] - first).max() > 0.01, "something was learnt"
    ledger = Ledger.read(tmp_path / "kept" / "ledger.jsonl")
    expected = {(e.exchange, e.sender): e.messages for e in seen.ledger}
    got = {(e.exchange, e.sender): e.messages for e in ledger if (e.exchange, e.sender) in expected}
    assert got == expected
    steps = [e.messages for e in ledger if e.exchange == "step" and e.sender == "parties"]
    assert steps == [1 if "training_serial" in settings else SILOS] * ROUNDS
    gates = [record.getMessage() for record in caplog.records if "do no harm" in record.getMessage()]
    assert len(gates) == (1 if "training_serial" in settings else SILOS)
    kept = jax.tree.leaves(own.local)[0]
    assert np.asarray(kept).shape[1] == SILOS
