"""Compiled programs are let go before a process has as many regions of memory as it may have."""

import jax
import jax.numpy as jnp

from fedrank.core import programs


def regions():
    with open("/proc/self/maps", "rb") as lines:
        return sum(1 for _ in lines)


def test_programs_are_let_go_at_the_limit_and_made_again_when_needed():
    functions = [jax.jit(lambda x, i=i: jnp.cumsum(x * i)) for i in range(12)]
    expected = [function(jnp.arange(4.0)).tolist() for function in functions]
    before = regions()
    assert not programs.release_programs(before + 1000)
    assert programs.release_programs(1)
    assert regions() < before
    assert [function(jnp.arange(4.0)).tolist() for function in functions] == expected


def test_where_nobody_counts_nothing_is_let_go(monkeypatch, tmp_path):
    monkeypatch.setattr(programs, "_REGIONS", tmp_path / "maps")
    assert not programs.release_programs(0)
