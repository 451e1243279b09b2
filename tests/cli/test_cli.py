"""The command as a user types it: what it prints, what it leaves, how it fails."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fedrank.cli import main
from fedrank.cli.main import app, call
from fedrank.core.errors import ConfigError
from fedrank.core.fields import settings_of
from fedrank.engine.methods import method, method_names
from fedrank.engine.settings import read_config

TINY = ["--clients", "6", "--rounds", "4", "--seeds", "2", "--evaluation.every", "2", "--quiet"]

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def letor(tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "tiny.txt"
    rows = [f"{(q + d) % 3} qid:{q} 1:{d / 8} 2:{(q + d) % 3 / 2} 3:0.5" for q in range(8) for d in range(6)]
    path.write_text("\n".join(rows) + "\n")
    return path


@pytest.fixture(scope="module")
def finished(letor, tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "first"
    assert call(["run", "foltr-es", "--data", str(letor), *TINY, "--privacy.p", "0.5", "--out", str(folder)]) == 0
    return folder


@pytest.fixture
def without_page(monkeypatch):
    """A run leaves an empty page: drawing its figures takes longer than the run."""

    def write_page(folder):
        page = Path(folder, "report.html")
        page.touch()
        return page

    monkeypatch.setattr("fedrank.report.page.write_page", write_page)


def test_help_is_quick_and_loads_nothing_heavy():
    code = (
        "import sys, fedrank.cli.main as m\n"
        "status = m.call(['--help'])\n"
        "heavy = {'jax', 'numba', 'sklearn', 'arro3', 'resvg_py', 'optax', 'scipy'} & set(sys.modules)\n"
        "sys.exit(status or bool(heavy) and f'loaded: {heavy}')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    shown = [name for name in app if not name.startswith("-") and app[name].show]
    for command in shown:
        assert re.search(rf"^  {command} +\w.* \w", done.stdout, flags=re.MULTILINE), f"{command} has no sentence"


def test_help_has_every_setting_of_a_protocol_in_two_screens(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    for command, protocol in [*(("run", name) for name in method_names()), ("sweep", "foltr-es")]:
        assert call([command, protocol, "--help"]) == 0
        lines = capsys.readouterr().out.splitlines()
        assert len(lines) <= 100 and max(map(len, lines)) <= 120, protocol
        shown = {line.split()[0]: " ".join(line.split()[1:]) for line in lines if line.startswith("  --")}
        for name, _, one in settings_of(method(protocol).defaults()):
            if name != "protocol":  # the first word of the command line
                words = " ".join(one.metadata["help"].split()[:3])
                assert words in shown[f"--{name.replace('_', '-')}"], protocol
        tables = [line[1:-1] for line in lines if line.startswith("[")]
        assert len(set(tables)) == len(tables) and {"evaluation", "compute"} <= set(tables), protocol


def test_a_run_prints_its_result_and_leaves_a_page(finished, capsys):
    assert (finished / "report.html").stat().st_size < 2_000_000
    assert call(["report", str(finished)]) == 0
    out = capsys.readouterr().out
    assert "expected MaxRR (navigational)" in out and "9 bytes" in out


@pytest.mark.usefixtures("without_page")
def test_json_is_json_and_alone_on_stdout(letor, tmp_path, capsys):
    assert call(["run", "--data", str(letor), *TINY, "--out", str(tmp_path / "r"), "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert "expected MaxRR (navigational)" in json.dumps(result)


@pytest.mark.usefixtures("without_page")
def test_a_file_repeats_a_run_and_flags_win_over_it(finished, tmp_path, capsys):
    out = tmp_path / "again"
    assert call(["run", str(finished / "config.toml"), "--privacy.p", "0.75", "--out", str(out), "--quiet"]) == 0
    text = (out / "config.toml").read_text()
    before = (finished / "config.toml").read_text()
    assert text.replace("p = 0.75", "p = 0.5") == before  # every other setting, the data among them, is the file's
    capsys.readouterr()
    assert call(["compare", str(finished), str(out)]) == 0
    assert "expected MaxRR (navigational)" in capsys.readouterr().out


@pytest.mark.usefixtures("without_page")
def test_a_sweep_from_a_file(letor, tmp_path, capsys):
    file = tmp_path / "sweep.toml"
    file.write_text(
        f'data = "{letor}"\nclients = 6\nrounds = 2\nseeds = 2\n'
        '[vary]\n"privacy.p" = [0.5, 1.0]\npresentation = ["antithetic"]\n'
    )
    out = tmp_path / "sweep"
    assert call(["sweep", str(file), "--out", str(out), "--quiet"]) == 0
    assert {p.name for p in out.iterdir() if p.is_dir()} >= {
        "privacy.p=0.5,presentation=antithetic",
        "privacy.p=1.0,presentation=antithetic",
    }
    assert call(["sweep", str(file), "--out", str(out), "--quiet", "--json"]) == 0


@pytest.mark.usefixtures("without_page")
def test_flags_may_come_before_the_file(letor, tmp_path):
    file = tmp_path / "f.toml"
    file.write_text(f'data = "{letor}"\nclients = 7\nrounds = 2\nseeds = 1\nsigma = 0.5\n')
    out = tmp_path / "run"
    assert call(["run", "--quiet", "--seeds", "2", "--out", str(out), str(file)]) == 0
    text = (out / "config.toml").read_text()
    for line in ("clients = 7", "rounds = 2", "seeds = 2", "sigma = 0.5", f'data = "{letor}"'):
        assert line in text


@pytest.mark.usefixtures("without_page")
def test_a_flag_wins_over_what_the_file_says_in_another_way(letor, tmp_path):
    file = tmp_path / "f.toml"
    file.write_text(f'data = "{letor}"\nclients = 6\nbudget = 96\nseeds = 1\n[privacy]\np = 0.5\n')
    first, second = tmp_path / "first", tmp_path / "second"
    assert (
        call(["run", str(file), "--privacy.epsilon-interaction", "2", "--rounds", "2", "--out", str(first), "-q"]) == 0
    )
    text = (first / "config.toml").read_text()
    assert (
        "rounds = 2" in text
        and "epsilon_interaction = 2.0" in text
        and "budget = " not in text
        and "\np = " not in text
    )
    # 96 interactions of 3 devices with 4 each are 8 rounds; of the file's own 6 devices, 4.
    assert call(["run", str(file), "--clients", "3", "--out", str(second), "-q"]) == 0
    assert read_config(second / "config.toml").rounds == 8


def test_cite_names_the_paper(finished, capsys):
    assert call(["report", "--cite", str(finished)]) == 0
    assert "kharitonov2019foltr" in capsys.readouterr().out


def test_privacy_epsilon_and_back(capsys):
    assert call(["privacy", "epsilon", "--p", "0.9", "--json"]) == 0
    assert abs(json.loads(capsys.readouterr().out)["promises"][0]["epsilon"] - 4.4998) < 1e-3


def test_protocols_are_listed(capsys):
    assert call(["run", "--list", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    devices = ["foltr-es", "foltr-pdgd", "fedopt-pdgd", "fedprox-pdgd", "pdgd", "dbgd", "mgd", "fedper-pdgd"]
    zoo = ["foltr-es-2019", "foltr-nes", "foltr-cma", "foltr-pdgd-2021", "async-pdgd", "rankguard"]
    zoo += ["coltr", "foltr-coltr", "mdprank"]
    zoo += ["apfl", "ditto", "fedbn", "fedfomo", "ifca", "leave-one-out", "vertical-slate-2024"]
    silos = ["bandit-fedavg", "fedavg", "fedavg-finetune", "fedper"]
    silos += ["local-only", "pooled", "silo-sketch", "silo-sketch-2021"]
    assert {row["name"] for row in rows} == {
        *devices,
        *zoo,
        *silos,
        "vertical-slate",
        "slateq",
        "planned-slates",
    }
    files = [ROOT / ("zoo" if row["file"].startswith("fedrank_zoo/") else "") / row["file"] for row in rows]
    assert all(file.exists() for file in files) and all(row["crosses"] for row in rows)


def test_every_protocol_reads_its_flags(tmp_path, monkeypatch):
    told = []
    monkeypatch.setattr("fedrank.engine.run.run_experiment", lambda config, folder, **_: told.append(config))
    monkeypatch.setattr("fedrank.cli.experiment._show", lambda folder, as_json: None)
    for name in method_names():
        flags = ["--rounds", "3", "--compute.chunk", "7", "--evaluation.every", "2", "--out", str(tmp_path / name)]
        assert call(["run", name, *flags]) == 0
        c = told.pop()
        assert (c.protocol, c.rounds, c.compute.chunk, c.evaluation.every) == (name, 3, 7, 2)


def test_mistakes_are_told_in_a_line_with_what_to_do(capsys, tmp_path, monkeypatch):
    for tokens, status, says in [
        (["run", "--clints", "3"], 2, "--clients"),
        (["run", "--clients", "three"], 2, "three"),
        (["rnu"], 2, "run"),
        (["run", "foltr"], 1, "foltr-es"),
        (["run", "--clicks", "navigationl"], 1, "navigational"),
        (["run", "--ranker", "linar"], 1, "linear"),
        (["run", "--data", "mq208"], 1, "mq2008"),
        (["run", "--interactions", "3", "--privacy.p", "0.9"], 1, "even"),
        (["run", "--privacy.p", "1.5"], 1, "p must be"),
        (["run", "absent.toml"], 1, "absent.toml"),
        (["resume", "absent"], 1, "holds no run"),
        (["report", "absent"], 1, "absent"),
        (["sweep", "--vary", "clients"], 1, "--vary"),
        (["sweep"], 1, "--vary"),
        (
            ["sweep", "--search", "optuna", "--vary", "clients=1..2", "--measure", "test: nDCG(dcg='exp-log2')@10"],
            1,
            "test part",
        ),
    ]:
        monkeypatch.chdir(tmp_path)
        assert call(tokens) == status
        captured = capsys.readouterr()
        told = captured.err + captured.out
        assert says in told and "Traceback" not in told
        assert not list(tmp_path.iterdir())


def test_a_folder_in_use_is_not_overwritten(letor, finished, capsys):
    assert call(["run", "--data", str(letor), *TINY, "--out", str(finished)]) == 1
    assert "not empty" in capsys.readouterr().err


def test_ctrl_c_leaves_a_run_that_resumes(letor, tmp_path):
    out = tmp_path / "run"
    flags = ["--data", str(letor), "--clients", "6", "--rounds", "20000", "--seeds", "1", "--evaluation.every", "10"]
    command = [sys.executable, "-c", "from fedrank.cli.main import main; main()", "run", *flags, "--out", str(out)]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, "CI": "1"}
    )
    try:
        for line in process.stderr:
            if line.startswith("round"):
                break
        process.send_signal(signal.SIGINT)
        err = process.stderr.read()
        process.wait(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 130, err
    assert f"fedrank resume {out}" in err
    assert (out / "checkpoint" / "state.npz").exists()
    started = time.time()
    assert call(["report", str(out)]) == 0  # an unfinished run has a page, which says so
    assert (out / "report.html").stat().st_mtime >= started - 5


@pytest.mark.usefixtures("without_page")
def test_a_flag_may_need_what_only_the_file_says(letor, tmp_path):
    """The flags are checked together with the file, not before it."""
    file = tmp_path / "f.toml"
    file.write_text(f'data = "{letor}"\nclients = 5\nseeds = 1\nrounds = 2\nshare = "fixed"\n')
    first, second = tmp_path / "first", tmp_path / "second"
    assert call(["run", str(file), "--queries-per-client", "2", "--out", str(first), "-q"]) == 0
    assert "queries_per_client = 2" in (first / "config.toml").read_text()
    assert call(["run", str(file), "--budget", "60", "--out", str(second), "-q"]) == 0
    assert read_config(second / "config.toml").rounds == 3  # 60 interactions of 5 devices with 4 each


def test_the_sketch_advisor_prefers_few_rows_under_noise(capsys):
    assert call(["privacy", "sketch", "--epsilon", "4", "--json"]) == 0
    best, *rest = json.loads(capsys.readouterr().out)
    assert best["z"] == 1 and all(best["error"] <= other["error"] for other in rest)
    assert best["noise_scale"] == pytest.approx(1 / (0.8 * 4))
    assert call(["privacy", "sketch", "--z", "30", "--w", "200", "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert row["noise_scale"] == 0
    assert call(["privacy", "sketch", "--z", "3"]) == 1
    assert "z and w together" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("tokens", "says"),
    [
        (["bandit-fedavg", "--network.widths", "8", "4", "--rounds", "2"], {"widths": [8, 4]}),
        (["bandit-fedavg", "--silos.drop", "a", "b", "--silos.drop", "c"], {"drop": ["a", "b", "c"]}),
        (["--rounds", "2", "bandit-fedavg"], {"protocol": "bandit-fedavg", "rounds": 2}),
        (["--quiet", "fedavg", "--network.widths", "8"], {"protocol": "fedavg", "widths": [8]}),
        (["--evaluation.baselines", "MSE", "RankingSVM", "--rounds", "2"], {"baselines": ["MSE", "RankingSVM"]}),
    ],
)
def test_lists_take_several_values_and_the_protocol_may_follow_its_flags(tokens, says, tmp_path, monkeypatch):
    told = []
    monkeypatch.setattr("fedrank.engine.run.run_experiment", lambda config, folder, **_: told.append(config))
    monkeypatch.setattr("fedrank.cli.experiment._show", lambda folder, as_json: None)
    assert call(["run", *tokens, "--out", str(tmp_path / "run")]) == 0
    (config,) = told
    found = {name.rpartition(".")[2]: value for name, value, _ in settings_of(config)}
    found["protocol"] = config.protocol
    assert {key: list(v) if isinstance(v := found[key], tuple) else v for key in says} == says


def test_vary_takes_several_settings(tmp_path, monkeypatch):
    told = []
    monkeypatch.setattr("fedrank.engine.sweep.run_sweep", lambda todo, folder, **_: told.extend(todo) or [])
    monkeypatch.setattr("fedrank.cli.experiment.compare_runs", lambda *runs, **_: None)
    for flags in (["--vary", "clients=5,6", "privacy.p=0.5,1"], ["--vary", "clients=5,6", "--vary", "privacy.p=0.5,1"]):
        told.clear()
        assert call(["sweep", *flags, "--out", str(tmp_path)]) == 0
        assert [(v.config.clients, v.config.method.privacy.p) for v in told] == [(5, 0.5), (5, 1.0), (6, 0.5), (6, 1.0)]


def test_warnings_are_a_line_without_a_place_in_the_program(tmp_path, capsys):
    data = tmp_path / "zero.txt"
    data.write_text("".join(f"0 qid:{q} 1:{d / 4}\n" for q in range(2) for d in range(3)))
    assert call(["run", "--data", str(data), *TINY, "--out", str(tmp_path / "run"), "--json"]) == 0
    captured = capsys.readouterr()
    assert "fedrank: warning: " in captured.err and ".py" not in captured.err
    assert any("no relevant document" in caveat for caveat in json.loads(captured.out)["caveats"])


@pytest.mark.parametrize(
    "tokens",
    [
        ["data", "list"],
        ["run", "--list"],
        ["privacy", "sketch"],
        ["privacy", "epsilon", "--p", "1"],
    ],
)
def test_tables_fit_eighty_columns_without_cutting_a_word(tokens, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    assert call(tokens) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines and all(len(line) <= 80 or "http" in line for line in lines)
    assert not any("…" in line for line in lines)


@pytest.mark.usefixtures("without_page")
def test_a_run_can_be_followed_with_a_csv_file(letor, tmp_path, capsys):
    out = tmp_path / "run"
    assert call(["run", "--data", str(letor), *TINY, "--out", str(out), "--track", "csv"]) == 0
    lines = (out / "metrics.csv").read_text().splitlines()
    assert lines[0].startswith("seed,round,") and len(lines) > 20
    assert call(["run", "--data", str(letor), *TINY, "--out", str(tmp_path / "other"), "--track", "cvs"]) == 1
    assert "Did you mean 'csv'" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.usefixtures("without_page")
def test_a_search_shows_its_trials_and_the_test_part_of_the_best_only(tmp_path, capsys):
    out = tmp_path / "search"
    asked = ["sweep", *TINY, "--search", "optuna", "--vary", "server.learning_rate=0.001..0.1:log"]
    asked += ["--measure", "vali: nDCG(dcg='exp-log2')@10", "--out", str(out)]
    assert call([*asked, "--trials", "2", "--json"]) == 0
    first = json.loads(capsys.readouterr().out)
    assert call([*asked, "--trials", "3"]) == 0
    text = capsys.readouterr().out
    assert call([*asked, "--trials", "3", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (
        len(found["trials"]) == 3
        and found["trials"][:2] == first["trials"]
        and found["measure"] == "vali: nDCG(dcg='exp-log2')@10"
    )
    assert found["best"]["value"] == max(trial["value"] for trial in found["trials"])
    assert all(0.001 <= trial["settings"]["server.learning_rate"] <= 0.1 for trial in found["trials"])
    assert f"{found['best']['value']:.4f}" in text and "…" not in text
    assert sum(line.startswith("test ") for line in text.splitlines()) == 1
    assert len((out / "trials.csv").read_text().splitlines()) == 4
    page = (out / "compare.html").read_text(encoding="utf-8")
    winner = found["best"]
    assert f"Of 3 trials the best is trial {winner['number']} with server.learning_rate = " in page
    assert f"{winner['value']:.4f}" in re.search('<dl class="numbers">(.*?)</dl>', page)[1]
    assert ">vali<" in page or ">validation<" in page
    assert "<td>test</td>" not in page and ">test<" not in page and f"page: {out / 'compare.html'}" in text


def test_output_that_is_not_utf_8_takes_every_text():
    """Letters that the encoding has are written as they are, others in words or as escapes; the numbers stay."""
    for encoding in ["ascii", "latin-1", "cp1252", "utf-8"]:
        code = "import sys, fedrank.cli.main as m; m.call = lambda _: print('ε = 1, ± 2, é, 中') or 0; m.main([])"
        env = os.environ | {"PYTHONIOENCODING": encoding, "PYTHONUTF8": "0"}
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, env=env)
        expected = {
            "ascii": "epsilon = 1, +- 2, \\xe9, \\u4e2d",
            "latin-1": "epsilon = 1, ± 2, é, \\u4e2d",
            "cp1252": "epsilon = 1, ± 2, é, \\u4e2d",
            "utf-8": "ε = 1, ± 2, é, 中",
        }
        assert done.returncode == 0 and done.stdout.decode(encoding).strip() == expected[encoding]


def test_a_stopped_command_promises_to_go_on_only_where_it_does(monkeypatch, capsys):
    for command, goes_on in [("run", False), ("sweep", True), ("evaluate", False)]:

        def stopped(*_, **__):
            raise KeyboardInterrupt

        monkeypatch.setattr("fedrank.cli.main.app", stopped)
        monkeypatch.setattr("fedrank.cli.main._offer_settings", lambda tokens: tokens)
        assert call([command]) == 130
        assert ("goes on" in capsys.readouterr().err) == goes_on


def test_a_command_that_two_packages_have_breaks_no_other(monkeypatch):
    def both(group, name):
        raise ConfigError("two packages have it")

    monkeypatch.setattr("fedrank.core.registry.place", both)
    assert main._place_of_plug_in("reproduce") == ""
