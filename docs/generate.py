"""The parts of the reference that are made from the code, so that they cannot disagree with it.

Each function returns Markdown. `write_all` writes the parts below ``docs/generated`` when the documentation is built.
"""

from __future__ import annotations

import dataclasses
import hashlib
import importlib
import inspect
import json
import os
import pkgutil
import re
import types
import typing
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Any

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import numpy as np

import fedrank
from fedrank.core import errors, rng
from fedrank.core.fields import is_bound, is_part
from fedrank.core.messages import Layout
from fedrank.core.registry import Registry
from fedrank.engine.methods import method, method_names
from fedrank.engine.settings import parts_of

HERE = Path(__file__).resolve().parent


def modules() -> list[str]:
    """All public modules of the package, packages left out, in the order of the alphabet."""
    found = pkgutil.walk_packages(fedrank.__path__, "fedrank.")
    return sorted(m.name for m in found if not m.ispkg and not any(p.startswith("_") for p in m.name.split(".")))


def named_modules() -> list[str]:
    """The public modules that a page of the documentation names by a role such as ``{py:class}``."""
    text = "\n".join(page.read_text(encoding="utf-8") for page in HERE.glob("[!_g]*/*.md"))
    named = re.findall(r"\{py:\w+\}`[^`]*?~?(fedrank\.[\w.]+)>?`", text)
    return [name for name in modules() if any(f"{one}.".startswith(f"{name}.") for one in named)]


def _table(head: tuple[str, ...], rows: list[tuple[Any, ...]]) -> str:
    def line(cells: tuple[Any, ...]) -> str:
        return "| " + " | ".join(" ".join(str(c).split()).replace("|", "\\|") for c in cells) + " |"

    return "\n".join([line(head), line(("---",) * len(head)), *map(line, rows)]) + "\n"


# ------------------------------------------------------------------------------------------------- configuration


def settings(config: Any, prefix: str = "") -> Iterator[tuple[str, Any, Any, str]]:
    """Every setting of a configuration or its class: dotted key, type, default, help.

    Tables are gone into. A part is its ``name``, followed by the settings of all parts that fit there; their help says
    with which of them they mean something.
    """
    cls = config if isinstance(config, type) else type(config)
    hints = typing.get_type_hints(cls)
    for field in dataclasses.fields(cls):
        if is_bound(field):
            continue
        value, kind = _default(field) if config is cls else getattr(config, field.name), hints[field.name]
        if field.metadata.get("flat"):
            yield from settings(value, prefix) if dataclasses.is_dataclass(value) else ()
        elif is_part(field):
            yield from _settings_of_parts(field, value, f"{prefix}{field.name}.")
        elif dataclasses.is_dataclass(kind):
            yield from settings(kind if value == "required" else value, f"{prefix}{field.name}.")
        else:
            yield prefix + field.name, kind, value, field.metadata.get("help", "")


def _default(field: dataclasses.Field) -> Any:
    made = field.default_factory
    if field.default is not dataclasses.MISSING:
        return field.default
    return "required" if made is dataclasses.MISSING else made()


def _settings_of_parts(field: dataclasses.Field, value: Any, prefix: str) -> Iterator[tuple[str, Any, Any, str]]:
    known = parts_of(field)
    yield f"{prefix}name", typing.Literal[tuple(known)], value.name, field.metadata["help"]
    having: dict[tuple[str, Any, Any, str], list[str]] = {}
    for name, cls in known.items():
        for row in settings(cls, prefix) if dataclasses.is_dataclass(cls) else ():
            having.setdefault(row, []).append(name)
    for (key, kind, default, text), names in having.items():
        of_all = len(names) == len(known)
        yield key, kind, default, text if of_all else f"{text} With {', '.join(f'`{name}`' for name in names)}."


def _type_name(kind: Any) -> str:
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Annotated:
        return _type_name(args[0])
    if origin is typing.Literal:
        return " or ".join(f"`{a}`" for a in args)
    if origin in (typing.Union, types.UnionType):
        return " or ".join("nothing" if a is type(None) else _type_name(a) for a in args)
    if origin in (tuple, list):
        return f"list of {_type_name(args[0])}"
    if isinstance(kind, type) and issubclass(kind, StrEnum):
        return " or ".join(f"`{a}`" for a in kind)
    names = {int: "integer", float: "number", bool: "true or false", str: "text", Path: "path"}
    return names.get(kind, getattr(kind, "__name__", str(kind)))


def _default_text(value: Any) -> str:
    if value is None or value == "required":
        return value or "none"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, tuple | list):
        return f"`{json.dumps(list(value))}`"
    return f'`"{value}"`' if isinstance(value, str | Path) else f"`{value}`"


def hub() -> str:
    """One table of a hub's settings."""
    from fedrank.deploy.hub.settings import HubSettings

    rows = [
        (f"`{key}`", _type_name(kind), _default_text(default), text)
        for key, kind, default, text in settings(HubSettings)
    ]
    return _table(("key", "takes", "default", "meaning"), rows)


def hub_exclusions() -> str:
    """One table of a hub's settings that exclude one another."""
    from fedrank.deploy.terms import EXCLUSIONS

    rows = [
        (f"`{first.words}`", ", ".join(f"`{other.words}`" for other in others), why[0].upper() + why[1:] + ".")
        for first, others, why in EXCLUSIONS
    ]
    return _table(("setting", "cannot be had with", "because"), rows)


def configuration() -> str:
    """A table of the settings of each kind of run, and one of each protocol's own; equal classes share one."""
    by_class: dict[Any, list[str]] = {}
    of_runs: dict[Any, list[str]] = {}
    for name in method_names():
        one = method(name)
        by_class.setdefault(one.protocol, []).append(name)
        of_runs.setdefault(type(one.defaults()), []).append(name)
    parts = []
    for cls, names in (of_runs | by_class).items():
        of = "Every run of " if cls in of_runs else ""
        title = ", ".join(f"`{name}`" for name in names)
        rows = [
            (f"`{key}`", _type_name(kind), _default_text(default), text)
            for key, kind, default, text in settings(cls)
            if key != "protocol"
        ]
        parts += [f"## {of}{title}\n", _table(("key", "takes", "default", "meaning"), rows)]
    return "\n".join(parts)


# ------------------------------------------------------------------------------------------------------- commands


def _below(group: Any) -> Iterator[Any]:
    """The commands of a group, and those below them."""
    for name in group:
        if not name.startswith("-"):
            yield group[name]
            yield from _below(group[name])


def commands() -> str:
    """The help texts of all commands."""
    from fedrank.cli.main import app, show_whole_texts

    show_whole_texts(_below(app))
    text = app.generate_docs(output_format="markdown", recursive=True, heading_level=2)
    return text if text.endswith("\n") else text + "\n"


# ------------------------------------------------------------------------------------- registries, messages, errors


def registries() -> list[Registry]:
    """Every registry of the package, each once, filled: all modules are imported first."""
    found: dict[int, Registry] = {}
    for module in [importlib.import_module(name) for name in modules()]:
        for value in vars(module).values():
            if isinstance(value, Registry):
                found[id(value)] = value
    return sorted(found.values(), key=lambda r: r.kind)


def data_sets() -> str:
    """The shapes and terms of the data sets; the summaries stand in the table before."""
    from fedrank.data.catalogue import list_data_sets

    rows = []
    for name, e in ((entry.name, entry.obj) for entry in list_data_sets("ranking")):
        rows.append((f"`{name}`", f"{e.queries:,}", f"{e.documents:,}", e.features, e.grades, e.folds, e.terms))
    return _table(("name", "queries", "documents", "features", "grades", "folds", "terms"), rows)


def silo_data_sets() -> str:
    """The shapes, terms and traps of the tables of silos."""
    from fedrank.data.catalogue import list_data_sets

    rows = []
    for name, e in ((entry.name, entry.obj) for entry in list_data_sets("silos")):
        rows.append((f"`{name}`", e.silos, f"{e.rows:,}", e.features, " ".join(e.notes), e.terms))
    return _table(("name", "silos", "rows", "features", "know", "terms"), rows)


def text_data_sets() -> str:
    """The sizes, terms and traps of the text collections."""
    from fedrank.data.catalogue import list_data_sets

    rows = []
    for name, e in ((entry.name, entry.obj) for entry in list_data_sets("texts")):
        numbers = (f"{n:,}" for n in (e.documents, e.queries, e.judged, e.judgements))
        rows.append((f"`{name}`", *numbers, f"0 to {e.grades - 1}", " ".join(e.notes), e.terms))
    return _table(("name", "documents", "queries", "judged", "judged pairs", "grades", "know", "terms"), rows)


def catalogue() -> str:
    """One table a registry: name, sentence, publication; for data sets a second one with their shapes."""
    from fedrank.data.catalogue import CATALOGUE

    parts = []
    shapes = {"Data to rank": data_sets, "Tables of silos": silo_data_sets, "Text collections": text_data_sets}
    for registry in registries():
        rows = [(f"`{e.name}`", e.summary, f"{{cite:t}}`{e.citation}`" if e.citation else "") for e in registry]
        parts += [f"## {registry.kind.capitalize()}s\n", _table(("name", "what it is", "source"), rows)]
        if registry is CATALOGUE:
            parts += [f"### {kind}\n\n{table()}" for kind, table in shapes.items()]
    return "\n".join(parts)


def devices() -> dict[str, Any]:
    """The protocols of devices that rank, under settings that show every form of their messages; 1,000 devices."""
    from fedrank.metrics.online import click_dcg
    from fedrank.ranking.clicks.cascade import cascade
    from fedrank.ranking.foltr_es import FoltrES
    from fedrank.ranking.foltr_es.presentations import OneSided
    from fedrank.ranking.foltr_pdgd import FoltrPDGD
    from fedrank.ranking.mechanisms import Bounds
    from fedrank.ranking.mechanisms.noisy_sums import LaplaceSums
    from fedrank.ranking.mechanisms.randomised_response import RandomisedResponse
    from fedrank.ranking.mechanisms.secure_sum import LaplaceShares
    from fedrank.ranking.rankers.linear import Linear
    from fedrank_zoo.foltr_cma import FoltrCMA
    from fedrank_zoo.foltr_nes import FoltrNES
    from fedrank_zoo.rankguard import RankGuard

    common = {"ranker": Linear(46), "user": cascade("navigational"), "bounds": Bounds(clients=1000)}
    paper = FoltrES(privacy=RandomisedResponse(), **common)
    weights = FoltrPDGD(**common)
    summed = dataclasses.replace(weights, privacy=LaplaceShares(epsilon=4.5, clip=5.0))
    return {
        "FOLtR-ES, the paper's settings: linear ranker of 46 features, MaxRR, B = 4": paper,
        "FOLtR-ES with the discounted count of clicks as the metric": dataclasses.replace(paper, metric=click_dcg()),
        "FOLtR-ES without antithetic halves": dataclasses.replace(paper, presentation=OneSided()),
        "FOLtR-ES with noise on the sums": dataclasses.replace(paper, privacy=LaplaceSums(epsilon_interaction=4.5)),
        "FOLtR-ES with natural evolution strategies, or CMA-ES with a spread a weight": FoltrNES(**common),
        "FOLtR-ES with CMA-ES and a whole covariance": FoltrCMA(**common, covariance="full"),
        "FPDGD, weights that the server sees": weights,
        "RankGuard, rankers of 4 peers": RankGuard(**common, kernels=False),
        "FPDGD with a secure sum, 1,000 devices, each masking with 20": summed,
    }


def layouts() -> dict[str, list[Layout]]:
    """The layouts of the messages of each protocol, under settings that show every form of them."""
    of_devices = {title: (p, 1000) for title, p in (devices() | silos() | texts()).items()}
    of_platforms = platforms()
    return {
        # Two exchanges may have a message in common; it is shown once.
        title: list(
            dict.fromkeys(
                m for e in p.exchanges for m in (e.request, e.reply, *(c[2] for c in e.extra_messages(parties)))
            )
        )
        for title, (p, parties) in (of_devices | of_platforms).items()
    }


def silos() -> dict[str, Any]:
    """The protocols of silos, likewise: four silos, 40 rows of 10 features each, the network of the defaults."""
    from fedrank.silos.averaging import FedAvg
    from fedrank.silos.bandit_fedavg import Bandit, BanditFedAvg
    from fedrank.silos.config import Network
    from fedrank.silos.local_sgd import LocalSgd
    from fedrank.silos.network import TabularNetwork

    common = {"sgd": LocalSgd(TabularNetwork(10)), "silos": 4, "most_rows": 40}
    ucb = Bandit(rule="ucb")
    return {
        "MAB-FL, one set a round; 10 features, 64-32-16 units, batch norm: 3,794 numbers a model": BanditFedAvg(
            **common, bandit=ucb
        ),
        "MAB-FL, Extreme Explore on pairs, with a probe": BanditFedAvg(**common, bandit=Bandit(probe=True)),
        "MAB-FL, Extreme Explore with rewards a round late": BanditFedAvg(**common, bandit=Bandit(delayed=True)),
        "MAB-FL, normalisations stay at the silos": BanditFedAvg(
            **common, bandit=ucb, network=Network(crossing="local")
        ),
        "FedAvg, fine-tuned FedAvg": FedAvg(**common),
    }


def texts() -> dict[str, Any]:
    """The protocol of silos with texts: 4 silos, at most 350 documents each, grades 0 to 4."""
    from fedrank.texts.config import Sketch, TextsRun
    from fedrank.texts.silo_sketch import Parts, SiloSketch

    def made(mode: Any) -> Any:
        parts = Parts(TextsRun(), silos=4, grades=5, documents=350, words=400)
        return SiloSketch(sketch=Sketch(mode=mode)).resolved().bind(parts)

    published = made("publish-once")
    return {
        "CS-F-LTR, setup: 350 documents a silo, z = 1, w = 4,096": published.setup,
        "CS-F-LTR, training: 16 features, five grades": published,
    }


def platforms() -> dict[str, tuple[Any, int]]:
    """The protocols of platforms that share users, each with their number: 10 candidates, 32 transitions a batch."""
    from fedrank.slates.build import experiment_of
    from fedrank.slates.config import SlatesRun
    from fedrank.slates.fedslate import FedSlate

    def made(method: Any) -> Any:
        return experiment_of(SlatesRun.of(method).resolved()).protocol

    return {"FedSlate, two platforms; N = 10 candidates, B = 32 transitions": (made(FedSlate()), 2)}


#: Messages up to so many bytes are shown with an example.
SHORT = 64


def messages() -> str:
    """One table of bytes a message, what it is for, and an example of a short one."""
    parts = []
    for title, messages in layouts().items():
        parts.append(f"## {title}\n")
        for layout in messages:
            parts.append(f"`{layout.name}`, message kind {layout.kind}: {layout.nbytes} bytes.\n")
            parts.append(_markdown(inspect.getdoc(layout.message) or "") + "\n")
            rows, at = [("0", "`header`", "`u1`", layout.describe()[0]["meaning"])], 1
            for field in layout.fields:
                span = f"{at}" if field.nbytes == 1 else f"{at}–{at + field.nbytes - 1}"
                shape = " × ".join(f"{length:,} {axis}" for axis, length in field.axes)
                kind = f"`{field.dtype}`" + (f", {shape}" if shape else "")
                rows.append((span, f"`{field.name}`", kind, field.meaning))
                at += field.nbytes
            parts.append(_table(("bytes", "field", "type", "meaning"), rows))
            if layout.nbytes <= SHORT:
                parts.append(_example(layout))
    return "\n".join(parts)


def _markdown(docstring: str) -> str:
    """A docstring's text, with its references to code as Markdown has them."""
    return " ".join(re.sub(r":\w+:`~?\.?([^`]+)`", r"`\1`", docstring).split())


def _example(layout: Layout) -> str:
    """A message of arbitrary numbers beside its bytes: a test vector."""
    example, data = layout.example()
    values = ", ".join(f"{f.name} = {np.asarray(getattr(example, f.name)).tolist()}" for f in layout.fields)
    return f"Example: `{data.hex(' ')}`" + (f" is {values}.\n" if values else ".\n")


def exceptions() -> str:
    """The exception tree as it stands at the top of its module, then each class's first sentence."""
    tree = inspect.getdoc(errors) or ""
    drawing = "\n".join(line for line in tree.splitlines() if line.startswith("    "))
    classes = [c for c in vars(errors).values() if inspect.isclass(c) and issubclass(c, errors.FedrankError)]
    rows = [(f"`{c.__name__}`", (inspect.getdoc(c) or "").partition("\n\n")[0]) for c in classes]
    return f"```text\n{inspect.cleandoc(drawing)}\n```\n\n" + _table(("exception", "when"), rows)


# ---------------------------------------------------------------------------------------------------- test vectors

#: Seeds whose vectors are printed: the ends of the range, small numbers, and one with a bit in every byte.
SEEDS = (0, 1, 7, 0x01020304, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF)


def vectors() -> str:
    """The first eight 16-bit numbers of the perturbation of some seeds, and the float32 values they stand for."""
    halves, values = [], []
    for seed in SEEDS:
        shown = f"`0x{seed:08x}`"
        halves.append((shown, " ".join(f"`{h:04x}`" for h in rng.perturbation_halves(seed, 8))))
        values.append((shown, " ".join(f"`{v.view('u4'):08x}`" for v in rng.perturbation(seed, 4))))
    table = rng.normal_table()
    digest = hashlib.sha256(table.astype("<f4").tobytes()).hexdigest()
    picks = [(f"`{h:04x}`", f"`{table[h]:.9g}`", f"`{table[h].view('u4'):08x}`") for h in (0, 1, 32767, 32768, 65535)]
    return (
        "Halves, first eight, in hexadecimal:\n\n"
        + _table(("seed", "h₀ … h₇"), halves)
        + "\nPerturbation, first four coordinates, as the bits of the float32 number:\n\n"
        + _table(("seed", "v₀ … v₃"), values)
        + "\nEntries of the table:\n\n"
        + _table(("h", "value", "bits"), picks)
        + f"\nSHA-256 of the whole table, 65,536 float32 numbers in little-endian order:\n\n```text\n{digest}\n```\n"
    )


# -------------------------------------------------------------------------------------------------------------- API


def api(name: str) -> str:
    """A page for one module."""
    line = "=" * len(name)
    return f"{name}\n{line}\n\n.. automodule:: {name}\n   :members:\n"


def promises() -> str:
    """What every protocol promises about privacy, with its defaults and in its private modes."""
    from fedrank_zoo.promises import all_promised

    rows, silent = [], []
    for one in all_promised():
        first = one.first
        if first is None and one.mode.name == "defaults" and not method(one.protocol).modes:
            silent.append(one.protocol)
            continue
        epsilon = "none" if first is None else f"{first.epsilon:,.3g}"
        delta = "–" if first is None or not first.delta else f"{first.delta:.0e}"
        unit = "–" if first is None else str(first.unit)
        trust = "everybody" if first is None else one.report.trust
        rows.append((f"`{one.protocol}`", one.mode.name, epsilon, delta, unit, trust, one.mode.known or "not measured"))
    head = ("protocol", "mode", "ε over a run", "δ", "of a", "trusted", "what is known")
    return f"{_table(head, rows)}\nNothing is promised by {', '.join(f'`{name}`' for name in silent)}.\n"


PARTS = {
    "configuration": configuration,
    "hub": hub,
    "hub_exclusions": hub_exclusions,
    "commands": commands,
    "catalogue": catalogue,
    "messages": messages,
    "promises": promises,
    "errors": exceptions,
    "vectors": vectors,
}


def write_all(folder: Path) -> None:
    """Write all parts and the API's pages below ``folder``.

    A page that would not change is left alone.
    """
    for name, make in PARTS.items():
        _write(folder / "parts" / f"{name}.md", make())
    quick = os.environ.get("FEDRANK_DOCS_QUICK")
    pages = {f"{name}.rst": api(name) for name in (named_modules() if quick else modules())}
    for name, text in pages.items():
        _write(folder / "api" / name, text)
    for stale in {p.name for p in (folder / "api").glob("*.rst")} - set(pages):
        (folder / "api" / stale).unlink()


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8")
