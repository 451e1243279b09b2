"""The Flower adapter, driven in one process: what a simulator learns is learnt over nodes, whatever nodes do wrong."""

import json
import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flower_nodes import CLIENTS, Count, Counting, Nodes, Number, close, everybody, honest, server_of, simulated, table
from hypothesis import given
from hypothesis import strategies as st
from short_settings import run_of

from fedrank.core.errors import ConfigError, RunError, UnknownNameError, WireError
from fedrank.core.ledger import Ledger
from fedrank.core.messages import Layout
from fedrank.core.protocol import Party
from fedrank.data import load
from fedrank.engine.deployment import Block, NodeSettings, block
from fedrank.engine.simulator import Simulator, run_keys
from fedrank.ranking.mechanisms.weights import WeightsReply
from fedrank_flower import settings as flat
from fedrank_flower.answers import FolderMemory, answer_for, answer_of, node_of, pack
from fedrank_flower.client_app import ContextMemory, answer_message
from fedrank_flower.messages import Answer, Question
from fedrank_flower.rounds import Log, Rounds
from fedrank_flower.server_app import FlowerNetwork, serve

NEEDS_FLOWER = "needs flwr: pip install -e ./flower"


@pytest.mark.parametrize("protocol", ["foltr-es", "foltr-pdgd"])
@pytest.mark.parametrize("partitions", [1, 3])
def test_nodes_give_the_draws_and_the_model_of_a_simulator(protocol, partitions, tmp_path):
    values = table(tmp_path, protocol=protocol, min_available_nodes=partitions)
    network = Nodes(everybody(values, partitions))
    state = serve(values, network)
    weights, replies = simulated(values)
    close(state, weights)
    layout = server_of(values, 46).protocol.exchanges[0].reply
    for number in range(3):
        sent = network.records[number * partitions : (number + 1) * partitions]
        bytes_of_round = b"".join(record["replies"] for record in sorted(sent, key=lambda record: record["first"]))
        decoded = layout.decode_all(bytes_of_round)
        for field in layout.fields:
            got, expected = getattr(decoded, field.name), getattr(replies, field.name)[number]
            np.testing.assert_allclose(got, expected, rtol=1e-5 if field.dtype == "f4" else 0)


def test_chunks_and_settings_of_devices_change_nothing(tmp_path):
    values = table(tmp_path, compute_chunk=2, devices_users="perfect,informational", devices_amounts="skewed")
    close(serve(values, Nodes(everybody(values, 2))), simulated(values)[0])


def damaged(change):
    """A node that answers honestly but for a change of the record."""

    def behaviour(values, partition, partitions):
        node = honest(values, partition, partitions)
        return lambda question: [change(record) for record in node(question)]

    return behaviour


def forged(record):
    """The largest sum of MaxRR with B = 4 is far below 65,535."""
    return {**record, "replies": record["replies"][:-2] + b"\xff\xff"}


WRONG = {
    "failed": (lambda *_: lambda question: [None], "failed"),
    "silent": (lambda *_: lambda question: [], "late"),
    "no record": (damaged(lambda record: {}), "malformed"),
    "another record": (damaged(lambda record: {"weights": b""}), "malformed"),
    "text": (damaged(lambda record: {**record, "replies": "x" * len(record["replies"])}), "malformed"),
    "a byte short": (damaged(lambda record: {**record, "replies": record["replies"][:-1]}), "malformed"),
    "another kind": (damaged(lambda record: {**record, "replies": b"\x21" + record["replies"][1:]}), "malformed"),
    "a sum that nobody can have": (damaged(forged), "malformed"),
    "parties of nobody": (damaged(lambda record: {**record, "first": CLIENTS - 1}), "malformed"),
    "a party below 0": (damaged(lambda record: {**record, "first": -1}), "malformed"),
    "a number that is true": (damaged(lambda record: {**record, "first": True}), "malformed"),
    "nobody": (damaged(lambda record: {**record, "heard": b"\0", "replies": b""}), "malformed"),
    "a long list": (damaged(lambda record: {**record, "heard": record["heard"] + bytes(10**6)}), "malformed"),
    "another node's parties": (damaged(lambda record: {**record, "first": 0}), "duplicate"),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_node_that_does_wrong_costs_its_own_parties_only(what, tmp_path, caplog):
    caplog.set_level("INFO", "fedrank.flower")
    values = table(tmp_path, num_server_rounds=2)
    behaviour, counted = WRONG[what]
    nodes = {**everybody(values, 3), 12: behaviour(values, 2, 3)}
    state = serve(values, Nodes(nodes))
    mine = set(block(CLIENTS, 2, 3))
    close(state, simulated(values, absent=tuple(party in mine for party in range(CLIENTS)))[0])
    rows = [json.loads(line) for line in (tmp_path / "kept" / "metrics.jsonl").read_text().splitlines()]
    tallies = [row["exchanges"][0] for row in rows if "exchanges" in row]
    assert [(t["asked"], t["heard"], t["parties"], t[counted]) for t in tallies] == [(3, 2, CLIENTS - len(mine), 1)] * 2
    said = [record.getMessage() for record in caplog.records if record.getMessage().startswith("round ")]
    named = [line for line in said if re.search(r"\b12\b", line)]  # it is named, in every round
    in_ledger = [json.loads(line)["round"] for line in (tmp_path / "kept" / "ledger.jsonl").read_text().splitlines()]
    numbers = [int(re.match(r"round (\d+)", line)[1]) for line in said]
    assert [re.match(r"round (\d+)", line)[1] for line in named] == ["0", "1"]
    assert set(numbers) == set(in_ledger) == {0, 1}, "rounds are counted alike everywhere"


def test_an_answer_that_comes_twice_counts_once(tmp_path):
    values = table(tmp_path)
    node = honest(values, 1, 2)
    nodes = {**everybody(values, 2), 11: lambda question: node(question) * 2}
    close(serve(values, Nodes(nodes)), simulated(values)[0])


def test_who_comes_first_keeps_its_parties(tmp_path):
    """A newcomer with a lower number claims the parties of a node that has been heard."""
    values = table(tmp_path)
    nodes = everybody(values, 2)
    wrong = {**values, "seed": 1}
    nodes[1] = lambda question: honest(wrong, 0, 2)(question) if question.round else []
    close(serve(values, Nodes(nodes)), simulated(values)[0])


def test_rounds_wait_until_there_are_enough_nodes(tmp_path):
    values = table(tmp_path)
    network = Nodes(everybody(values, 2), there=lambda clock: [10, 11] if clock > 100 else [10])
    close(serve(values, network), simulated(values)[0])
    assert network.clock > 100


def test_too_few_answers_stop_the_run_and_running_again_goes_on(tmp_path):
    values = table(tmp_path, num_server_rounds=4, round_attempts=2, round_timeout=30.0)
    nodes = everybody(values, 2)
    well = nodes[11]
    sick = Nodes({**nodes, 11: lambda question: well(question) if question.round < 2 else []})
    with pytest.raises(RunError, match="round 2: fewer than 2 nodes were heard, 2 times in a row"):
        serve(values, sick)
    assert [question.round for question in sick.questions] == [0, 0, 1, 1, 2, 2, 2, 2]
    assert sick.clock >= 60
    again = Nodes(everybody(values, 2))
    state = serve(values, again)
    assert [question.round for question in again.questions] == [2, 2, 3, 3]
    close(state, simulated(values)[0])
    # What was asked counts, though nothing was learnt from it: 2 rounds, 2 attempts, 2 rounds.
    promise = json.loads((tmp_path / "kept" / "privacy.json").read_text())
    assert promise == server_of(values).protocol.account(6, 1e-6).as_json()


def test_a_run_goes_on_with_the_very_same_numbers(tmp_path):
    whole = serve(table(tmp_path / "a", num_server_rounds=4), Nodes(everybody(table(tmp_path), 2)))
    serve(table(tmp_path / "b", num_server_rounds=2), Nodes(everybody(table(tmp_path), 2)))
    (tmp_path / "b" / "kept" / "state-00000002.npz").write_bytes(b"half a file")  # the round before it is asked again
    with open(tmp_path / "b" / "kept" / "ledger.jsonl", "a") as file:
        file.write('{"round": 2, "exch')
    network = Nodes(everybody(table(tmp_path), 2, first=50))
    parts = serve(table(tmp_path / "b", num_server_rounds=4), network)
    assert sorted({question.round for question in network.questions}) == [1, 2, 3]
    for one, other in zip(jax.tree.leaves(whole), jax.tree.leaves(parts), strict=True):
        np.testing.assert_array_equal(one, other)
    done = Nodes(everybody(table(tmp_path), 2))
    serve(table(tmp_path / "b", num_server_rounds=4), done)
    assert done.questions == []
    assert [entry.round for entry in Ledger.read(tmp_path / "b" / "kept" / "ledger.jsonl")] == [
        *(0, 0, 1, 1),
        *(1, 1, 2, 2, 3, 3),
    ]


def test_a_question_that_a_killed_server_had_asked_counts(tmp_path):
    """The answers may have left their parties."""

    def killed(question):
        raise KeyboardInterrupt

    values = table(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        serve(values, Nodes({10: killed, 11: killed}))
    serve(values, Nodes(everybody(values, 2)))
    assert json.loads((tmp_path / "kept" / "privacy.json").read_text())["details"]["rounds"] == 4


def test_a_folder_of_another_run_is_refused(tmp_path):
    serve(table(tmp_path, num_server_rounds=1), Nodes(everybody(table(tmp_path), 2)))
    with pytest.raises(RunError, match="belongs to other settings"):
        serve(table(tmp_path, sigma=0.02), Nodes(everybody(table(tmp_path), 2)))


@pytest.mark.parametrize("protocol", ["foltr-es", "foltr-pdgd"])
def test_the_ledger_counts_the_bytes_that_crossed(protocol, tmp_path):
    values = table(tmp_path, protocol=protocol)
    network = Nodes(everybody(values, 3))
    serve(values, network)
    ledger = Ledger.read(tmp_path / "kept" / "ledger.jsonl")
    assert ledger.bytes_from("server") == sum(len(question.request) for question in network.questions)
    assert ledger.bytes_from("parties") == sum(len(record["replies"]) for record in network.records)
    assert ledger.bytes_from("parties") == 3 * CLIENTS * {"foltr-es": 9, "foltr-pdgd": 187}[protocol]


def test_chance_of_the_operating_system_is_the_default_and_is_no_seeds(tmp_path, monkeypatch):
    values = table(tmp_path, clients=40)
    config, _ = flat.read_run(values)
    layout = server_of(values).protocol.exchanges[0]
    question = Question(0, 0, layout.request.encode(layout.ask(server_of(values, 46).protocol.init(None))))
    told = {"partition-id": 0, "num-partitions": 1}
    monkeypatch.delenv(flat.CHANCE_VARIABLE, raising=False)
    assert flat.read_node(told).chance == "os"
    drawn = [answer_for(config, flat.read_node(told), question) for _ in range(2)]
    monkeypatch.setenv(flat.CHANCE_VARIABLE, "seed")
    drawn += [answer_for(config, flat.read_node(told), question) for _ in range(2)]
    seeds = [set(np.asarray(layout.reply.decode_all(answer.replies).seed).tolist()) for answer in drawn]
    assert seeds[2] == seeds[3] and not seeds[0] & seeds[1] and not seeds[0] & seeds[2]
    with pytest.raises(UnknownNameError, match="chance"):
        flat.read_node({**told, "chance": "sed"})


def test_a_reply_that_cannot_be_sent_is_left_out():
    layout = Layout(WeightsReply, parameters=2, interactions=4)
    replies = WeightsReply(np.array([[1, 2], [np.nan, 1], [3, 4]], np.float32), np.array([4, 4, 4]))
    answer = pack(layout, replies, range(5, 8))
    numbers, rows = answer.rows(layout, 8)
    assert numbers.tolist() == [5, 7]
    np.testing.assert_array_equal(layout.decode_all(rows.tobytes()).weights, [[1, 2], [3, 4]])
    with pytest.raises(WireError, match="finite"):
        pack(layout, jax.tree.map(lambda leaf: leaf[1:2], replies), range(1))


def test_nodes_with_data_of_their_own_need_none_at_the_server(tmp_path):
    """Two silos with different files: each one's parties are those of a simulator over its file."""
    files = []
    for name, seed in (("a.txt", 1), ("b.txt", 2)):
        part = load("generated", "ranking", seed=seed).test
        with open(tmp_path / name, "w") as file:
            for query in range(part.n_queries):
                for row in range(part.offsets[query], part.offsets[query + 1]):
                    cells = " ".join(f"{i + 1}:{value:.9g}" for i, value in enumerate(part.features[row]))
                    file.write(f"{part.labels[row]} qid:{query + 1} {cells}\n")
        files.append(str(tmp_path / name))
    values = table(tmp_path, data="own", num_server_rounds=1)
    anything: dict[str, Any] = {"most_epsilon": np.inf, "most_run_epsilon": np.inf}  # rewards are sent as they are
    network = Nodes({i: honest(values, i, 2, data=file, **anything) for i, file in enumerate(files)})
    state = serve(values, network)
    told = [simulated({**values, "data": file})[1] for file in files]
    cut = len(block(CLIENTS, 0, 2))
    replies = jax.tree.map(lambda one, other: np.concatenate([one[0, :cut], other[0, cut:]]), *told)
    protocol = server_of(values, 46).protocol
    told = jax.tree.map(jnp.asarray, replies)
    expected = protocol.exchanges[0].tell(protocol.init(None), told, jnp.ones(CLIENTS, bool))
    close(state, np.asarray(expected.weights))
    # A silo's queries are dealt out among its own parties, not among those of the run.
    fixed, _ = flat.read_run({**values, "share": "fixed"})
    count = node_of(fixed, NodeSettings(1, 2, data=files[1])).block({}).parties.own.count
    assert count.tolist() == [load(files[1], "ranking").train.n_queries // (CLIENTS - cut)] * (CLIENTS - cut)


def test_a_run_may_not_say_which_files_a_node_reads(tmp_path):
    (tmp_path / "secret.txt").write_text("1 qid:1 46:1\n")
    config, _ = flat.read_run(table(tmp_path, data=str(tmp_path / "secret.txt")))
    with pytest.raises(ConfigError, match="does not say which files a node reads"):
        answer_for(config, NodeSettings(0, 1), Question(0, 0, b""))


def test_a_protocol_with_a_secure_sum_is_refused_on_both_sides(tmp_path):
    values = table(tmp_path, protocol="foltr-pdgd", privacy_epsilon=1.0)
    with pytest.raises(ConfigError, match="secure sum"):
        serve(values, Nodes({}))
    with pytest.raises(ConfigError, match="secure sum"):
        answer_for(flat.read_run({**values, "data": "generated"})[0], NodeSettings(0, 1), Question(0, 0, b""))


class Grid:
    """Flower's grid with its nodes in this process, made of Flower's own messages."""

    def __init__(self, flwr, values, nodes):
        self.flwr, self.values, self.replies, self.types = flwr, values, {}, set()
        self.contexts = {
            number: flwr.Context(1, number, told, flwr.RecordDict(), values) for number, told in nodes.items()
        }

    def get_node_ids(self):
        return list(self.contexts)

    def push_messages(self, messages):
        for number, message in enumerate(messages, len(self.replies)):
            message.metadata.__dict__["_message_id"] = f"message {number}"  # as Flower does
            self.types.add(message.metadata.message_type)
            context = self.contexts[message.metadata.dst_node_id]
            self.replies[f"message {number}"] = answer_message(message, context)
            yield f"message {number}"

    def pull_messages(self, message_ids):
        return [self.replies[number] for number in message_ids]


def test_flowers_own_messages_carry_a_run(tmp_path, caplog, monkeypatch):
    """The third node's data is not there; what the server hears of that is the kind of the error, not the path."""
    flwr = pytest.importorskip("flwr.app", reason=NEEDS_FLOWER)
    from flwr.supercore.task_identity import TaskIdentity  # set in the processes that Flower starts

    for name in ("_run_id", "_node_id", "_task_id"):
        monkeypatch.setattr(TaskIdentity, name, 1)
    values = table(tmp_path, num_server_rounds=2)
    told = [{"partition-id": i, "num-partitions": 3, "chance": "seed", "rack": "left"} for i in range(3)]
    told[2]["data"] = str(tmp_path / "of-the-hospital.txt")
    grid = Grid(flwr, values, {2**63 - 1 - i: config for i, config in enumerate(told)})
    state = serve(values, FlowerNetwork(grid))
    absent = tuple(party in block(CLIENTS, 2, 3) for party in range(CLIENTS))
    close(state, simulated(values, absent=absent)[0])
    assert grid.types == {"query"}
    failed = [reply.error.reason for reply in grid.replies.values() if reply.has_error()]
    assert failed == ["MissingDataError; the node's log says more"] * 2
    at_the_node = [record for record in caplog.records if record.exc_info]
    assert "of-the-hospital" in str(at_the_node[0].exc_info[1]), "the node's own log says which file"


def test_the_apps_are_flowers():
    pytest.importorskip("flwr.app", reason=NEEDS_FLOWER)
    from flwr.clientapp import ClientApp
    from flwr.serverapp import ServerApp

    from fedrank_flower import client_app, server_app

    assert isinstance(server_app.app, ServerApp) and isinstance(client_app.app, ClientApp)
    assert server_app.app is server_app.app


class Silent(Log):
    def note_question(self, round_, exchange, nodes): ...
    def note_replies(self, round_, exchange, tally): ...
    def done(self, round_, state, tallies): ...


@pytest.mark.parametrize("where", ["folder", "context"])
def test_parties_remember_over_exchanges_rounds_and_processes(where, tmp_path):
    """Two exchanges a round, and a question that is asked again: a party must not count it twice."""
    protocol, own, keys = Counting(), jnp.arange(5, dtype=jnp.uint32), run_keys([3])
    simulator = Simulator(protocol)
    states, theirs = simulator.start(keys, Party(None, own))
    expected, _, _ = simulator.advance(keys, states, None, theirs, 0, 4)
    if where == "context":
        flwr = pytest.importorskip("flwr.app", reason=NEEDS_FLOWER)
        kept = [flwr.RecordDict(), flwr.RecordDict()]
    asked: list[tuple[int, int]] = []
    lost = [(1, 1)]  # of the second node, once

    def node(i):
        numbers = block(5, i, 2)

        def behaviour(question):
            mine = Block(protocol, Party(None, own[numbers.start : numbers.stop]), numbers)
            # Made anew for each question, as in a process of its own.
            memory = (
                FolderMemory(tmp_path, run_of("foltr-es"), numbers) if where == "folder" else ContextMemory(kept[i])
            )
            answer = answer_of(mine, question, 3, 2, "seed", memory)
            asked.append((question.round, question.exchange))
            if i == 1 and asked[-1] in lost:
                return [lost.remove(asked[-1])]
            return [answer.as_record()]

        return behaviour

    rounds = Rounds(protocol, 5, Nodes({0: node(0), 1: node(1)}), flat.FlowerSettings(), Silent())
    state = rounds.run(states[0], 0, 4)
    assert asked.count((1, 1)) == 4, "the question was to be asked twice"
    assert int(state) == int(expected[0])


def test_what_parties_remember_is_of_their_data(tmp_path):
    """A node whose table changed during a run does not go on from what it learnt from the other one."""
    own = jnp.arange(3, dtype=jnp.uint32)
    FolderMemory(tmp_path, run_of("foltr-es"), range(3), content="aa").keep(1, own)
    again = FolderMemory(tmp_path, run_of("foltr-es"), range(3), content="aa")
    np.testing.assert_array_equal(again.before(2, own * 0), own)
    changed = FolderMemory(tmp_path, run_of("foltr-es"), range(3), content="bb")
    with pytest.raises(RunError, match="data"):
        changed.before(2, own)
    np.testing.assert_array_equal(changed.before(0, own * 0), own * 0)  # a run from the start forgets


@given(first=st.integers(0, 40), heard=st.lists(st.booleans(), min_size=1, max_size=40))
def test_answers_and_back(first, heard):
    layout = Count(2).reply
    numbers = [first + i for i, is_heard in enumerate(heard) if is_heard]
    replies = layout.encode_all(Number(np.array(numbers, np.uint32)), (len(numbers),))
    answer = Answer.from_record(Answer.of(first, np.array(heard), replies).as_record())
    if not numbers:
        with pytest.raises(WireError, match="at least one"):
            answer.rows(layout, first + 40)
        return
    got, rows = answer.rows(layout, first + 40)
    assert got.tolist() == numbers == layout.decode_all(rows.tobytes()).value.tolist()


def test_a_node_with_data_of_its_own_asks_for_what_a_device_asks_for(tmp_path):
    own = tmp_path / "own.txt"
    own.write_text("1 qid:1 1:0.5 2:0.25\n0 qid:1 1:0.1 2:0.75\n")
    asked = Question(0, 0, b"no request")
    config, _ = flat.read_run(table(tmp_path, privacy_p=0.99))
    assert 4 * np.log(0.99 * 10 / 0.01) > 20
    with pytest.raises(ConfigError, match="this node agrees to 1 "):
        answer_for(config, NodeSettings(0, 1, chance="seed", data=str(own)), asked)
    with pytest.raises(ConfigError, match="this node agrees to 1 "):  # of all rounds together
        answer_for(config, NodeSettings(0, 1, chance="seed", data=str(own), most_epsilon=np.inf), asked)
    anything = NodeSettings(0, 1, chance="seed", data=str(own), most_epsilon=np.inf, most_run_epsilon=np.inf)
    for settings in (anything, NodeSettings(0, 1)):
        with pytest.raises(WireError):  # it is looked at where the node agrees
            answer_for(config, settings, asked)


def test_a_node_does_not_answer_a_run_that_promises_too_little(tmp_path):
    asked = Question(0, 0, b"no request")
    for settings, epsilon in ((dict(privacy_p=0.9), 4 * np.log(0.9 * 10 / 0.1)), (dict(privacy_p=1.0), np.inf)):
        config, _ = flat.read_run(table(tmp_path, **settings))
        strict = NodeSettings(0, 1, chance="seed", most_epsilon=17.9)
        with pytest.raises(ConfigError, match=r"this node agrees to 17\.9"):
            answer_for(config, strict, asked)
        with pytest.raises(WireError):  # it is looked at where the node agrees
            answer_for(config, NodeSettings(0, 1, chance="seed", most_epsilon=epsilon + 0.1), asked)
