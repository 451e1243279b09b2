"""A silo's memory of a setup: one answer a question, one setup a run, and keys that are gone at the end."""

import dataclasses
import secrets
import stat

import numpy as np
import pytest

from fedrank.core.errors import RunError
from fedrank.core.messages import Array, field, message, u4
from fedrank.core.protocol import Exchange, Party, Protocol
from fedrank.engine.deployment import SetupSide
from fedrank_flower.client_app import ContextStore
from fedrank_flower.kept_answers import FileStore, Remembered, setup_answer
from fedrank_flower.messages import Question


@message(kind=1)
class Message:
    value: Array = field(u4, "a number")


@dataclasses.dataclass(frozen=True)
class Noisy(Exchange, request=Message, reply=Message):
    """A silo adds what it is asked and noise to what it has."""

    name: str = "noisy"
    host = True

    def ask(self, state):
        raise AssertionError("of the server")

    tell = draw = draw_from_os = ask

    def respond(self, request, party, draws):
        value = (party.own.get("value", 0) + int(request.value) + secrets.randbits(20)) % 2**32
        return party._replace(own={"value": np.array(value), "key": np.array(7)}), Message(np.uint32(value))


@dataclasses.dataclass(frozen=True)
class Showing(Protocol):
    name: str = "showing"
    exchanges = (Noisy("keys"), Noisy("show"), Noisy("end"))
    init = weights = account = Noisy.ask


class Side(SetupSide):
    """A silo that keeps its value, and shows something from the second exchange on."""

    protocol, first_shown = Showing(), 1

    def __init__(self, most):
        self.max_shown = most

    def party(self):
        return Party(None, {})

    def draws(self, exchange):
        return None

    def keeps(self, name):
        return name == "value"


def noisy(store, step, value, most=1.0):
    """What the silo answers; from the second exchange on it shows something."""
    request = Noisy().request.encode(Message(np.uint32(value)))
    question = Question(0, step, request, setup=True)
    shown = (
        FileStore(store.path.with_name("shown")) if isinstance(store, FileStore) else ContextStore(store._state, "n")
    )
    answer = setup_answer(Side(most), 2, question, store, shown)
    assert answer.numbers(4).tolist() == [2]
    return answer.replies


@pytest.mark.parametrize("where", ["folder", "context"])
def test_a_silo_answers_each_question_once_and_another_in_its_place_not_at_all(where, tmp_path):
    """Noise that was drawn a second time, or a sum that was unmasked twice, would give away what they hide."""
    store = FileStore(tmp_path / "deep" / "silo.npz")
    if where == "context":
        flwr = pytest.importorskip("flwr.app", reason="needs flwr: pip install -e ./flower")
        store = ContextStore(flwr.RecordDict(), "setup")
    with pytest.raises(RunError, match="asked 'show' and has not taken part"):
        noisy(store, 1, 1)
    first = noisy(store, 0, 1)
    assert noisy(store, 0, 1) == first
    shown = noisy(store, 1, 2)
    assert noisy(store, 1, 2) == shown
    with pytest.raises(RunError, match="asked 'show' a second time with another question"):
        noisy(store, 1, 3)
    if isinstance(store, FileStore):
        assert stat.S_IMODE(store.path.stat().st_mode) == 0o600, "keys are nobody else's business"
    end = noisy(store, 2, 2)
    assert noisy(store, 2, 2) == end
    kept = Remembered.unpack(store.read())
    assert (kept.showing, set(kept.own)) == (True, {"value"}), "what is not needed any more is gone"
    with pytest.raises(RunError, match="a second time"):
        noisy(store, 1, 2)


def test_sketches_are_handed_out_once_unless_the_node_says_otherwise(tmp_path):
    store = FileStore(tmp_path / "silo.npz")
    noisy(store, 0, 1)
    noisy(store, 0, 2)  # nothing was shown: the run may begin anew
    noisy(store, 1, 2)
    noisy(store, 0, 3)
    with pytest.raises(RunError, match=r"in 1 setup\(s\), of this run or others.* its node allows 1 \(most-setups\)"):
        noisy(store, 1, 3)
    noisy(store, 1, 3, most=2)
    noisy(store, 2, 3, most=2)
    other = FileStore(tmp_path / "another-run.npz")
    noisy(other, 0, 1, most=2)
    with pytest.raises(RunError, match="in 2 setup"):
        noisy(other, 1, 1, most=2)
    store.path.write_bytes(store.path.read_bytes()[:100])
    with pytest.raises(RunError, match="what this node remembers of the run's setup is damaged"):
        noisy(store, 0, 1)
