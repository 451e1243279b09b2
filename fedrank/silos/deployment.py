"""Silos over a network: a server without rows, and nodes that are one silo with its own table."""

from __future__ import annotations

import dataclasses
import logging
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Float32, Int8
from typing_extensions import override

from fedrank.core.arrays import PyTree
from fedrank.core.errors import ConfigError, DataError
from fedrank.core.native import map_trees
from fedrank.core.protocol import Party
from fedrank.core.rng import INIT
from fedrank.core.streams import fold_words, run_words
from fedrank.data.sources import is_known
from fedrank.engine.deployment import (
    Block,
    HeldParties,
    NodeSettings,
    ServerSide,
    SetupSide,
    hash_of,
    part_of,
)
from fedrank.engine.model import provenance
from fedrank.engine.run_folder import RunFolder
from fedrank.silos.build import SiloExperiment, build_silos, public_standards, sizes
from fedrank.silos.config import SiloRun, Silos
from fedrank.silos.data.coding import LARGEST, Coding, as_codes, cell_number, numbers_of, refuse_spellings, without
from fedrank.silos.data.files import number_persons, read_columns, table_of
from fedrank.silos.data.looks import looks_wrong
from fedrank.silos.data.splits import SiloArrays, split_many, undefined_auc
from fedrank.silos.data.tables import Silo, SiloTable
from fedrank.silos.first_look import FirstLook, look_of
from fedrank.silos.model import SiloModel
from fedrank.silos.party import is_finite
from fedrank.silos.records.ranges import parse_ranges
from fedrank.silos.sceptic.learners import Own, rows_of

#: Rows of each silo of a stand-in: enough for three parts with both labels in each.
_ROWS = 8


def stand_in(config: SiloRun, n_features: int) -> SiloExperiment:
    """The experiment without anybody's rows: as many silos, as many features.

    Args:
        config: The run; ``silos.count`` says how many silos.
        n_features: Features of a row, at least 1.

    Raises:
        ConfigError: The run names silos, which have numbers only where each has its own table.
    """
    s = config.silos
    if s.exclude or s.inverted:
        raise ConfigError(
            "silos.exclude and silos.inverted name silos of a known set; here each silo has its own table."
        )
    if s.categorical:
        raise ConfigError("silos.categorical: where each silo has its own table, make a column of 0 and 1 a level.")
    row = np.tile(np.arange(_ROWS), s.count)
    columns = {"silo": np.repeat(np.arange(s.count), _ROWS), "label": row % 2}
    columns |= {f"x{column}": row for column in range(n_features)}
    table = table_of({name: values.tolist() for name, values in columns.items()}, "stand-in")
    silos = dataclasses.replace(s, train=0.25, vali=0.5, stratified=True, first_look=False)
    made = dataclasses.replace(config, silos=silos)
    if (privacy := config.record_privacy) is not None:
        public = dataclasses.replace(privacy, ranges=tuple(f"x{column}=0:1" for column in range(n_features)))
        made = dataclasses.replace(made, method=dataclasses.replace(made.method, privacy=public))
    whole = build_silos(made, data=table)
    sgd = whole.protocol.sgd.for_server()
    return dataclasses.replace(whole, protocol=dataclasses.replace(whole.protocol, sgd=sgd))


def read_table(path: Path, settings: Silos, *, private: bool = False) -> tuple[Silo, tuple[str, ...]]:
    """One silo's table from a CSV or parquet file: numbers only, columns in order of their names.

    Files are read as those of all silos together are (:func:`fedrank.silos.data.files.read_columns`). For a missing
    value stands the silo's training mean. Rows without a label go. What looks wrong in a column is logged at the silo.

    Args:
        path: The file.
        settings: Which column is the label, which of its values is 1, which columns are no features.
        private: Whether a record has an ε. Then nothing that is done depends on what a record holds: each cell is read
            by itself, one that is no number counts as missing, a label that is not the one that counts as 1 (1 or true,
            unless ``silos.positive`` says another) as 0; no row goes and none is refused.

    Returns:
        The silo, and the names of its features.

    Raises:
        MissingDataError: There is no such file.
        FormatError: The file, or a line of it, cannot be read.
        DataError: A column is missing or, without an ε, not of numbers, or the label is neither 0 and 1 nor told by
            ``silos.positive``.
    """
    columns = read_columns(path, settings.drop)
    needed = {settings.label: "with the label"} | ({settings.person: "of persons"} if settings.person else {})
    for name, what in needed.items():
        if name not in columns:
            raise DataError(f"there is no column {name!r} {what}; the columns are {', '.join(columns)}.", path)
    label = columns[settings.label]
    names = tuple(sorted(set(columns) - {settings.label, settings.silo, settings.person, *settings.drop}))
    known = np.array([private or value is not None for value in label])
    if not names or not known.any():
        raise DataError("there are no features or no rows with a label; nothing to learn from.", path)
    read = _each_cell if private else _numbers
    features = np.stack([read(name, columns[name], settings, path) for name in names], axis=1)[known]
    if private:
        labels = _each_label(label, settings, path)
    else:
        labels = _labels([value for value in label if value is not None], settings, path)
    for said in looks_wrong(features, labels, names):
        _log.warning("%s: %s", path.name, said)
    persons = number_persons(columns[settings.person])[known] if settings.person else None
    return Silo(path.name.split(".")[0], features, labels, person=persons), names


def _each_cell(name: str, values: Sequence[Any], settings: Silos, path: Path) -> Float[np.ndarray, " rows"]:
    """A column as numbers, each cell read by itself; NaN where it is missing, no number or not finite."""
    cells = [None if value is None else cell_number(value) for value in without(values, settings.missing)]
    column = np.array([np.nan if number is None or not abs(number) <= LARGEST else number for number in cells], float)
    if odd := int(np.isnan(column).sum()) - sum(value is None for value in values):
        _log.warning("%s: %d values of column %r count as missing.", path.name, odd, name)
    return column


def _each_label(values: Sequence[Any], settings: Silos, path: Path) -> Int8[np.ndarray, " rows"]:
    """Labels, each cell read by itself: 1 where it is the value that counts as 1, else 0.

    What a cell holds refuses nothing; the silo alone is told what was read as 0 though it may not mean it.
    """
    if unlabelled := sum(value is None for value in values):
        _log.warning("%s: %d rows have no label, which counts as 0.", path.name, unlabelled)
    (one,) = as_codes([_as_digit("1" if settings.positive is None else settings.positive)])
    codes = [as_codes([_as_digit(value)])[0] for value in values]
    odd = 0 if settings.positive is not None else sum(code not in (None, "0", "1") for code in codes)
    if odd or one not in codes:
        _log.error(
            "%s: %d of %d labels %r count as 1, %d are neither 0 and 1 nor true and false and count as 0. The run says "
            "which value is 1 (silos-positive), for all silos alike.",
            path.name, codes.count(one), len(codes), settings.label, odd,
        )  # fmt: skip
    return np.array([code == one for code in codes], np.int8)


def _as_digit(value: Any) -> Any:
    """1 of true, 0 of false, in any spelling; other values as they are."""
    return {"true": 1, "false": 0}.get(str(value).lower(), value)


def _numbers(name: str, values: Sequence[Any], settings: Silos, path: Path) -> Float[np.ndarray, " rows"]:
    """A column as numbers, NaN where a value is missing; True and False are 1 and 0.

    Raises:
        DataError: It holds text, or a number that is not finite.
    """
    found = numbers_of(name, [_as_digit(value) for value in without(values, settings.missing)], path)
    if found is None:
        raise DataError(
            f"column {name!r} holds text, such as {next(v for v in values if v is not None)!r}; where each silo has "
            "its own file, all columns must be numbers. Make one column of 0 and 1 a level, the same at every silo, or "
            "name it in silos.drop.",
            path,
        )
    column, note = found
    if note:
        _log.warning("%s: %s", path.name, note)
    return column


def _labels(values: Sequence[Any], settings: Silos, path: Path) -> Int8[np.ndarray, " rows"]:
    codes = as_codes([_as_digit(value) for value in values])
    refuse_spellings(f"label {settings.label!r} has the values", codes, "Write each value in one way.", path)
    if settings.positive is not None:
        one = as_codes([_as_digit(settings.positive)])
        return np.array([[code] == one for code in codes], np.int8)
    if not set(codes) <= {"0", "1"}:
        raise DataError(
            f"the label {settings.label!r} must be 0 or 1, got {sorted(set(map(str, values)))[:5]}; else the run says "
            "which value is 1 (silos-positive), for all silos alike.",
            path,
        )
    return np.array([code == "1" for code in codes], np.int8)


def own_rows(path: Path, config: SiloRun) -> tuple[SiloArrays, tuple[str, ...]]:
    """A silo's rows from its own file, divided and standardised by itself: leading axes [1, 1].

    Args:
        path: The file.
        config: The run: sizes, seed, names of columns.

    Returns:
        The rows and the names of the features.

    Raises:
        DataError: As :func:`read_table`, or there are too few rows.
    """
    silo, names = read_table(path, config.silos, private=config.record_privacy is not None)
    table = SiloTable(silo.name, (silo,), names, config.silos.label)
    public = public_standards(config, names)
    return split_many(table, [config.seed], sizes(config), config.silos.stratified, public), names


def _refuse_undefined(arrays: SiloArrays) -> None:
    """Raise DataError where the silo that models are judged at has no rows to judge by."""
    for found in undefined_auc(arrays, ("of the target",)):
        if found.part == "vali":
            raise DataError(
                f"{found.text} Take more rows (silos.train, silos.vali), silos.stratified, or silos.measure = "
                "'log-loss'."
            )


_log = logging.getLogger("fedrank.silos")


class SilosServer(ServerSide):
    """The server of a run of silos; it has no silo's rows to measure models with.

    Args:
        config: Settings of the run, resolved.
        experiment: The run, with the rows of a known set or of a stand-in.
    """

    config: SiloRun

    def __init__(self, config: SiloRun, experiment: SiloExperiment):
        look = look_of(config, experiment) if config.silos.first_look else None
        super().__init__(config, experiment.protocol, experiment.parties, experiment.n_parties, look)
        self._experiment = experiment

    @override
    def state(self) -> PyTree:
        words: Any = fold_words(run_words([self.config.seed])[0], INIT)
        return self.protocol.init(words)

    @override
    def write_setup(self, home: RunFolder, state: PyTree) -> None:
        looked = state.looked.as_json(self._experiment.names)
        home.json("first_look.json", {looked["target"]: looked})
        for said in looked["warnings"]:
            _log.warning("look at this first: %s", said)

    @override
    def write_models(self, home: RunFolder, state: PyTree) -> None:
        experiment, protocol, seed = self._experiment, self._experiment.protocol, self.config.seed
        # Weights that are not sent are the silo's own; here they are those of a fresh network.
        fresh = experiment.parties.own.model[experiment.targets[0]]
        weights = protocol.weights(state)
        best = getattr(state, "best_weights", weights)
        refit = getattr(state, "refit", best[:0])
        best = refit if len(refit) and is_finite(refit) else best
        for name, model in (("", best), (f"seed{seed}-last", weights)):
            if np.shape(model) == (protocol.parameters,):  # a method with several models has none for all silos
                numbers = np.asarray(protocol.whole_model(model, fresh), np.float32)
                home.model(self._model(numbers, int(state.round)), seed, name)

    def _model(self, weights: Float32[np.ndarray, " size"], rounds: int) -> SiloModel:
        """A model of what the server knows of its inputs.

        With a record's ε they are scaled by public ranges, which the model keeps; else each silo scales by mean and
        deviation of its rows, and the model has neither.
        """
        experiment, config = self._experiment, self.config
        table, known = experiment.table, is_known(config.data, config.task)
        about = provenance(
            config,
            generated=known and table.generated,
            rounds=rounds,
            privacy=experiment.protocol.account(rounds, config.delta),
        )
        # Silos that have their own tables do not tell the server the names of their columns.
        described: dict[str, Any] = {}
        if known:
            described = {"names": table.feature_names, "coding": table.coding, "label": table.label}
        if config.record_privacy is not None:
            described |= _by_ranges(config, table.feature_names if known else ())
        return SiloModel(experiment.protocol.net, weights, **described, about=about)


def _by_ranges(config: SiloRun, names: Sequence[str]) -> dict[str, Any]:
    """Inputs of a model of a run with a record's ε, as arguments of :class:`SiloModel`.

    Args:
        config: The run.
        names: Names of the columns of a known set; empty: silos have their own tables, whose columns the ranges
            name.
    """
    own: dict[str, Any] = {}
    if not names:
        names = sorted(parse_ranges(config.record_privacy.ranges)) if config.record_privacy else ()
        coding = Coding(label=config.silos.label, positive=config.silos.positive or "1")
        own = {"names": tuple(names), "coding": coding, "label": f"{coding.label} = {coding.positive}"}
    public = public_standards(config, names)
    assert public is not None  # there is privacy
    return {**own, "mean": public[0], "deviation": public[1]}


def _refuse_unknown_columns(config: SiloRun, n_features: int) -> None:
    """Refuse ranges that do not name every column of the silos' tables, as the model must know them all.

    Raises:
        ConfigError: Says how many there are.
    """
    if config.record_privacy is None:
        return
    ranges = parse_ranges(config.record_privacy.ranges)
    if len(ranges) != n_features:
        raise ConfigError(
            f"privacy-ranges are of {len(ranges)} columns, and rows have {n_features} features (n-features). Where "
            "each silo has its own table, the ranges tell the model its columns: give one of each, of a column of 0 "
            "and 1 as well, such as sex_m=0:1."
        )


def silos_server(config: SiloRun, n_features: int = 0) -> SilosServer:
    """The server's side of a run.

    Args:
        config: The run, resolved.
        n_features: Features of a row where each silo has its own table; 0: the server has the run's known set.

    Raises:
        FedrankError: The configuration does not fit the protocol or the data, or the data is not there.
    """
    if n_features:
        _refuse_unknown_columns(config, n_features)
    made = stand_in(config, n_features) if n_features else build_silos(config)
    if made.personalises_one and len(made.targets) > 1:
        raise ConfigError('over a network a run is for one silo; name it: silos-target = "0".')
    return SilosServer(config, made)


class LookSide(SetupSide):
    """A silo's part in the first look.

    Args:
        look: The protocol.
        number: The silo's number.
        own: All of its rows.
    """

    # The sums have no noise: to send them once more tells nothing new.
    max_shown, first_shown = math.inf, 10**6

    def __init__(self, look: FirstLook, number: int, own: Own):
        self.protocol = self._look = look
        self._number, self._own = number, own

    @override
    def party(self) -> Party:
        return self._look.party(self._own, self._number)

    @override
    def draws(self, exchange: int) -> PyTree:
        return None

    @override
    def keeps(self, name: str) -> bool:
        return name == "number"


def silos_node(config: SiloRun, settings: NodeSettings) -> HeldParties:
    """A silo with its own table; or silos of a known set, of which a node then has all silos' rows: for tests.

    Raises:
        ConfigError: The run leaves no place for this node.
        DataError: The table cannot be used.
    """
    known = is_known(config.data, config.task)
    if known == bool(settings.data):
        raise ConfigError(
            f"the run's data is {config.data!r}, "
            + ("which leaves no place for this node's own table." if known else "and this node has no table.")
            + ' A run in which silos have their own tables says data = "own"; their SuperNodes are started with '
            "--node-config 'data=\"/its/own/table.csv\"'."
        )
    if not settings.data:
        whole = build_silos(config, settings.data_folder or None)
        numbers = settings.block(whole.n_parties)
        side = HeldParties(config, settings, Block(whole.protocol, part_of(whole.parties, numbers), numbers))
        if config.silos.first_look and len(numbers) != 1:
            raise ConfigError("silos-first-look: each silo is one node; start as many SuperNodes as there are silos.")
        if config.silos.first_look:
            side.setup = LookSide(look_of(config, whole), numbers.start, rows_of(whole.table)[numbers.start])
        return side
    number = settings.partition_id
    if settings.num_partitions != config.silos.count:
        raise ConfigError(
            f"the run has {config.silos.count} silos (silos-count), this node is one of {settings.num_partitions} "
            "(num-partitions). Where silos have their own tables, each is one node."
        )
    arrays, names = own_rows(Path(settings.data).expanduser(), config)
    whole = stand_in(config, len(names))
    most = arrays.train.x.shape[-2]
    protocol = dataclasses.replace(whole.protocol, most_rows=most, sgd=whole.protocol.sgd.for_rows({most}))
    judged = getattr(protocol, "target", None) == number and protocol.measure == "auc"
    if judged and config.record_privacy is None:  # with an ε a refusal would tell of a record's label
        _refuse_undefined(arrays)
    own = map_trees(lambda leaf: leaf[number : number + 1], whole.parties.own)
    zero = np.zeros(1, np.int32)  # the only rows there are
    parties = Party(arrays, own._replace(number=zero, split=zero))
    side = HeldParties(config, settings, Block(protocol, parties, range(number, number + 1), hash_of(names)))
    if config.silos.first_look:
        silo, _ = read_table(Path(settings.data).expanduser(), config.silos)
        rows = Own(silo.features.astype(float), silo.labels.astype(float))
        side.setup = LookSide(look_of(config, whole), number, rows)
    side.content = hash_of([np.asarray(leaf).tobytes().hex() for rows in arrays for leaf in rows]).hex()
    return side
