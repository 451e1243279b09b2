"""A generated table of silos in which it is known who helps whom, for machines without data and for tests.

It says nothing about real hospitals. A concept is the probability of label 1 as a function of a row: a linear part, a
part that changes its sign between two kinds of rows, and a product of two features. Silos are named ``hospital-A``,
``hospital-B`` and so on; a note of the table says which is which. Their roles, the first four in this order:

* ``target``: a concept of the first five features; 20 % of its rows are of the second kind (told by the sixth feature);
* ``complementary``: the same concept, and 55 % of the second kind, of which the target sees little;
* ``neutral``: three quarters of the target's concept, which helps, and two thirds of another one in the columns that
  are noise to the target, which distracts about as much;
* ``harmful``: the opposite of the target's concept;
* ``foreign``: in larger federations, groups of silos that share a concept that has nothing to do with the target's.

Forty rows are few for it: a small network has much to gain from a silo of the same concept.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable

import numpy as np
from jaxtyping import Float

from fedrank.core.errors import ConfigError
from fedrank.silos.data.tables import Silo, SiloTable

#: Silos whose roles a note names.
_SAID = 8
#: Roles of silos.
ROLES = ("target", "complementary", "neutral", "harmful", "foreign")

# The target's concept uses the first five columns, the sixth tells the kind, the others are noise to it.
_USED, _KIND, _LEAST = 5, 5, 8
# Of the parts of a concept, where the linear part is 1.
_BY_KIND, _PRODUCT = 0.3, 0.4
# Share of rows of the second kind, and how far the two kinds' sixth features blur.
_RARE, _COVERED, _EVEN, _BLUR = 0.2, 0.55, 0.5, 0.3
# A neutral silo's part of the target's concept; the rest, in squares, is its own.
_SHARED = 0.72
# Larger federations: one complementary and one harmful silo in eight, at most five of each; of the others two in
# three are foreign, in groups of about ten.
_ONE_IN, _MOST, _FOREIGN, _GROUP = 8, 5, 2 / 3, 10

_Concept = Callable[[np.ndarray, np.ndarray], np.ndarray]


def generate_silos(
    silos: int = 4, rows: int = 400, features: int = 10, seed: int = 0, strength: float = 2.0
) -> SiloTable:
    """Generated silos ``hospital-A`` (target), ``-B`` (complementary), ``-C`` (neutral), ``-D`` (harmful); see module.

    With 40 training rows each and rounds of Federated Averaging of a 32-16-8 network between the target and one other,
    the target's test AUC of .75 alone changed, over 20 seeds, by about +.04 (s.e. .01) with the complementary silo,
    not measurably with the neutral one, and by −.26 (.02) with the harmful one.

    Args:
        silos: Number of silos, at least 2; fewer than 4 are the first ones. Of more there are several of a kind,
            numbered: about one in eight is complementary, at most 5, and as many are harmful; of the others two in
            three are foreign, in groups of about 10, and one is neutral.
        rows: Rows a silo, at least 2.
        features: At least 8.
        seed: Seed (of NumPy's PCG64), at least 0. What is in a silo depends on the seed, its role with its number, and
            the numbers of rows and features.
        strength: Standard deviation of a row's logit, about; above 0. The higher, the less noise in the labels.

    Returns:
        A table with ``generated=True``. About half of the labels of a silo are 1.

    Raises:
        ConfigError: A number is out of range.
    """
    limits = (("silos", silos, 2), ("rows", rows, 2), ("features", features, _LEAST), ("seed", seed, 0))
    for what, value, least in limits:
        if value < least:
            raise ConfigError(f"{what} of generated silos must be at least {least}, got {value}.")
    if not 0 < strength < np.inf:
        raise ConfigError(f"strength of generated silos must be a finite number above 0, got {strength}.")
    roles = _roles(silos)
    made = tuple(_silo(number, role, rows, features, seed, strength) for number, role in enumerate(roles))
    who = ", ".join(f"{one.name} {role}" for one, role in zip(made[:_SAID], roles, strict=False))
    who += f" and {silos - _SAID} more" if silos > _SAID else ""
    return SiloTable(
        "generated",
        made,
        tuple(f"x{column}" for column in range(features)),
        "generated",
        generated=True,
        notes=("Generated data: numbers measured on it say nothing about real silos.", f"Made as: {who}."),
    )


def _name(number: int) -> str:
    """Name of a silo: hospital-A to hospital-Z, then hospital-AA and so on."""
    letters = ""
    number += 1
    while number:
        number, letter = divmod(number - 1, 26)
        letters = chr(ord("A") + letter) + letters
    return f"hospital-{letters}"


def _roles(silos: int) -> list[str]:
    """Roles of a number of silos, numbered where several silos have one."""
    first = list(ROLES[:4])[:silos]
    some = min(_MOST, max(1, (silos - 1) // _ONE_IN))
    names = [*first, *(f"{role}-{k}" for k in range(2, some + 1) for role in ("complementary", "harmful"))]
    left = max(0, silos - len(names))
    foreign = round(left * _FOREIGN)
    groups = max(1, round(foreign / _GROUP))
    names += [f"neutral-{k}" for k in range(2, left - foreign + 2)]
    return [*names, *(f"foreign-{k % groups + 1}-{k // groups + 1}" for k in range(foreign))]


def _silo(number: int, numbered: str, rows: int, features: int, seed: int, strength: float) -> Silo:
    """The silo of that number, whose role with its number is given."""
    rng = _rng(seed, f"rows of {numbered}")
    role = numbered.split("-")[0]
    x = rng.standard_normal((rows, features))
    second = {"target": _RARE, "complementary": _COVERED}.get(role, _EVEN)
    kind = np.where(rng.random(rows) < second, 1.0, -1.0)
    x[:, _KIND] = kind + _BLUR * x[:, _KIND]
    concept = _concept(_rng(seed, "target"), 0, _USED)
    if role == "neutral":
        own = _concept(_rng(seed, f"concept of {numbered}"), _KIND + 1, features)
        logit = _SHARED * concept(x, kind) + (1 - _SHARED**2) ** 0.5 * own(x, kind)
    elif role == "foreign":
        group = numbered.rsplit("-", 1)[0]
        logit = _concept(_rng(seed, f"concept of {group}"), 0, _USED)(x, kind)
    else:
        logit = (-1 if role == "harmful" else 1) * concept(x, kind)
    labels = rng.random(rows) < 1 / (1 + np.exp(-strength * logit))
    return Silo(_name(number), x.astype(np.float32), labels.astype(np.int8), drawn_as=numbered)


def _concept(rng: np.random.Generator, first: int, last: int) -> _Concept:
    """A random concept of the columns ``first`` .. ``last`` − 1; its values have a variance of about 1."""
    always, by_kind = rng.standard_normal((2, last - first))
    always /= np.linalg.norm(always)
    by_kind -= (by_kind @ always) * always
    by_kind /= np.linalg.norm(by_kind)
    size = (1 + _BY_KIND**2 + _PRODUCT**2) ** 0.5

    def value(x: Float[np.ndarray, "rows features"], kind: Float[np.ndarray, " rows"]) -> Float[np.ndarray, " rows"]:
        used = x[:, first:last]
        return (used @ always + _BY_KIND * kind * (used @ by_kind) + _PRODUCT * used[:, 0] * used[:, 1]) / size

    return value


def _rng(seed: int, what: str) -> np.random.Generator:
    """A random generator that is used for one purpose only."""
    return np.random.Generator(np.random.PCG64([seed, zlib.crc32(what.encode())]))
