"""Studies: rounds over files equal rounds in memory, silos fall away, rules forbid what would tell of a few rows."""

import dataclasses
import json

import numpy as np
import pytest
from studies import COLUMNS, NO_RULES, SILOS, codebook, csv, node, rows

from fedrank.core.errors import ConfigError, DataError, FormatError, MissingDataError, RunError
from fedrank.silos.studies.codebook import Column, Question, Rules, codebook_toml, from_text
from fedrank.silos.studies.coordinator import Coordinator, StudyFolder, run_study
from fedrank.silos.studies.keys import Key, add_masks, make_key, read_key, unmask
from fedrank.silos.studies.messages import Answer, Round, read_message, write_message
from fedrank.silos.studies.node import MOST_ROUNDS, Node, open_node
from fedrank.silos.studies.protocol import Ask
from fedrank.silos.studies.questions import MOST_POINTS
from fedrank.silos.studies.table import own_table

RISK = Question(name="risk", formula="ill ~ age + sex + stage")
COUNT = Question(name="count", model="poisson", formula="visits ~ age + log(crp)")
TABLE = Question(name="table", model="table", formula="~ age + sex | ill")
PARTS = {silo: rows(n, k) for k, (silo, n) in enumerate(zip(SILOS, (120, 80, 200), strict=True))}


def run(book, nodes):
    made = run_study(book, lambda asked: [one.answer(asked) for one in nodes])
    return made.progress


def estimates(progress):
    return {name: one.result.estimate for name, one in progress.items() if hasattr(one.result, "estimate")}


def test_over_files_and_in_memory_the_result_is_the_same(tmp_path):
    book = codebook(RISK, COUNT, TABLE)
    theirs = run(book, [node(book, silo, part) for silo, part in PARTS.items()])
    (tmp_path / "codebook.toml").write_text(codebook_toml(book))
    for silo, part in PARTS.items():
        csv(part, tmp_path / f"{silo}.csv")
    study, sent = StudyFolder(tmp_path / "study", tmp_path / "codebook.toml"), 0
    while (asked := study.round) is not None:
        for silo in study.waiting:
            own = open_node(tmp_path / f"{silo}.csv", asked.codebook, silo, tmp_path / f"node-{silo}", book.sha)
            write_message(own.answer(asked), tmp_path / "answer.json")
            study.receive(read_message(tmp_path / "answer.json", Answer))
            sent += 1
            study = StudyFolder(tmp_path / "study")  # stopped and begun again after each answer
        study.close()
    assert sent == 3 * study.coordinator.number == 3 * max(one.rounds for one in theirs.values())
    for name, value in estimates(theirs).items():
        np.testing.assert_array_equal(estimates(study.coordinator.progress)[name], value)
    assert study.coordinator.progress["table"].result.as_json() == theirs["table"].result.as_json()
    book_lines = [json.loads(line) for line in (tmp_path / "node-a" / "book.jsonl").read_text().splitlines()]
    assert {one["question"] for one in book_lines} == {"risk", "count", "table"}
    assert all(one["numbers"] > 0 and one["message_bytes"] > 0 and not one["refused"] for one in book_lines)


def test_a_silo_that_falls_away_is_as_if_it_had_never_been_there():
    book = codebook(RISK)
    nodes = {silo: node(book, silo, part) for silo, part in PARTS.items()}
    without = codebook(RISK)
    expected = run(without, [nodes["a"], nodes["c"]])["risk"].result.estimate
    made = Coordinator(book)
    while (asked := made.open) is not None:
        made.take([nodes[silo].answer(asked) for silo in ("abc" if made.number < 2 else "ac")], asked)
    found = made.progress["risk"]
    assert set(found.left) == {"b"} and found.attempt == 1
    np.testing.assert_array_equal(found.result.estimate, expected)
    made = Coordinator(book)
    made.take([nodes["b"].answer(made.open)])
    assert made.open is None and made.progress["risk"].failed and made.progress["risk"].result is None


def test_answers_that_are_none_are_refused(tmp_path):
    book = codebook(RISK)
    nodes = {silo: node(book, silo, part) for silo, part in PARTS.items()}
    made = Coordinator(book)
    good = [one.answer(made.open) for one in nodes.values()]
    other = codebook(RISK, level=0.9)
    with pytest.raises(ConfigError):
        nodes["a"].answer(Coordinator(other).open)
    longer = Answer.from_json(good[0].as_json() | {"answers": [
        {**good[0].as_json()["answers"][0], "numbers": [*good[0].as_json()["answers"][0]["numbers"], 1.0]}
    ]})  # fmt: skip
    for wrong in (
        [*good, good[0]],
        [Answer.from_json(good[0].as_json() | {"silo": "d"})],
        [Answer.from_json(good[0].as_json() | {"round": 7})],
        [Answer.from_json(good[0].as_json() | {"round_sha256": "0"})],
        [Answer.from_json(good[0].as_json() | {"codebook_sha256": other.sha})],
        [Answer.from_json(good[0].as_json() | {"answers": []})],
        [longer, *good[1:]],
    ):
        with pytest.raises(DataError):
            Coordinator(book).take(wrong)
    (tmp_path / "c.toml").write_text(codebook_toml(book))
    with pytest.raises(ConfigError):
        StudyFolder(tmp_path / "none")
    study = StudyFolder(tmp_path / "study", tmp_path / "c.toml")
    study.receive(good[0])
    study.receive(good[0])
    changed = node(book, "a", rows(50, 9)).answer(study.round)
    with pytest.raises(RunError):
        study.receive(changed)
    with pytest.raises(ConfigError):
        study.close()
    (tmp_path / "d.toml").write_text(codebook_toml(other))
    with pytest.raises(ConfigError):
        StudyFolder(tmp_path / "study", tmp_path / "d.toml")
    for text in ("", "{", "[]", "{}", '{"format": "fedrank-study-round", "version": 1}', "[" * 100_000):
        (tmp_path / "m.json").write_text(text)
        for kind in (Round, Answer):
            with pytest.raises(FormatError):
                read_message(tmp_path / "m.json", kind)
    with pytest.raises(MissingDataError):
        read_message(tmp_path / "none.json", Round)
    told = made.open.as_json()
    told["codebook"]["level"] = 0.5
    with pytest.raises(FormatError):
        Round.from_json(told)


def reply(part, *questions, rules, earlier=None, name=None):
    """A silo's reply to the first ask of a question, or the last of several questions."""
    book = codebook(*questions, rules=rules)
    own = node(book, "a", part)
    return own.answer(Coordinator(book).open).replies[name or questions[-1].name]


def test_rules_of_the_codebook():
    part = rows(100, 5)
    assert not reply(part, RISK, rules=Rules()).refused
    few = {name: values[:4] for name, values in part.items()}
    rare = {**part, "sex": np.array([1.0] * 3 + [0.0] * 97)}
    cell = {**part, "sex": np.repeat([0.0, 1.0], 50), "ill": np.array([0.0] * 40 + [1.0] * 56 + [0.0] * 4)}
    other_cell = {**part, "sex": np.repeat([0.0, 1.0], 50), "ill": np.array([1.0] * 3 + [0.0] * 72 + [1.0] * 25)}
    reference = {**part, "stage": np.array([0.0] * 2 + [1.0] * 49 + [2.0] * 49)}
    many = Rules(rows_per_parameter=30.0)
    events = Rules(events_per_parameter=12.0)
    for rule, columns, rules in (
        ("smallest cell", few, Rules()), ("smallest cell", rare, Rules()), ("smallest cell", cell, Rules()),
        ("smallest cell", other_cell, Rules()), ("smallest cell", reference, Rules()),
        ("rows for each", part, many), ("events for each", part, events),
    ):  # fmt: skip
        found = reply(columns, RISK, rules=rules)
        assert found.refused.startswith(rule) and np.isnan(found.numbers).all() and found.rows is None
    assert not reply(rare, RISK, rules=NO_RULES).refused


def test_questions_whose_rows_differ_by_a_few_are_refused_unless_all_use_the_same():
    part = rows(100, 5)
    part["crp"][:3] = np.nan
    other = Question(name="more", formula="ill ~ age + sex + stage + crp")
    found = reply(part, RISK, other, rules=Rules(same_rows=False))
    assert found.refused.startswith("differencing")
    assert not reply(part, RISK, other, rules=Rules()).refused
    assert reply(part, RISK, other, rules=Rules()).rows == 97
    part["crp"][:30] = np.nan
    assert not reply(part, RISK, other, rules=Rules(same_rows=False)).refused


def test_a_table_that_changes_and_too_many_rounds_are_refused(tmp_path):
    book = codebook(RISK, rules=Rules())
    part = rows(100, 5)
    asked = Coordinator(book).open
    csv(part, tmp_path / "a.csv")
    first = open_node(tmp_path / "a.csv", book, "a", tmp_path / "node", book.sha).answer(asked).replies["risk"]
    again = open_node(tmp_path / "a.csv", book, "a", tmp_path / "node", book.sha).answer(asked).replies["risk"]
    np.testing.assert_array_equal(first.numbers, again.numbers)
    for change in (
        {name: values[:99] for name, values in part.items()},
        {**part, "age": np.append(np.nan, part["age"][1:])},
    ):
        csv(change, tmp_path / "b.csv")
        found = open_node(tmp_path / "b.csv", book, "a", tmp_path / "node", book.sha).answer(asked)
        assert found.replies["risk"].refused.startswith("same table")
    flipped = {**part, "ill": np.append(1 - part["ill"][0], part["ill"][1:])}
    csv(flipped, tmp_path / "b.csv")
    found = open_node(tmp_path / "b.csv", book, "a", tmp_path / "node", book.sha).answer(asked)
    assert found.replies["risk"].refused.startswith("same table")
    own = node(book, "a", part)
    for number in range(1, MOST_ROUNDS + 3):  # other asks under one number count, too
        asks = {"risk": Ask("sums", {"theta": np.full((1, 5), number / 1000)})}
        found = own.answer(Round(book, 1, asks)).replies["risk"]
        assert bool(found.refused) == (number > MOST_ROUNDS)
    (tmp_path / "node" / "book.jsonl").write_text("{}\n{")  # a killed process's half a line is not read
    with pytest.raises(KeyError):
        open_node(tmp_path / "a.csv", book, "a", tmp_path / "node", book.sha).answer(asked)
    (tmp_path / "node" / "book.jsonl").write_text("{\n")
    with pytest.raises(FormatError):
        open_node(tmp_path / "a.csv", book, "a", tmp_path / "node", book.sha)
    with pytest.raises(ConfigError):
        open_node(tmp_path / "a.csv", book, "a", tmp_path / "new", "0" * 64)
    with pytest.raises(ConfigError):
        open_node(tmp_path / "a.csv", book, "a", tmp_path / "new", book.sha[:6])
    assert isinstance(Node(own_table(tmp_path / "a.csv", book, "a")).book, tuple)


def secure(silos, questions, parts):
    """A study with secure sums, and its nodes."""
    keys = {silo: Key() for silo in silos}
    public = {silo: key.public for silo, key in keys.items()}
    rules = dataclasses.replace(NO_RULES, secure_sum=True)
    book = dataclasses.replace(codebook(*questions), silos=silos, keys=public, rules=rules)
    return book, {silo: node(book, silo, parts[silo], key=keys[silo]) for silo in silos}


def test_secure_sums_give_the_same_and_no_silos_own_answer():
    silos = ("a", "b", "c", "d")
    parts = {**PARTS, "d": rows(90, 7)}
    book, nodes = secure(silos, (RISK, COUNT), parts)
    clear = dataclasses.replace(codebook(RISK, COUNT), silos=silos)
    in_clear = run(clear, [node(clear, silo, part) for silo, part in parts.items()])
    expected = estimates(in_clear)
    made, rounds = Coordinator(book), []
    while (asked := made.open) is not None:
        answers = [Answer.from_json(json.loads(json.dumps(one.answer(asked).as_json()))) for one in nodes.values()]
        rounds.append((asked, answers))
        made.take(answers, asked)
    for name, value in estimates(made.progress).items():
        np.testing.assert_allclose(value, expected[name], rtol=1e-11)
        assert made.progress[name].numbers == in_clear[name].numbers
    for asked, answers in rounds:
        for name in asked.asks:
            words = [one.replies[name].numbers for one in answers]
            for some in (words[:1], words[:3]):  # without masks all would be far below 2¹⁴³, the largest there is
                assert np.median(np.abs(unmask(some))) > 2.0**138
    # The masks of a round are those of that round.
    first, second = (rounds[k][1][0].replies["risk"].numbers for k in (1, 2))
    assert (first == second).mean() < 0.01
    lost = Coordinator(book)
    while (asked := lost.open) is not None:
        lost.take([nodes[silo].answer(asked) for silo in ("abcd" if lost.number < 2 else "acd")], asked)
    three = dataclasses.replace(clear, silos=("a", "c", "d"))
    expected = estimates(run(three, [node(three, silo, parts[silo]) for silo in three.silos]))
    np.testing.assert_allclose(lost.progress["risk"].result.estimate, expected["risk"], rtol=1e-10)
    lost = Coordinator(book)
    lost.take([nodes[silo].answer(lost.open) for silo in "ab"])
    assert lost.progress["risk"].failed


def test_keys_that_do_not_fit_are_refused(tmp_path):
    book = secure(("a", "b", "c"), (RISK,), PARTS)[0]
    asked = Coordinator(book).open
    for key in (None, Key()):
        with pytest.raises(ConfigError):
            node(book, "a", PARTS["a"], key=key).answer(asked)
    for keys in (
        {},
        {"a": book.keys["a"]},
        {**book.keys, "a": "AAAA"},
        {**book.keys, "a": "?"},
        {**book.keys, "z": ""},
    ):
        with pytest.raises(ConfigError):
            dataclasses.replace(book, keys=keys)
    made = make_key(tmp_path / "node" / "key")
    assert (tmp_path / "node" / "key").stat().st_mode & 0o077 == 0 and len(from_text(made.public)) == 64
    assert read_key(tmp_path / "node" / "key") == made and repr(made.seed) not in repr(made)
    with pytest.raises(ConfigError):
        make_key(tmp_path / "node" / "key")
    with pytest.raises(ConfigError):
        read_key(tmp_path / "none")
    (tmp_path / "bad").write_bytes(b"short")
    with pytest.raises(FormatError):
        read_key(tmp_path / "bad")


def masked(values):
    """The masked answers of silos, a row each, to one sum."""
    silos = [str(k) for k in range(len(values))]
    keys = {silo: Key() for silo in silos}
    public = {silo: key.public for silo, key in keys.items()}
    return [add_masks(one, silo, keys[silo], silos, public, b"") for silo, one in zip(silos, values, strict=True)]


def test_of_masked_numbers_only_the_sum_can_be_worked_out():
    for bad in (np.nan, np.inf, 1e40):
        with pytest.raises(DataError):
            masked(np.full((3, 1), bad))
    many = np.random.default_rng(0).normal(size=(12, 40)) * 10.0 ** np.arange(-19, 21)
    answers = masked(many)
    np.testing.assert_allclose(unmask(answers), many.sum(axis=0), rtol=1e-12, atol=2.0**-75)
    # A silo's answer, and the sum of all but one, are uniform modulo 2²²⁴, whose half is 2¹⁴³ after the point.
    for some in (answers[:1], answers[:11]):
        part = unmask(some) / 2.0**143
        assert abs(part.mean()) < 0.3 and 0.3 < np.abs(part).mean() < 0.7
    # Parts of one sum leave one sum of words, whatever they carry: nothing of them beside it.
    left = [
        sum(int.from_bytes(one.tobytes(), "little") for one in masked(np.array(parts)[:, None])) % 2**224
        for parts in ([0.5, 0.5, 0.0], [0.75, -1.0, 1.25], [2.0**-40, 1.0 - 2.0**-39, 2.0**-40])
    ]
    assert left == [2**80] * 3


def test_asks_that_no_analysis_makes_are_refused():
    book = codebook(RISK, COUNT, Question(name="cox", model="cox", formula="Surv(days, ill) ~ age"), TABLE)
    own, asked = node(book, "a", PARTS["a"]), Coordinator(book).open
    for name in asked.asks:
        for step in ("moments", "sums", "meat", "firth", "times", "counts", "own", "patterns", "rows", ""):
            for numbers in (
                {},
                {"theta": np.zeros((1, 99))},
                {"theta": np.array(1.0)},
                {"theta": np.full((1, 5), 1e300)},
            ):
                ask = Round(book, 1, {name: Ask(step, numbers)})
                try:
                    found = own.answer(ask).replies[name]
                except (ConfigError, DataError):
                    continue
                assert isinstance(found.numbers, np.ndarray)


def test_coefficients_at_which_a_few_rows_carry_the_sums_are_refused():
    """Log-odds of 1000 · (age − one patient's age): of all rows that patient's alone weighs."""
    part = rows(100, 5)
    question = Question(name="q", formula="ill ~ age")
    book = codebook(question, rules=Rules())
    low, high = 0.0, 110.0
    victim = (part["age"][0] - (low + high) / 2) / ((high - low) / 2)
    own = node(book, "a", part)
    ages = np.unique(part["age"])
    between = ((ages[40] + ages[41]) / 2 - (low + high) / 2) / ((high - low) / 2)
    for theta, refused in (
        ([0.0, 0.0], False), ([0.5, 1.0], False), ([-1e5 * victim, 1e5], True), ([-1e9 * between, 1e9], True),
    ):  # fmt: skip
        reply = own.answer(Round(book, 1, {"q": Ask("sums", {"theta": np.array([theta])})})).replies["q"]
        assert bool(reply.refused) == refused, reply.refused


def test_settings_of_an_ask_are_those_of_the_codebook():
    by_site = Question(name="q", model="cox", formula="Surv(days, ill) ~ age + strata(site)")
    bins = Question(name="q", model="cox", formula="Surv(days, ill) ~ age")
    given = {"theta": np.zeros(1), "exact": np.array(0.0), "strata": np.array(1.0), "efron": np.array(1.0)}
    ends = codebook(bins).column("days").grid()
    cases = (
        (by_site, "times", {"most": np.array(300.0)}), (bins, "times", {"most": np.array(4096.0)}),
        (by_site, "sums", {**given, "times": ends, "by_silo": np.array(0.0)}),
        (bins, "sums", {**given, "times": np.linspace(0.1, 365, 300), "by_silo": np.array(0.0)}),
        (RISK, "patterns", {"patterns": np.ones((1, 5))}),
        (RISK, "meat", {"theta": np.zeros(5), "clusters": np.array(0.0)}),
    )  # fmt: skip
    for question, step, numbers in cases:
        book = codebook(question)
        with pytest.raises(DataError):
            node(book, "a", PARTS["a"]).answer(Round(book, 1, {question.name: Ask(step, numbers)}))
    good = {**given, "times": ends, "by_silo": np.array(0.0)}
    book = codebook(bins)
    assert not node(book, "a", PARTS["a"]).answer(Round(book, 1, {"q": Ask("sums", good)})).replies["q"].refused


def test_plans_and_names_that_cannot_be_are_refused():
    with pytest.raises(ConfigError):
        Coordinator(codebook())
    for silos in (("a", "A", "b"), ("a/b", "c"), ("..", "c"), (".a", "c"), ("a\\b", "c")):
        with pytest.raises(ConfigError):
            dataclasses.replace(codebook(RISK), silos=silos)
    for formula in ("ill ~ I(age^-1)", "ill ~ " + "offset(" * 3000 + "age", "ill ~ age + " + "age + " * 3000 + "age"):
        with pytest.raises(ConfigError):
            Coordinator(codebook(Question(name="q", formula=formula)))
    two = Question(name="q", formula="ill ~ sex", pool="silos", one_round=True)
    with pytest.raises(ConfigError):
        Coordinator(codebook(two))


def test_rows_of_a_silo_that_fell_away_are_not_counted():
    book = codebook(RISK)
    nodes = {silo: node(book, silo, part) for silo, part in PARTS.items()}
    made = Coordinator(book)
    while (asked := made.open) is not None:
        made.take([nodes[silo].answer(asked) for silo in ("abc" if made.number < 2 else "ac")], asked)
    assert made.progress["risk"].rows == {"a": 120, "c": 200}


def cells_of(part, *names):
    """Smallest count above 0 in a table of columns of levels, by brute force."""
    found = {}
    for key in zip(*(part[name].tolist() for name in names), strict=True):
        found[key] = found.get(key, 0) + 1
    return min(found.values())


def test_small_cells_that_follow_from_products_of_columns_are_refused():
    part = rows(400, 5)
    part["arm"] = part["sex"][::-1].copy()
    part["age"][(part["sex"] == 1) & (part["stage"] == 2) & (part["arm"] == 1)] = np.nan
    back = np.flatnonzero((part["sex"] == 1) & (part["stage"] == 2) & (part["arm"] == 1))[:3]
    part["age"][back] = 50.0  # three rows of these three levels
    kept = {name: values[~np.isnan(part["age"])] for name, values in part.items()}
    pairs = [("sex", "stage"), ("sex", "arm"), ("stage", "arm")]
    assert cells_of(kept, "sex", "stage", "arm") == 3 and all(cells_of(kept, *pair) >= 5 for pair in pairs)
    columns = {**COLUMNS, "arm": Column(name="arm", levels=("1", "2"))}
    for formula, refused in (
        ("crp ~ age + sex + stage + arm", False), ("crp ~ age + sex * stage + arm", True),
        ("crp ~ age + sex:arm + sex + arm + stage", True), ("crp ~ age + sex * stage", False),
    ):  # fmt: skip
        question = Question(name="q", model="linear", formula=formula)
        book = dataclasses.replace(codebook(question, rules=Rules()), columns=columns)
        found = node(book, "a", part).answer(Coordinator(book).open).replies["q"]
        assert found.refused.startswith("smallest cell") == refused, formula


def test_a_model_of_levels_alone_is_a_table_of_counts():
    part = rows(400, 6)
    part["visits"] = (part["visits"] > 2) * 3.0
    group = (part["sex"] == 1) & (part["stage"] == 2)
    part["ill"][group] = np.where(np.cumsum(group[group]) <= 3, 1.0, 0.0)
    assert cells_of(part, "sex", "stage", "ill") == 3
    assert min(cells_of(part, "sex", "ill"), cells_of(part, "stage", "ill"), cells_of(part, "sex", "stage")) >= 5
    # The likelihood has an outcome's sum with each column; squares of scores and counts by pattern have all of it.
    for formula, about, refused in (
        ("ill ~ sex + stage", {}, False), ("ill ~ sex + stage", {"errors": "robust"}, True),
        ("ill ~ sex + stage", {"one_round": True}, True), ("ill ~ sex", {"errors": "robust"}, False),
    ):  # fmt: skip
        found = reply(part, Question(name="q", formula=formula, **about), rules=Rules())
        assert found.refused.startswith("smallest cell") == refused, (formula, about)
    part["arm"] = part["sex"][::-1].copy()
    few = (part["sex"] == 1) & (part["stage"] == 2) & (part["arm"] == 1)
    part["arm"][np.flatnonzero(few)[3:]] = 0.0
    assert cells_of(part, "sex", "stage", "arm") == 3 and cells_of(part, "stage", "arm") >= 5
    for formula, refused in (("ill ~ sex + stage + arm", True), ("ill ~ sex + stage + arm + age", False)):
        question = Question(name="q", formula=formula)
        columns = {**COLUMNS, "arm": Column(name="arm", levels=("1", "2"))}
        book = dataclasses.replace(codebook(question, rules=Rules()), columns=columns)
        found = node(book, "a", part).answer(Coordinator(book).open).replies["q"]
        assert found.refused.startswith("smallest cell") == refused, formula


def test_rows_of_a_time_by_two_columns_are_counted():
    part = rows(600, 7)
    part["days"] = np.where(part["days"] > 180, 365.0, 100.0)
    wide = {**COLUMNS, "days": dataclasses.replace(COLUMNS["days"], bins=(180.0,))}
    cox = Question(name="q", model="cox", formula="Surv(days, ill) ~ sex + stage")
    book = dataclasses.replace(codebook(cox, rules=Rules()), columns=wide)
    assert not node(book, "a", part).answer(Coordinator(book).open).replies["q"].refused
    few = (part["days"] > 180) & (part["ill"] == 1) & (part["sex"] == 1) & (part["stage"] == 2)
    assert few.sum() >= 5
    part["ill"][np.flatnonzero(few)[2:]] = 0.0  # two rows of both levels have the event late
    assert node(book, "a", part).answer(Coordinator(book).open).replies["q"].refused.startswith("smallest cell")


def test_numbers_that_few_rows_do_not_share_are_refused():
    part = rows(100, 8)
    question = Question(name="q", formula="ill ~ age + visits")
    part["visits"] = np.zeros(100)
    assert not reply(part, question, rules=Rules()).refused  # a constant says nothing
    part["visits"][:4] = 7.0, 9.0, 7.0, 2.0
    assert reply(part, question, rules=Rules()).refused.startswith("smallest cell")
    part["visits"][4] = 1.0
    assert not reply(part, question, rules=Rules()).refused


def test_rows_that_only_some_questions_have_are_counted_for_each_choice_of_questions():
    """Of questions with ages, with markers, with both and with neither: two rows lack both."""
    part = rows(100, 5)
    part["age"][:10], part["crp"][8:18] = np.nan, np.nan
    formulas = ("ill ~ visits", "ill ~ visits + age", "ill ~ visits + crp", "ill ~ visits + age + crp")
    questions = [Question(name=str(k), formula=one) for k, one in enumerate(formulas)]
    book = codebook(*questions, rules=Rules(same_rows=False))
    answers = node(book, "a", part).answer(Coordinator(book).open).replies
    # Any two of them differ by eight rows or more; the first, less the second and the third, with the fourth, by two.
    assert [bool(answers[name].refused) for name in "0123"] == [False, False, True, False]
    part["age"][:10], part["crp"][5:18] = np.nan, np.nan
    answers = node(book, "a", part).answer(Coordinator(book).open).replies
    assert not any(one.refused for one in answers.values())


def test_counts_by_other_bins_are_refused(tmp_path):
    table = Question(name="t", model="table", formula="~ age + sex")
    first, other = (
        dataclasses.replace(
            codebook(table, rules=Rules()),
            columns={**COLUMNS, "age": dataclasses.replace(COLUMNS["age"], bins=(end,))},
        )
        for end in (50.0, 51.0)
    )
    told, refused = (
        node(book, "a", rows(100, 5), tmp_path).answer(Coordinator(book).open).replies["t"] for book in (first, other)
    )
    assert not told.refused and refused.refused.startswith("same bins")


def test_asks_for_more_points_than_a_search_tries_are_refused():
    book = codebook(RISK)
    for points, refused in ((MOST_POINTS, False), (MOST_POINTS + 1, True)):
        ask = Round(book, 1, {"risk": Ask("sums", {"theta": np.zeros((points, 5))})})
        if refused:
            with pytest.raises(DataError):
                node(book, "a", PARTS["a"]).answer(ask)
        else:
            assert len(node(book, "a", PARTS["a"]).answer(ask).replies["risk"].numbers) == points * (1 + 5 + 15)


@pytest.mark.parametrize(
    ("model", "formula", "flat", "steep"),
    [
        ("poisson", "visits ~ age", [0.5, 0.1], [-200.0, 300.0]),
        ("poisson", "visits ~ age", [0.5, 0.1], [0.0, 1e5]),
        ("negative-binomial", "visits ~ age", [0.5, 0.1, 0.5], [-1e5, 1e5, 0.5]),
        ("multinomial", "stage ~ age", [0.1, 0.2, 0.2, 0.1], [0.0, 0.0, -1e5, 1e5]),
        ("ordinal", "stage ~ age", [-1.0, 1.0, 0.1], [-1e4, 1e4, 1e5]),
        ("cox", "Surv(days, ill) ~ age", [0.1], [200.0]),
        ("cox", "Surv(days, ill) ~ age", [0.1], [1e4]),
        ("cox", "Surv(days, ill) ~ age + strata(site)", [0.1], [200.0]),
    ],
)
def test_few_rows_weigh_in_no_model(model, formula, flat, steep):
    part = rows(300, 5)
    part["days"] = np.where(part["days"] > 180, 365.0, 100.0)
    wide = {**COLUMNS, "days": dataclasses.replace(COLUMNS["days"], bins=(180.0,))}
    question = Question(name="q", model=model, formula=formula)
    book = dataclasses.replace(codebook(question, rules=Rules()), columns=wide)
    own, first = node(book, "a", part), Coordinator(book).open.asks["q"]
    for theta, refused in ((flat, False), (steep, True)):
        values = np.array(theta) if model == "cox" else np.array([theta])
        found = own.answer(Round(book, 1, {"q": Ask("sums", {**first.numbers, "theta": values})})).replies["q"]
        assert found.refused.startswith("few rows weigh") == refused, found.refused
        assert bool(found.refused) == refused


def test_tables_hide_a_second_group():
    """Stage 3 has 17 rows of one group and 3 of the other: a model of all rows says that there are 20."""
    part = rows(200, 9)
    part["sex"] = np.repeat([0.0, 1.0], 100)
    part["stage"] = np.concatenate([np.repeat([0.0, 1.0, 2.0], [50, 33, 17]), np.repeat([0.0, 1.0, 2.0], [57, 40, 3])])
    part["visits"] = np.concatenate([np.full(100, 3.0) + np.arange(100) % 5, [9.0, 8.0], np.full(98, np.nan)])
    table = Question(name="t", model="table", formula="~ stage + visits | sex")
    told = reply(part, table, rules=Rules()).numbers.reshape(2, -1)
    stages, visits = told[:, 1:4], told[:, 5:8]
    hidden = np.isnan(stages)
    assert hidden.sum(axis=0).tolist() == [0, 2, 2] and hidden[:, 2].all() and np.isnan(visits).all()
    part["visits"][100:] = part["visits"][:100]
    told = reply(part, table, rules=Rules()).numbers.reshape(2, -1)
    np.testing.assert_array_equal(told[:, 5], [100, 100])
