"""One round with a million devices: time and peak memory; the chunk bounds what is held at once.

python -m benchmarks.a_million_devices [--clients 1000000] [--ranker mlp]
"""

from __future__ import annotations

import argparse

from benchmarks.interactions import _machine, _peak_mib, _pin, _Simulated


def main() -> None:
    """Parse arguments, run two rounds (the first compiles), print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="generated")
    parser.add_argument("--clients", type=int, default=1_000_000)
    parser.add_argument("--interactions", type=int, default=4)
    parser.add_argument("--ranker", default="mlp", choices=["linear", "mlp"])
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    arguments.seeds, arguments.documents = 1, 0
    _pin(arguments.threads)
    print("  ".join(f"{key} {value}" for key, value in _machine(arguments.threads).items()))
    round_ = _Simulated(arguments, arguments.ranker, "on", 1)
    seconds, _ = round_.turn()
    interactions = arguments.clients * arguments.interactions
    print(
        f"{arguments.clients:,} devices × {arguments.interactions}, {arguments.ranker}: {seconds:.1f} s a round, "
        f"{interactions / seconds:,.0f} interactions/s, peak memory {_peak_mib():,.0f} MiB"
    )


if __name__ == "__main__":
    main()
