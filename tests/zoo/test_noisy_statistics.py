"""A record's privacy at a silo: how far one record moves what is sent, what is counted, and what an attack finds."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from fedrank.cli.main import call
from fedrank.core.errors import ConfigError, DataError, FormatError, MissingDataError, UnknownNameError
from fedrank.core.privacy_report import Unit
from fedrank.privacy.calibration import gaussian_epsilon
from fedrank.silos.sceptic.auc import auc
from fedrank.silos.sceptic.learners import Own
from fedrank_zoo.noisy_statistics.account import record_account
from fedrank_zoo.noisy_statistics.messages import Message, check_ranges, read_message, spend
from fedrank_zoo.noisy_statistics.ranges import ranges_of
from fedrank_zoo.noisy_statistics.releases import RecordNoise, auc_noise, noise_of, noisy_auc, perturb, release_sums
from fedrank_zoo.noisy_statistics.ways import choose_privately, stack

NAMES = ("a", "b", "g=u")
RANGES = ranges_of(NAMES, {"a": (-3, 3), "b": (0, 10)})


def own_of(seed, n=60):
    """Features and labels."""
    own = rows(seed, n)
    return own.x, own.y


def rows(seed, n=60):
    rng = np.random.default_rng(seed)
    x = np.column_stack([rng.standard_normal(n) * 2, rng.normal(5, 4, n), rng.integers(0, 2, n)])
    return Own(x, (rng.random(n) < 1 / (1 + np.exp(-x[:, 0]))).astype(float))


class Silent(np.random.Generator):
    """A generator without noise."""

    def __init__(self):
        super().__init__(np.random.PCG64(0))

    def normal(self, loc=0.0, scale=1.0, size=None):
        return np.zeros(() if size is None else size)


def sent(own, epsilon=1.0):
    """All numbers that a silo sends, without noise, in units of σ."""
    made = release_sums(own.x, own.y, RANGES, epsilon, 1e-6, Silent())
    second = made.second[np.triu_indices(4)]
    weight = np.where(np.subtract(*np.triu_indices(4)) == 0, np.sqrt(2.0), 1.0)  # on the diagonal σ√2
    return np.concatenate([made.first / made.sigma_first, second / weight / made.sigma_second])


extreme = st.lists(st.sampled_from([-1e9, -3.0, 0.0, 3.0, 10.0, 1e9, np.nan]), min_size=3, max_size=3)


@settings(max_examples=25, deadline=None)
@given(first=extreme, second=extreme, labels=st.tuples(st.booleans(), st.booleans()))
def test_no_record_moves_the_sums_or_the_model_further_than_the_noise_is_made_for(first, second, labels):
    own = rows(0)
    tables = []
    for values, label in zip((first, second), labels, strict=True):
        x, y = own.x.copy(), own.y.copy()
        x[7], y[7] = values, label
        tables.append(Own(x, y))
    # ρ is (distance/σ)²/2 of discrete Gaussian noise (Canonne et al. 2020).
    apart = np.linalg.norm(sent(tables[0]) - sent(tables[1]))
    assert apart**2 / 2 <= noise_of(RANGES, 1.0, 1e-6).rho
    made = [perturb(one.x, one.y, RANGES, 1.0, 1e-6, Silent(), penalty=0.5) for one in tables]
    length = np.sqrt(1 + RANGES.clip**2)
    assert np.linalg.norm(made[0].beta - made[1].beta) <= 2 * length / 0.5 + 1e-6


def test_the_sums_are_those_of_the_rows_in_their_ball():
    own = rows(1)
    middle, half = np.array([0, 5, 0.5]), np.array([3, 5, 0.5])
    x = (np.clip(own.x, [-3, 0, 0], [3, 10, 1]) - middle) / half
    x *= np.minimum(1, 0.6 * 3**0.5 / np.linalg.norm(x, axis=1))[:, None]
    u = np.column_stack([np.ones(60), x])
    made = release_sums(own.x, own.y, RANGES, 1.0, 1e-6, Silent())
    np.testing.assert_allclose(made.second, u.T @ u, atol=made.sigma_second / 500)
    np.testing.assert_allclose(made.first, u.T @ (own.y - 0.5), atol=made.sigma_first / 500)
    assert made.rows == 60 == made.second[0, 0]


def test_noise_has_the_deviation_that_it_says_from_both_sources():
    own, many = rows(2), 150
    for rng in (np.random.default_rng(0), None):
        drawn = [release_sums(own.x, own.y, RANGES, 1.0, 1e-6, rng) for _ in range(many)]
        first = np.array([one.first for one in drawn])
        second = np.array([one.second for one in drawn])
        ends = np.sqrt(stats.chi2.ppf([1e-6, 1 - 1e-6], 4 * (many - 1)) / (4 * (many - 1)))
        got = np.sqrt(first.var(axis=0, ddof=1).mean()) / drawn[0].sigma_first
        assert ends[0] < got < ends[1]
        np.testing.assert_allclose(second[:, 1, 2].std() / drawn[0].sigma_second, 1, atol=0.3)
        np.testing.assert_allclose(second[:, 1, 1].std() / drawn[0].sigma_second, 2**0.5, atol=0.4)
        assert (second[:, 0, 0] == 60).all() and (second == second.transpose(0, 2, 1)).all()


def test_epsilon_is_near_that_of_continuous_gaussian_noise():
    noise = noise_of(RANGES, 4.0, 1e-6)
    exact = gaussian_epsilon(noise.sigma, 1e-6, noise.sensitivity)
    assert 0.85 * 4 < exact < 4.0


def test_releases_add_up_and_cost_less_than_the_sum():
    noise = noise_of(RANGES, 1.0, 1e-6)
    one = record_account({"sums": noise}, 1e-6)
    four = record_account({f"sums {k}": noise for k in range(4)}, 1e-6)
    assert one.epsilon(Unit.RECORD) == pytest.approx(1.0, rel=1e-6)
    assert 1.9 < four.epsilon(Unit.RECORD) < 2.3, "about √4 times"
    assert record_account({}, 1e-6).epsilon(Unit.RECORD) == 0


def test_a_book_counts_what_was_sent_and_refuses_what_is_too_much(tmp_path):
    noise, book = noise_of(RANGES, 2.0, 1e-6), tmp_path / "book.json"
    assert spend(book, noise, 1e-6, 4.0, {}) == pytest.approx(2.0, rel=1e-6)
    second = spend(book, noise, 1e-6, 4.0, {})
    assert 2.7 < second < 3.0
    spend(book, noise, 1e-6, 4.0, {})
    with pytest.raises(ConfigError, match="limit"):
        spend(book, noise, 1e-6, 4.0, {})
    assert len(json.loads(book.read_text())) == 3, "what was refused was not sent"
    book.write_text("{")
    with pytest.raises(FormatError, match="nothing is sent"):
        spend(book, noise, 1e-6, 4.0, {})


def test_ranges_come_from_outside_and_are_asked_for():
    with pytest.raises(ConfigError, match="codebook"):
        ranges_of(NAMES, {"a": (0, 1)})
    with pytest.raises(UnknownNameError):
        ranges_of(NAMES, {"a": (0, 1), "b": (0, 1), "c": (0, 1)})
    for bad in ((1, 1), (0, np.inf), (np.nan, 1)):
        with pytest.raises(ConfigError, match="rise"):
            ranges_of(NAMES, {"a": bad, "b": (0, 1)})
    for epsilon in (0, -1, 101, np.nan):
        with pytest.raises(ConfigError, match="epsilon"):
            RecordNoise(epsilon, 1e-6, 1.0, 1)


def test_an_auc_with_noise_moves_with_one_record_by_one_part_in_the_rarer_label():
    own = rows(3)
    assert auc_noise(10, 90, 1.0, 1e-6).sensitivity == 0.1
    x, y = own.x[:, 0].copy(), own.y
    before = auc(x, y).value
    x[np.flatnonzero(y > 0)[0]] = -1e9
    assert abs(auc(x, y).value - before) <= 1 / min(y.sum(), 60 - y.sum())
    told, noise = noisy_auc(x, y, 8.0, 1e-6, np.random.default_rng(0))
    assert 0 <= told <= 1 and noise.epsilon == 8.0
    with pytest.raises(DataError, match="one label"):
        auc_noise(0, 9, 1.0, 1e-6)


def test_messages_are_worth_having_at_a_small_epsilon_where_others_have_many_rows():
    rng = np.random.default_rng(0)
    mine, test = rows(10, 30), rows(11, 2000)
    messages = [release_sums(*own_of(20 + k, 500), RANGES, 1.0, 1e-6, rng) for k in range(3)]
    made = choose_privately(mine, messages, RANGES, rng)
    alone, best = (auc(made.models[way](test.x), test.y).value for way in ("alone", made.best))
    assert best > alone - 0.005 and auc(made.models["federated"](test.x), test.y).value > 0.85


def test_stacking_gives_weight_to_the_model_that_knows_and_none_to_its_opposite():
    rng = np.random.default_rng(0)
    truth = 2 * rng.standard_normal(500)
    y = (rng.random(500) < 1 / (1 + np.exp(-truth))).astype(float)
    weights = stack(np.column_stack([truth, -truth, rng.standard_normal(500)]), y)
    assert weights[0] > 0.8 and weights[1] < 0.05 and weights[2] < 0.3


# --------------------------------------------------------------------------------------------------- command line


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "all.csv"
    lines = ["silo,a,b,ill"]
    for number, name in enumerate(("north", "south", "east")):
        own = rows(number, 80)
        lines += [f"{name},{a},{b},{int(y)}" for (a, b, _), y in zip(own.x, own.y, strict=True)]
    path.write_text("\n".join(lines))
    return path


#: What the file's columns are.
RANGES_OF_FILE = ranges_of(("a", "b"), {"a": (-3, 3), "b": (0, 10)})


def two(seed):
    """Rows of the two columns of the file."""
    own = rows(seed, 80)
    return own.x[:, :2], own.y


FLAGS = ["--label", "ill", "--positive", "1", "--range", "a=-3:3", "b=0:10"]


def test_a_silo_sends_once_and_another_uses_it(table, tmp_path, capsys):
    out = tmp_path / "north.json"
    send = ["silos", "send", str(table), "--of", "north", "--epsilon", "4", "--out", str(out), *FLAGS]
    assert call([*send, "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["epsilon_so_far"] == pytest.approx(4.0, rel=1e-6) and said["rows"] == 80
    assert call(send) == 1 and "never written over" in capsys.readouterr().err
    more = [*send[: -len(FLAGS) - 1], str(tmp_path / "again.json"), *FLAGS]
    assert call(more) == 0 and "5." in capsys.readouterr().out
    message = read_message(out)
    assert message.silo == "north" and message.statistics.rows == 80 and message.label
    again = Message(**vars(message))
    again.write(tmp_path / "copy.json")
    np.testing.assert_array_equal(read_message(tmp_path / "copy.json").statistics.second, message.statistics.second)


def test_a_silo_uses_what_another_sent(table, tmp_path, capsys):
    out = tmp_path / "north.json"
    Message("north", "ill", RANGES_OF_FILE, 4.0, 1e-6, release_sums(*two(0), RANGES_OF_FILE, 4.0, 1e-6)).write(out)
    private = ["silos", "private", str(table), "--target", "south", "--messages", str(out), "--label", "ill", "--json"]
    assert call(private) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["messages"] == {"north": {"rows": 80, "epsilon": 4.0, "delta": 1e-6}} and not told["simulated"]
    assert set(told["ways"]) == {"alone", "as-they-are", "averaged", "federated", "stacked"}


def test_messages_that_cannot_be_are_refused(table, tmp_path, capsys):
    with pytest.raises(MissingDataError):
        read_message(tmp_path / "none.json")
    made = Message("n", "ill", RANGES, 1.0, 1e-6, release_sums(*own_of(0), RANGES, 1.0, 1e-6)).as_json()
    path = tmp_path / "bad.json"
    for change in ({"format": "x"}, {"first": [1e400] * 4}, {"rows": 7}, {"second": [1.0]}, {"columns": []}):
        path.write_text(json.dumps(made | change))
        with pytest.raises(FormatError):
            read_message(path)
    path.write_text(json.dumps(made))
    with pytest.raises(DataError, match="other columns"):
        check_ranges(read_message(path), ranges_of(("a",), {"a": (0, 1)}))
    with pytest.raises(DataError, match="another range"):
        check_ranges(read_message(path), ranges_of(NAMES, {"a": (-3, 3), "b": (0, 11)}))
    assert call(["silos", "private", str(table), "--label", "ill"]) == 1
    assert "codebook" in capsys.readouterr().err


def test_a_simulated_federation_says_what_epsilon_buys(table, capsys):
    command = ["silos", "private", str(table), "--epsilon", "8", "--auc-epsilon", "2", *FLAGS]
    assert call([*command, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["simulated"] and set(told["verdicts"]) == {"north", "south"} and 0 <= told["told_auc"]["value"] <= 1
    assert told["privacy"]["promises"][0]["unit"] == "record"
    assert call(command) == 0 and "rows): use " in capsys.readouterr().out
