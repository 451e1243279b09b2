"""The leaderboard: every method takes part, what means nothing says why, and what others submit is checked."""

import base64
import csv
import dataclasses
import hashlib
import io
import json
import math
import re
import shutil

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from fedrank.core.errors import ConfigError, DataError, FedrankError, UnknownNameError
from fedrank.engine.executors import Here
from fedrank.engine.methods import method, method_names
from fedrank.engine.run import run_experiment
from fedrank.engine.run_folder import RunFolder
from fedrank.engine.settings import as_dict, from_dict, with_setting
from fedrank_zoo.leaderboard import grid as grids
from fedrank_zoo.leaderboard.board import read_grid, run_board, standings_of
from fedrank_zoo.leaderboard.cell import compute
from fedrank_zoo.leaderboard.cells import Cell
from fedrank_zoo.leaderboard.grid import (
    ATTACKS,
    EPSILONS,
    HETEROGENEITY,
    MEASURE,
    Block,
    Entrant,
    Grid,
    Part,
    Terms,
    configuration,
    default_grid,
    entrants,
    parts_here,
)
from fedrank_zoo.leaderboard.page import document_of
from fedrank_zoo.leaderboard.standings import Row, Standings, contrasts, rank_methods, results_frame
from fedrank_zoo.leaderboard.submitted import COLUMNS, check_evidence, read_lines, rows_of, sign, submit, submitted_rows

GENERATED = Part("generated")
TINY = Terms(clients=10, interactions=4, rounds=4, upload=400, seeds=3)


def tiny_grid(*names, clicks=("perfect",)):
    return default_grid(TINY, [GENERATED], [Entrant(name, name) for name in names], clicks=clicks)


# ------------------------------------------------------------------------------------------------------------ grid


def test_every_method_that_ranks_takes_part():
    ranking = {name for name in method_names() if method(name).task == "ranking"}
    assert {entrant.protocol for entrant in entrants(full=True)} == ranking
    assert {entrant.protocol for entrant in entrants()} == ranking - set(grids.NAMED_ONLY)
    assert [entrant.protocol for entrant in entrants(["coltr"])] == ["coltr"]
    with pytest.raises(UnknownNameError):
        entrants(["bandit-fedavg"])  # another wing's


def test_a_method_of_another_package_takes_part_without_an_edit(monkeypatch):
    mine = dataclasses.replace(method("foltr-es"), name="my-idea")
    monkeypatch.setattr(grids, "method_names", lambda: ["my-idea"])
    monkeypatch.setattr(grids, "method", lambda name: mine)
    assert "my-idea" in [entrant.name for entrant in entrants(["my-idea"])]


@pytest.mark.slow
def test_a_combination_is_a_run_or_says_why_not():
    """All methods, all circumstances of the full grid, one kind of users."""
    number = {"run": 0, "why": 0}
    for entrant in entrants(sorted(name for name in method_names() if method(name).task == "ranking")):
        for kind in HETEROGENEITY:
            for epsilon in EPSILONS:
                for attack in ATTACKS:
                    block = Block("generated", "perfect", kind, epsilon, attack)
                    found = configuration(entrant, block, GENERATED, TINY)
                    number["why" if isinstance(found, str) else "run"] += 1
                    assert not isinstance(found, str) or len(found) > 10
    assert min(number.values()) > 50


def test_the_budget_is_the_same_for_all():
    for entrant in entrants():
        config = configuration(entrant, Block("generated", "perfect"), GENERATED, TINY)
        assert config.rounds * config.clients * config.interactions == TINY.budget
        assert (config.seed, config.seeds) == (TINY.seed, TINY.seeds)
        assert getattr(getattr(config, "privacy", None), "p", None) in (None, 1.0)  # without a promise, no lies


def test_what_is_promised_is_said_whatever_the_defaults_are(monkeypatch):
    asked = []
    monkeypatch.setattr(grids, "from_dict", lambda settings: asked.append(settings) or from_dict(settings))
    said = {True: 0, False: 0}
    for entrant in entrants():
        for epsilon in EPSILONS:
            config = configuration(entrant, Block("generated", "perfect", epsilon=epsilon), GENERATED, TINY)
            if isinstance(config, str) or not (privacy := as_dict(config).get("privacy")):
                continue
            given = asked[-1]["privacy"]
            for name in ("p", "epsilon_user"):
                assert (name in privacy) == (name in given) and given.get(name) == privacy.get(name)
            assert given.get("name", privacy["name"]) == privacy["name"] and (
                "name" in given or "epsilon_user" in given
            )
            said["p" in given] += 1
    assert min(said.values()) > 3


def test_a_question_that_is_not_asked_has_no_circumstances():
    for questions, count in (((), 2), (("privacy",), 5), (("attacks",), 3), (("heterogeneity", "attacks"), 7)):
        blocks = default_grid(
            TINY, [GENERATED], [Entrant("x", "pdgd")], clicks=("perfect", "navigational"), questions=questions
        ).blocks
        assert len(blocks) == len(set(blocks)) == count
        for name, field, plain in (
            ("privacy", "epsilon", None),
            ("attacks", "attack", "none"),
            ("heterogeneity", "heterogeneity", "iid"),
        ):
            assert any(getattr(block, field) != plain for block in blocks) == (name in questions)
    with pytest.raises(UnknownNameError, match="privacy"):
        default_grid(TINY, [GENERATED], entrants(["pdgd"]), questions=("privacy", "attack"))


def test_a_promise_is_that_of_a_user_in_all_of_training():
    for epsilon in (1.0, 8.0):
        config = configuration(
            Entrant("x", "foltr-es"), Block("generated", "perfect", epsilon=epsilon), GENERATED, TINY
        )
        assert config.method.privacy.epsilon_user == epsilon and config.population == TINY.clients * TINY.rounds
        kept = configuration(
            Entrant("x", "foltr-es"), Block("generated", "perfect", "topics", epsilon), GENERATED, TINY
        )
        assert kept.in_all_rounds and kept.bounds.times == TINY.rounds  # the same devices in every round
    assert "no ε" in configuration(Entrant("x", "dbgd"), Block("generated", "perfect", epsilon=1.0), GENERATED, TINY)


def test_a_part_of_the_terms():
    part = Terms(seeds=5).part(0.1)
    assert (part.rounds, part.upload, part.seeds) == (5, 40_000, 2)
    for wrong in (0, -1, 1.5, float("nan")):
        with pytest.raises(ConfigError):
            Terms().part(wrong)
    for name in ("clients", "interactions", "rounds", "upload", "seeds"):
        with pytest.raises(ConfigError, match=name):
            Terms(**{name: 0})


def test_unknown_users_and_empty_grids_are_refused():
    with pytest.raises(UnknownNameError, match="perfect"):
        tiny_grid("pdgd", clicks=("prefect",))
    with pytest.raises(ConfigError):
        default_grid(TINY, [], entrants())
    with pytest.raises(ConfigError):
        default_grid(TINY, [GENERATED], [])


def test_the_generated_set_stands_in_where_no_data_is_here(monkeypatch, tmp_path):
    monkeypatch.setenv("FEDRANK_DATA", str(tmp_path))
    assert parts_here() == [Part("generated", fold, grids.DIVISION) for fold in range(1, 6)]


def test_a_way_without_noise_is_the_private_one_without_its_noise():
    for name in ("foltr-es", "foltr-pdgd"):
        private, without = (
            configuration(Entrant("x", name), Block("generated", "perfect", epsilon=one), GENERATED, TINY)
            for one in (1.0, math.inf)
        )
        assert private.population == without.population
        if name == "foltr-es":
            assert without.method.shown == private.method.shown and without.method.privacy.p == 1.0
        else:
            assert without.method.privacy.clip == private.method.privacy.clip
    assert "no ε" in configuration(
        Entrant("x", "dbgd"), Block("generated", "perfect", epsilon=math.inf), GENERATED, TINY
    )


def measured(config, folder):
    return RunFolder(run_experiment(config, folder)).read_metrics()


def test_a_step_size_is_chosen_where_it_is_not_judged(tmp_path):
    """The best of five runs by the validation queries; the values of the board are those of another seed."""
    part = Part("generated", 2, 7)
    cell = Grid(TINY, (part,), (), ()).cell(Entrant("x", "foltr-es"), Block("generated", "perfect"), part)
    assert isinstance(cell, Cell) and cell.about["steps"] == {"server.learning_rate": [1e-4, 3e-4, 1e-3, 3e-3, 1e-2]}
    found = compute(cell.about)
    assert found["chosen_by"] == "vali" and found["tried"][f"{found['step']:g}"] == max(found["tried"].values())
    chosen = with_setting(from_dict(cell.about["settings"]), "server.learning_rate", found["step"])
    tested = measured(chosen, tmp_path / "run").where(split="test", measure=MEASURE, round=TINY.rounds)
    values = {str(seed): value for seed, value in tested.means("seed").items()}
    assert found["budgets"]["interactions"]["values"][MEASURE] == values and len(values) == TINY.seeds
    alone = from_dict({**cell.about["settings"], "seed": TINY.seed + grids.CHOOSING, "seeds": 1})
    tried = measured(with_setting(alone, "server.learning_rate", 1e-3), tmp_path / "alone")
    by = tried.where(split="vali", measure=MEASURE, round=TINY.rounds)
    assert found["tried"]["0.001"] == pytest.approx(float(by["value"][0]))


# -------------------------------------------------------------------------------------------------------- standings


def made(grid, rows):
    return Standings(grid, tuple(rows), 0, {}, (), 0.0)


def row(name, values, queries, block=None, budget="interactions"):
    block = block or Block("generated", "perfect")
    by_seed = {"nDCG(dcg='exp-log2')@10": dict(enumerate(values, 100))}
    return Row(name, "fedrank", block, budget, ("fold 1",), by_seed, {f"q{i}": v for i, v in enumerate(queries)})


def test_tests_are_corrected_for_those_of_the_same_question():
    """Holm by hand: the k-th smallest of n values times n − k + 1, never falling."""
    rng = np.random.default_rng(0)
    base = rng.uniform(0, 1, 40)
    rows = [row("a", [0.6, 0.61, 0.6], base)]
    for i, shift in enumerate((0, 0.01, 0.2)):
        rows.append(row(f"b{i}", [0.5, 0.52, 0.51], base - shift + rng.normal(0, 0.05, 40)))
    private = [
        row("a", [0.55, 0.56, 0.55], base - 0.03, Block("generated", "perfect", epsilon=e))
        for e in (math.inf, 8.0, 4.0, 1.0)
    ]
    found = contrasts(made(tiny_grid("pdgd"), rows + private))
    by_question = {q: [t for t in found if t.question == q] for q in ("methods", "privacy", "attacks")}
    assert [len(by_question[q]) for q in by_question] == [3, 3, 0]
    for members in by_question.values():
        raw = sorted(t.queries.p_randomisation for t in members)
        running, expected = 0.0, {}
        for k, p in enumerate(raw):
            running = max(running, min(1.0, p * (len(raw) - k)))
            expected[p] = running
        for test in members:
            assert test.corrected == pytest.approx(expected[test.queries.p_randomisation])
    assert {t.name: t.survives for t in by_question["methods"]}["b2"] and by_question["privacy"][
        0
    ].reference == "without"


def test_the_best_comes_first_and_users_are_averaged():
    users = [Block("generated", name) for name in ("perfect", "informational")]
    rows = [row("low", [0.2, 0.3], [0.2], users[0]), row("low", [0.4, 0.5], [0.4], users[1])]
    rows += [row("high", [0.6, 0.6], [0.6], block) for block in users]
    rows += [row("one user only", [0.9, 0.9], [0.9], users[0])]
    order = rank_methods(
        made(tiny_grid("pdgd", clicks=("perfect", "informational")), rows), "generated", "interactions"
    )
    assert [one.method for one in order] == ["high", "low"]
    assert order[1].by_seed["nDCG(dcg='exp-log2')@10"] == pytest.approx({100: 0.3, 101: 0.4}) and order[1].queries[
        "q0"
    ] == pytest.approx(0.3)


# ------------------------------------------------------------------------------------------------------- end to end


@pytest.fixture(scope="module")
def board(tmp_path_factory):
    folder = tmp_path_factory.mktemp("board")
    grid = tiny_grid("foltr-es", "pdgd")
    return folder, grid, run_board(grid, folder, Here())


@pytest.mark.minutes
def test_a_board_has_a_row_for_everything(board):
    import polars as pl

    folder, grid, standings = board
    frame = pl.DataFrame(results_frame(standings).dicts(), infer_schema_length=None)
    methods = 2 + len(grids.SCEPTICS)
    assert standings.missing == 0 and frame.height == methods * len(grid.blocks) * 2
    silent = frame.filter(frame["nDCG(dcg='exp-log2')@10"].is_null())
    assert silent.height and silent["why"].str.len_chars().min() > 0
    central = silent.filter((silent["method"] == "pdgd") & (silent["budget"] == "bytes"))
    assert central["why"].str.contains("nothing is federated").any()
    promised = frame.filter((frame["method"] == "foltr-es") & frame["epsilon"].is_in(["1", "4"]))
    assert (promised["epsilon of the account"] <= promised["epsilon"].cast(float) * (1 + 1e-9)).all()
    within = frame.filter(frame["bytes"].is_not_null() & (frame["budget"] == "bytes"))
    assert (within["bytes"] <= TINY.upload).all() and (frame["interactions"].drop_nulls() <= TINY.budget).all()
    assert read_grid(folder) == grid
    page = document_of(standings, contrasts(standings), {})
    assert "https://" not in page.replace("https://… sha256", "") and page.count("<table") >= 2


@pytest.mark.minutes
def test_a_board_that_is_run_again_computes_nothing(board, monkeypatch):
    folder, grid, standings = board
    monkeypatch.setattr("fedrank_zoo.leaderboard.board.compute", lambda about: pytest.fail("computed again"))
    again = run_board(grid, folder, Here())
    assert results_frame(again).to_csv() == results_frame(standings).to_csv()


@pytest.mark.minutes
def test_a_cell_is_the_run_that_its_settings_name(board, tmp_path):
    """The values of a cell are those that ``fedrank run`` writes for the same settings."""
    _, grid, standings = board
    cell = grid.cell(grid.entrants[0], grid.blocks[0], GENERATED)
    assert isinstance(cell, Cell)
    where = dataclasses.asdict(grid.blocks[0])
    (mine,) = standings.having(method="foltr-es", budget="interactions", **where)
    config = with_setting(from_dict(cell.about["settings"]), "server.learning_rate", mine.steps[0])
    folder = run_experiment(config, tmp_path / "run")
    import polars as pl

    metrics = pl.read_parquet(folder / "metrics.parquet").filter(
        (pl.col("split") == "test")
        & (pl.col("measure") == "nDCG(dcg='exp-log2')@10")
        & (pl.col("round") == TINY.rounds)
    )
    assert mine.by_seed["nDCG(dcg='exp-log2')@10"] == dict(metrics.select("seed", "value").rows())


# ------------------------------------------------------------------------------------------------------- submissions


def lines(**changes):
    """A submission of three seeds, as text; a change is a value for all lines, or a function of the line's number."""
    start = {
        "method": "my-method",
        "submitter": "somebody",
        "data": "generated",
        "division": "fold 1",
        "clicks": "perfect",
        "heterogeneity": "iid",
        "epsilon": "none",
        "attack": "none",
        "budget": "interactions",
        "seed": lambda i: 100 + i,
        "interactions": 160,
        "bytes": 1440,
        "nDCG(dcg='exp-log2')@10": 0.5,
        "evidence": f"https://example.org/run.tar sha256:{'0' * 64}",
    }
    out = io.StringIO()
    writer = csv.writer(out)
    columns = {**start, **changes}
    writer.writerow(columns)
    for i in range(3):
        writer.writerow([value(i) if callable(value) else value for value in columns.values()])
    return out.getvalue()


@pytest.fixture
def file(tmp_path):
    def write(text):
        path = tmp_path / "mine.csv"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return write


def test_a_signed_name_takes_no_rows_of_another_key(file, tmp_path):
    grid, board = tiny_grid("pdgd"), tmp_path / "board"
    path = file(lines())
    public = sign(path, tmp_path / "mine")
    signed = json.loads((tmp_path / "mine.csv.signature").read_text())
    # Ed25519 over the text that the documentation states, by the cryptography package alone
    content = {"kind": "rows of a leaderboard", "sha256": hashlib.sha256(path.read_bytes()).hexdigest()}
    Ed25519PublicKey.from_public_bytes(base64.b64decode(public)[:32]).verify(
        base64.b64decode(signed["signature"]), json.dumps(content, sort_keys=True).encode()
    )
    assert sign(path, tmp_path / "mine") == public  # the key is made once
    (one,) = submit(path, board, grid)
    assert public[:8] in one.source and [r.source for r in submitted_rows(board, grid)] == [one.source]

    path = file(lines(method="another"))
    with pytest.raises(DataError, match="is not what"):
        submit(path, board, grid)  # the signature is of the rows before
    (tmp_path / "mine.csv.signature").unlink()
    with pytest.raises(DataError, match="not signed"):
        submit(path, board, grid)
    sign(path, tmp_path / "thief")
    with pytest.raises(DataError, match=re.escape(public[:8])):
        submit(path, board, grid)
    sign(file(lines(method="another", submitter="SOMEBODY ")), tmp_path / "thief")  # the same name in other letters
    with pytest.raises(DataError, match=re.escape(public[:8])):
        submit(path, board, grid)
    file(lines(method="another"))
    sign(path, tmp_path / "mine")
    submit(path, board, grid)
    assert {r.method for r in submitted_rows(board, grid)} == {"my-method", "another"}
    sign(file(lines(submitter="other")), tmp_path / "thief")
    submit(tmp_path / "mine.csv", board, grid)  # under its name

    kept = next((board / "submitted").glob("*my-method*.csv"))
    kept.write_text(kept.read_text().replace("0.5", "0.9"))
    with pytest.raises(DataError, match="is not what"):
        submitted_rows(board, grid)


def test_a_submission_is_read(file):
    found = read_lines(file("\ufeff" + lines(online=0.4)), tiny_grid("pdgd"))
    (one,) = rows_of(found)
    assert one.by_seed == {
        "nDCG(dcg='exp-log2')@10": {100: 0.5, 101: 0.5, 102: 0.5},
        "online": {100: 0.4, 101: 0.4, 102: 0.4},
    }
    assert one.source == "submitted, not signed, by somebody" and "not checked" in one.evidence


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "lacks the columns"),
        (",".join(COLUMNS) + "\n", "no lines"),
        (lines().replace("nDCG(dcg='exp-log2')@10", "ndcg"), "lacks the columns nDCG(dcg='exp-log2')@10"),
        (lines(onlin=1), "online"),
        (lines(nDCG=1).replace("nDCG,", "nDCG(dcg='exp-log2')@10,", 1), "column"),
        (lines(**{"nDCG(dcg='exp-log2')@10": 1.2}), "csv:2: nDCG(dcg='exp-log2')@10"),
        (lines(**{"nDCG(dcg='exp-log2')@10": "nan"}), "nDCG(dcg='exp-log2')@10"),
        (lines(**{"nDCG(dcg='exp-log2')@10": ""}), "nDCG(dcg='exp-log2')@10"),
        (lines(clicks="prefect"), "Did you mean 'perfect'"),
        (lines(data="mq2007"), "generated"),
        (lines(division="fold 2"), "fold 1"),
        (lines(heterogeneity="label"), "labels"),
        (lines(epsilon="-1"), "epsilon"),
        (lines(epsilon="0"), "above 0"),
        (lines(attack="poison"), "poisoned-clicks"),
        (lines(budget="rounds"), "interactions"),
        (lines(seed=lambda i: i), "used in development"),
        (lines(seed=lambda i: 100 + i / 2), "whole number"),
        (lines(seed=100), "twice"),
        (lines(interactions=161), "budget of interactions"),
        (lines(budget="bytes", bytes=401), "budget of bytes"),
        (lines(budget="bytes", bytes=""), "bytes"),
        (lines(method=""), "method"),
        (lines(method="labels: MSE"), "labels"),
        (lines(method=lambda i: f"m{i}"), "1 seeds"),
        (lines().rsplit("\n", 2)[0] + "\n", "2 seeds"),
        (lines() + "a,b\n", "csv:5: has 2 cells"),
        (lines().encode("utf-16"), "UTF-8"),
        (lines() + 'x,"open\n', "CSV"),
        (lines().replace("somebody", "some\0body"), "zero byte"),
    ],
)
def test_a_wrong_submission_says_what_and_where(text, said, file):
    with pytest.raises(DataError, match=r"mine\.csv") as error:
        read_lines(file(text), tiny_grid("pdgd"))
    assert said in str(error.value)


def test_a_submission_that_is_not_there_or_lacks_a_division_is_refused(tmp_path, file):
    with pytest.raises(DataError, match="cannot be read"):
        read_lines(tmp_path / "none.csv", tiny_grid("pdgd"))
    two = Grid(TINY, (Part("generated", 1, 0), Part("generated", 2, 0)), (), ())
    with pytest.raises(DataError, match="lacks part 2"):
        read_lines(file(lines(division="part 1")), two)


@pytest.fixture(scope="module")
def evidence(tmp_path_factory):
    """A run, and the lines that it is evidence for."""
    grid = tiny_grid("foltr-es")
    cell = grid.cell(grid.entrants[0], grid.blocks[0], GENERATED)
    folder = run_experiment(from_dict(cell.about["settings"]), tmp_path_factory.mktemp("evidence") / "run")
    import polars as pl

    last = pl.read_parquet(folder / "metrics.parquet").filter(
        (pl.col("split") == "test")
        & (pl.col("measure") == "nDCG(dcg='exp-log2')@10")
        & (pl.col("round") == TINY.rounds)
    )
    rows = last.sort("seed").rows(named=True)
    said = {"seed": lambda i: rows[i]["seed"], "nDCG(dcg='exp-log2')@10": lambda i: rows[i]["value"]}
    said |= {"interactions": rows[0]["interactions"], "bytes": rows[0]["bytes_up"], "evidence": "run"}
    return grid, folder, said


@pytest.mark.slow
def test_evidence_is_read_and_its_ranker_scored_again(evidence, tmp_path, file):
    grid, folder, said = evidence
    shutil.copytree(folder, tmp_path / "run")
    path = file(lines(**said))
    check_evidence(read_lines(path, grid), path, grid)
    board = tmp_path / "board"
    (one,) = submit(path, board, grid)
    assert "run and ranker checked" in one.evidence
    assert [r.method for r in standings_of(grid, board).rows if r.source.startswith("submitted")] == ["my-method"]
    for changes, wrong in (
        ({"nDCG(dcg='exp-log2')@10": lambda i: said["nDCG(dcg='exp-log2')@10"](i) + 0.01}, "measures"),
        ({"clicks": "informational"}, "clicks"),
        ({"heterogeneity": "topics"}, "share"),
        ({"attack": "poisoned-clicks"}, "attack.share"),
        ({"epsilon": "4"}, "ε = 4"),
        ({"interactions": 159}, "interactions"),
        ({"bytes": 7}, "bytes"),
        ({"seed": lambda i: 200 + i}, "seeds 100 to 102"),
        ({"evidence": "elsewhere"}, "neither"),
    ):
        path = file(lines(**{**said, **changes}))
        with pytest.raises(DataError, match=r"mine.csv:2: evidence") as error:
            check_evidence(read_lines(path, grid), path, grid)
        assert wrong in str(error.value)


@pytest.mark.slow
def test_a_run_whose_numbers_were_changed_is_found_by_its_ranker(evidence, tmp_path, file):
    import polars as pl

    grid, folder, said = evidence
    shutil.copytree(folder, tmp_path / "run")
    metrics = tmp_path / "run" / "metrics.parquet"
    pl.read_parquet(metrics).with_columns(pl.col("value") + 0.05).write_parquet(metrics)
    path = file(lines(**{**said, "nDCG(dcg='exp-log2')@10": lambda i: said["nDCG(dcg='exp-log2')@10"](i) + 0.05}))
    with pytest.raises(DataError, match="scored again"):
        check_evidence(read_lines(path, grid), path, grid)
    (tmp_path / "run" / "done.json").unlink()
    with pytest.raises(DataError, match="not finished"):
        check_evidence(read_lines(path, grid), path, grid)


def test_a_folder_without_a_board_or_with_a_damaged_one_is_said(tmp_path):
    with pytest.raises(FedrankError, match="holds no leaderboard"):
        read_grid(tmp_path)
    (tmp_path / "board.json").write_text(
        json.dumps({"terms": {"clients": -1}, "parts": [], "entrants": [], "blocks": []})
    )
    with pytest.raises(FedrankError, match="damaged"):
        read_grid(tmp_path)
