"""Settings by their last name: ``label="ill"`` for ``silos.label``, so that a call in Python needs no nested tables."""

from __future__ import annotations

from typing import Any

from fedrank.core.errors import ConfigError
from fedrank.engine.settings import setting_names


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
