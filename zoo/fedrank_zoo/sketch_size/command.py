"""``fedrank privacy sketch``."""

from __future__ import annotations

import math

from fedrank.cli.terminal import AsJson, print_json, say, table
from fedrank.core.errors import ConfigError


def sketch(
    *,
    words: int = 150,
    cells: int = 1200,
    z: int | None = None,
    w: int | None = None,
    epsilon: float | None = None,
    as_json: AsJson = False,
) -> None:
    """The size of sketches: expected error of a count.

    Without z and w, ways to divide the cells are listed, best first. With ε, sketches are published once with discrete
    Laplace noise; without it they carry none.

    Args:
        words: Words of a typical document.
        cells: Cells of a sketch, to be divided into z rows of w.
        z: Rows of one sketch; give w as well.
        w: Cells of a row.
        epsilon: ε of one occurrence of a word, in nats; sketches get their share of it.
    """
    from fedrank.texts.sketch.noise import SHARES
    from fedrank_zoo.sketch_size.sizing import (
        Advice,
        advise,
        cell_noise,
        expected_error,
        residual,
        theorem_2,
        zipf_document,
    )

    if (z is None) != (w is None):
        raise ConfigError("Give z and w together, or neither to be told the best for this number of cells.")
    for name, value, low, high in (
        ("words", words, 1, 10**6),
        ("cells", cells, 2, 10**7),
        ("z", 1 if z is None else z, 1, 1000),
        ("w", 2 if w is None else w, 2, 10**7),
    ):
        if not low <= value <= high:
            raise ConfigError(f"{name} must be in {low:,}..{high:,}, got {value:,}.")
    if epsilon is not None and not 0 < epsilon < math.inf:
        raise ConfigError(f"epsilon must be positive and finite, got {epsilon}.")
    counts = zipf_document(words)
    strength = math.inf if epsilon is None else epsilon * SHARES["sketches"]
    if z is not None and w is not None:
        noise = 0.0 if epsilon is None else cell_noise(z, "laplace", strength)
        quiet = expected_error(counts, z, w)
        ways = [Advice(z, w, expected_error(counts, z, w, "laplace", noise) if noise else quiet, quiet, noise)]
    else:
        ways = advise(cells, counts, "laplace", strength)
    rows = []
    for way in ways:
        rows.append(
            {
                "z": way.z,
                "w": way.w,
                "error": way.error,
                "error_without_noise": way.collisions,
                "noise_scale": way.noise,
                "theorem_2": theorem_2(residual(counts, way.w // 8), way.w),
                "bytes": 2 * way.z * way.w,
            }
        )
    if as_json:
        print_json(rows)
        return

    columns = ("rows z", "cells w", "mean error", "no noise", "noise scale", "bytes")
    shown = table(*columns, numbers=columns, title=f"Sketches of a document of {words:,} words")
    for row in rows:
        errors = (f"{row['error']:.3f}", f"{row['error_without_noise']:.3f}")
        scale = f"{row['noise_scale']:.2f}" if row["noise_scale"] else "none"
        shown.add_row(f"{row['z']}", f"{row['w']:,}", *errors, scale, f"{row['bytes']:,}")
    say(
        shown,
        "Error: mean absolute error of the count of a word that the document does not hold. Bytes: of one field of one "
        "document.",
    )
