"""What is said while Numba compiles."""

from fedrank.core.compiled import OnCompilation, njit


def test_a_first_compilation_is_told_once():
    told = []

    def add(a, b):
        return a + b

    first, second = njit(add), njit(add)
    with OnCompilation(lambda: told.append("compiling")):
        assert first(1, 2) == 3 and told == ["compiling"]
        assert second(1.5, 2) == 3.5 and first(1, 2) == 3
    assert told == ["compiling"]
    told.clear()
    with OnCompilation(lambda: told.append("compiling")):
        first(3, 4)  # compiled before
    njit(add)(1, 2)  # after the block
    assert told == []
