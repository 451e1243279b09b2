"""An attack on records finds them in exact sums, not in noisy ones, and less in a network than in a logistic model."""

import json

import numpy as np
import pytest
from scipy import stats

from fedrank.cli.main import call
from fedrank.silos.sceptic.learners import Own
from fedrank_zoo.noisy_statistics.ranges import ranges_of
from fedrank_zoo.noisy_statistics.releases import noise_of
from fedrank_zoo.record_attack import RecordAttack
from fedrank_zoo.record_attack.membership import attack_records, largest_attack

RANGES = ranges_of(("a", "b", "g=u"), {"a": (-3, 3), "b": (0, 10)})


def rows(seed, n):
    rng = np.random.default_rng(seed)
    x = np.column_stack([rng.standard_normal(n) * 2, rng.normal(5, 4, n), rng.integers(0, 2, n)])
    return Own(x, (rng.random(n) < 1 / (1 + np.exp(-x[:, 0]))).astype(float))


def test_an_attack_tells_records_from_exact_sums_and_not_from_noisy_ones():
    modes = ("statistics-exact", "noisy-statistics", "noisy-model", "study")
    found = attack_records(rows(4, 100), RANGES, RecordAttack(epsilon=(1.0,), shadows=24, modes=modes))
    exact, *noisy, study = found
    assert study.mode == "study" and study.low > 0.6 and study.broken
    assert exact.low > 0.6 and exact.broken and exact.most == 1.0
    for one in noisy:
        assert one.low < 0.55 and not one.broken and 0.5 < one.most < 0.6
    # Φ(μ/√2) with μ² = 2ρ: the area under the trade-off curve of two normal distributions.
    rho = noise_of(RANGES, 1.0, 1e-6).rho
    x = np.linspace(-12, 12, 20_001)
    area = np.trapezoid(stats.norm.sf(x - np.sqrt(2 * rho)) * stats.norm.pdf(x), x)
    assert noisy[0].most == pytest.approx(area, abs=1e-6)


@pytest.mark.parametrize(("z", "steps"), [(5.0, 1), (20.0, 30), (60.0, 96)])
def test_without_sampling_the_largest_attack_is_that_of_gaussian_noise(z, steps):
    """Steps of the Gaussian mechanism are one with a distance √T times as large; the other record is 2 C away."""
    attack = stats.norm.cdf(2 / z * steps**0.5 / 2**0.5)
    assert attack - 1e-6 <= largest_attack(z, 1.0, steps) <= attack + 0.01


def test_a_network_keeps_more_of_its_records_than_a_logistic_model():
    pytest.importorskip("jax")
    settings_ = RecordAttack(shadows=16, modes=("model", "network"))
    model, network = attack_records(rows(5, 80), None, settings_)
    assert network.auc > model.auc and network.auc > 0.6


def test_the_command_attacks_one_silo_of_a_table(tmp_path, capsys):
    table = tmp_path / "all.csv"
    rows_of_silos = ((name, rows(seed, 80)) for seed, name in enumerate(("north", "south", "east")))
    lines = [
        f"{name},{a},{b},{int(y)}" for name, own in rows_of_silos for (a, b, _), y in zip(own.x, own.y, strict=True)
    ]
    table.write_text("\n".join(["silo,a,b,ill", *lines]))
    words = "--of east --modes model noisy-statistics --shadows 12 --label ill --positive 1 --range a=-3:3 b=0:10"
    attack = ["privacy", "attack", "records", str(table), *words.split()]
    assert call([*attack, "--json"]) == 0
    findings = json.loads(capsys.readouterr().out)["findings"]
    assert [one["epsilon"] for one in findings] == [None, 1.0, 4.0, 8.0]
    assert call(attack) == 0 and "0.5 is chance" in capsys.readouterr().out
