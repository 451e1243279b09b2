"""Train in Python: :func:`run` for an experiment, :func:`train` for a model, :func:`load` for what either left."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedrank.api.result import Result
from fedrank.core.errors import ConfigError, ModelError
from fedrank.core.protocol import Protocol
from fedrank.engine.config import RunConfig
from fedrank.engine.model import Model, read_model, read_model_of_run
from fedrank.engine.progress import Listener
from fedrank.engine.run import config_of, own_protocol, resume_experiment, run_experiment
from fedrank.engine.settings import setting_names

#: Settings that take objects in place of names.
_OBJECTS = ("ranker", "clicks", "aggregate")


def run(
    protocol: str | Protocol | RunConfig,
    data: Any = None,
    *,
    folder: str | os.PathLike[str] | None = None,
    listener: Listener | None = None,
    data_folder: str | os.PathLike[str] | None = None,
    **settings: Any,
) -> Result:
    """Run an experiment: several seeds, evaluated while they learn, with baselines beside them.

    Args:
        protocol: Name of a protocol (``fedrank run --list``), a protocol of the caller's own, or a configuration.
        data: A path, a name of the catalogue, arrays, or a data frame, as :func:`fedrank.data.load` takes it; by
            default the data that the settings name, which is made up by a program unless they say otherwise.
        folder: The run's folder, which must be empty or not exist; by default a temporary one, which goes with the
            result (:meth:`Result.save` keeps it).
        listener: Hears of the progress.
        data_folder: Where data sets are looked for; by default ``FEDRANK_DATA`` or the platform's cache.
        settings: Settings of the protocol, by the names that ``fedrank run PROTOCOL --help`` shows: ``rounds=50``;
            those of a table by their last name where it is clear (``label="ill"`` for ``silos.label``), with ``__``
            for the dot (``privacy__p=0.5``), or as a dictionary (``privacy={"p": 0.5}``). ``ranker``,
            ``clicks`` and ``aggregate`` also take objects: a ``FunctionRanker`` or, with ``fedrank-zoo``, a
            ``torch.nn.Module``, a click model, a rule.

    Returns:
        The result.

    Raises:
        FedrankError: The settings, the data or the folder cannot be used.
        Interrupted: Ctrl-C; a run in a folder of the caller's can be resumed.
    """
    settings = nest_settings(settings, config_of(protocol, {}))
    objects = {name: settings.pop(name) for name in _OBJECTS if not isinstance(settings.get(name, ""), str)}
    own = objects.get("ranker", getattr(protocol, "ranker", None))
    own = None if isinstance(own, str) else own  # a configuration has the name of its ranker
    config = config_of(protocol, settings)
    common = {
        "protocol": own_protocol(protocol),
        "data": data,
        "own": objects,
        "listener": listener,
        "data_folder": data_folder,
    }
    if folder is not None:
        return Result(run_experiment(config, folder, **common), own=own)
    parent = tempfile.TemporaryDirectory(prefix="fedrank-")
    try:
        made = run_experiment(config, Path(parent.name) / "run", **common)
        return Result.of_temporary(parent, made, own=own)
    except BaseException:
        parent.cleanup()
        raise


def train(protocol: str | Protocol, data: Any = None, **settings: Any) -> Result:
    """Train one model: :func:`run` with one seed, measured at the start and at the end only.

    Args:
        protocol: As of :func:`run`.
        data: As of :func:`run`.
        settings: As of :func:`run`, ``folder``, ``listener`` and ``data_folder`` among them.

    Returns:
        The result; its ``model()`` is the trained model.

    Raises:
        FedrankError: As of :func:`run`.
    """
    settings = {"seeds": 1, **settings}
    if "evaluation" not in settings and "evaluation__every" not in settings and "every" not in settings:
        settings["evaluation__every"] = 10**7
    return run(protocol, data, **settings)


def resume(
    folder: str | os.PathLike[str],
    *,
    protocol: Protocol | None = None,
    data: Any = None,
    own: Mapping[str, Any] | None = None,
    listener: Listener | None = None,
    data_folder: str | os.PathLike[str] | None = None,
) -> Result:
    """Go on with a run that was stopped or killed; a finished one is read as it is.

    Args:
        folder: The run's folder.
        protocol: The protocol that was handed over as an object, if one was.
        data: The data that was handed over as an object, if any was.
        own: The objects that were handed over in place of names, by the names of their settings: ``{"ranker": …}``.
        listener: Hears of the progress.
        data_folder: As of :func:`run`.

    Raises:
        RunError: There is no run in the folder, or its checkpoint is damaged.
    """
    common = {"listener": listener, "data_folder": data_folder}
    made = resume_experiment(folder, protocol=protocol, data=data, own=own, **common)
    return Result(made, own=(own or {}).get("ranker"))


def load(path: str | os.PathLike[str], *, seed: int | None = None, party: str | None = None, own: Any = None) -> Model:
    """A trained model, from a run's folder or from a file that a model was saved to.

    Args:
        path: The folder or the file.
        seed: Of a folder: the seed; by default the first.
        party: Name of the party, where each has its own model or its own way to prepare inputs.
        own: An object that the model needs and the caller supplies, such as a ranker of the caller's class.

    Returns:
        The model; ``score`` scores.

    Raises:
        ModelError: There is no such file or model, or it cannot be read.
        UnknownNameError: There is no such party.
    """
    place = Path(path)
    if not place.is_dir():
        if place.is_file() and seed is not None:
            raise ModelError(f"{place}: a seed chooses among a run's models; a file is one model.")
        model = read_model(place, own)
        return model if party is None else model.for_party(party)
    if not (place / "config.toml").exists():
        kind = "a hub; write its model first: fedrank hub replay" if (place / "hub.toml").exists() else "no run"
        raise ModelError(f"{place}: is {kind}{f' {place} --out model.safetensors' if kind != 'no run' else ''}.")
    return read_model_of_run(place, seed, party, own)


def protocols() -> Mapping[str, str]:
    """Names of all protocols that are installed, with a sentence each."""
    from fedrank.engine.methods import method, method_names

    return {name: method(name).summary for name in method_names()}


def nest_settings(settings: dict[str, Any], base: Any) -> dict[str, Any]:
    """The settings as a nested dictionary, for :func:`fedrank.engine.settings.from_dict`.

    Args:
        settings: By name: a setting at the top, a table as a dictionary, a dotted name with ``__`` for the dot
            (``privacy__p``), or a table's setting by its last name alone, where only one table has it.
        base: A configuration of the run's protocol.

    Raises:
        ConfigError: Several tables have a setting of that name; says which.
    """
    dotted = setting_names(base)
    tables = {name.partition(".")[0] for name in dotted if "." in name}
    out: dict[str, Any] = {
        name: dict(value) if isinstance(value, dict) else value for name, value in settings.items() if name in tables
    }
    for name, value in settings.items():
        if name in tables:
            continue
        full = name.replace("__", ".")
        found = [full] if full in dotted else [one for one in dotted if one.endswith(f".{full}")]
        if len(found) > 1:
            raise ConfigError(
                f"{name} may be {' or '.join(found)}; say which: {found[0].replace('.', '__')}=… or "
                f"{found[0].rpartition('.')[0]}=dict({name}=…)."
            )
        *path, last = (found[0] if found else full).split(".")  # an unknown one is refused where it is read
        table = out
        for step in path:
            table = table.setdefault(step, {})
        table[last] = value
    return out
