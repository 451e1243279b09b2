"""Tiny runs of everything that has compiled kernels, with the bounds of every array access checked.

``python -m tests.golden.runs.bounds [--only NAME …] [--list]``. Compiled code reads beyond an array without a word, so
that results may be right until a process crashes; with ``NUMBA_BOUNDSCHECK=1`` Numba raises IndexError. Programs with
these checks are kept in a folder of their own, ``build/kernels-in-bounds``, since Numba's cache does not tell them from
others. Kernels in which addresses are computed by hand (:mod:`fedrank.ranking.sessions.tiles`) have no such checks;
contract tests compare them with the reference, at all widths.
"""

from __future__ import annotations

import argparse
import itertools
import tempfile
from pathlib import Path

from .cases import CASES, LETOR, Case
from .record import REPOSITORY, environment, run_cases

_DEVICES = (
    "--data @/letor --clicks informational --rounds 2 --seeds 2 --evaluation.every 2 --evaluation.empty-baselines "
    "--compute.kernels on --quiet --out @"
)
_MECHANISMS = {
    "response": "--privacy.p 0.9",
    "plain": "--privacy.p 1",
    "laplace": "--privacy laplace --privacy.epsilon-interaction 1",
    "gaussian": "--privacy gaussian --privacy.epsilon-interaction 1",
    "piecewise": "--privacy.epsilon-user 1 --population 5000 --presentation antithetic",
    "interleaved": "--privacy.epsilon-user 1 --population 5000",
    "interleaved-plain": "--privacy.p 1 --presentation interleaved",
    "one-sided": "--presentation one-sided --privacy.p 0.9",
}
#: Interactions of a message and devices of a round, from the smallest on; the interactions are even.
_SIZES = ((2, 1), (6, 7), (256, 65))
_RANKERS = {"linear": "", "mlp": "--ranker mlp --hidden 3"}
_FPDGD = {
    "plain": "",
    "clipped": "--privacy.clip 1",
    "secure": "--privacy secure-sum --privacy.clip 1",
    "shares": "--privacy.epsilon-user 8 --population 400",
    "server": "--privacy.epsilon-user 8 --population 400 --privacy server-noise",
    "laplace": "--privacy.epsilon 4 --privacy.clip 2",
}
_KIN = ("fedprox-pdgd", "fedopt-pdgd", "async-pdgd", "fedper-pdgd", "pdgd", "dbgd", "mgd")
#: Recorded cases whose kernels are called from programs of JAX: sessions, and all that is done with sketches.
_OTHERS = (
    *("es-natural", "es-cma", "es-published", "coltr", "coltr-federated", "mdprank", "rankguard"),
    *("pdgd-federated-published", "sketch-published", "sketch-questions", "attack-sketch"),
)


def _case(name: str, protocol: str, flags: str) -> Case:
    return Case(f"bounds-{name}", (f"run {protocol} {flags} {_DEVICES}",), files=LETOR)


def bounds_cases() -> list[Case]:
    """All protocols of devices, mechanisms, ways of showing lists, rankers and sizes; and texts, which have kernels."""
    cases = []
    for (mechanism, flags), (ranker, which), (searches, devices) in itertools.product(
        _MECHANISMS.items(), _RANKERS.items(), _SIZES
    ):
        sizes = f"--interactions {searches} --clients {devices}"
        cases.append(_case(f"es-{mechanism}-{ranker}-{searches}", "foltr-es", f"{flags} {which} {sizes}"))
    for (mechanism, flags), (ranker, which) in itertools.product(_FPDGD.items(), _RANKERS.items()):
        sizes = "--interactions 3 --clients 12"
        cases.append(_case(f"pdgd-{mechanism}-{ranker}", "foltr-pdgd", f"{flags} {which} {sizes}"))
    cases += [_case(f"{name}-{ranker}", name, which) for name in _KIN for ranker, which in _RANKERS.items()]
    return cases + [case for case in CASES if case.name in _OTHERS]


def checked(folder: Path) -> dict[str, str]:
    """The environment in which kernels check their bounds; their programs are kept in ``folder``.

    With one thread: an IndexError in another thread than the first is lost.
    """
    return {"NUMBA_BOUNDSCHECK": "1", "NUMBA_NUM_THREADS": "1", "NUMBA_OPT": "1", "NUMBA_CACHE_DIR": str(folder)}


def main() -> None:
    """Run what the command line asks for; the exit status is 1 if a run failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="these cases")
    parser.add_argument("--list", action="store_true", help="print their names")
    chosen = parser.parse_args()
    cases = [case for case in bounds_cases() if not chosen.only or case.name in chosen.only]
    if chosen.list:
        print(*(case.name for case in cases), sep="\n")
        return
    kept = REPOSITORY / "build" / "kernels-in-bounds"
    kept.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="bounds-") as folder:
        failed = run_cases(cases, Path(folder), environment(REPOSITORY, None, False) | checked(kept), pages=False)
    print(f"{len(cases) - len(failed)} passed, {len(failed)} failed")
    raise SystemExit(bool(failed))


if __name__ == "__main__":
    main()
