"""Where a broker's settings come from, and which one counts.

From weakest to strongest: defaults, the file (TOML), the environment, the command line. A setting has Kafka's dotted
name everywhere: in the file as a dotted key or as nested tables, in the environment in capitals with underscores
(`log.retention.hours` is `PENSTOCK_LOG_RETENTION_HOURS`), on the command line as it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from penstock.cluster.settings import BROKER_SETTINGS, BrokerSettings, SettingError

__all__ = ["BrokerSettings", "SettingError", "load", "misspelt_variables"]

PREFIX = "PENSTOCK_"
# Variables of the same prefix that are no settings of a broker.
NOT_SETTINGS = frozenset({"PENSTOCK_BOOTSTRAP", "PENSTOCK_CONFIG"})


def load(
    file: Path | None = None,
    environment: Mapping[str, str] | None = None,
    command_line: Mapping[str, str] | None = None,
    defaults: Mapping[str, str] | None = None,
) -> BrokerSettings:
    """Raises SettingError, in one line that says where the mistake is."""
    levels: list[tuple[str, Mapping[str, str]]] = [("", defaults or {})]
    if file is not None:
        levels.append((f"{file}: ", read_file(file)))
    levels.append(("environment: ", read_environment(environment or {})))
    levels.append(("", command_line or {}))
    merged: dict[str, str] = {}
    for place, level in levels:
        _check(place, level)
        merged.update(level)
    return BrokerSettings(_without_two_names(merged, levels))


def _check(place: str, level: Mapping[str, str]) -> None:
    try:
        BrokerSettings(level)
    except SettingError as failure:
        raise SettingError(f"{place}{failure}") from failure


def _without_two_names(merged: dict[str, str], levels: list[tuple[str, Mapping[str, str]]]) -> dict[str, str]:
    """`node.id` and `broker.id` are one setting: whichever was given last replaces the other."""
    if "node.id" in merged and "broker.id" in merged:
        last = [name for _, level in levels for name in ("broker.id", "node.id") if name in level][-1]
        merged.pop("broker.id" if last == "node.id" else "node.id")
    return merged


def read_file(file: Path) -> dict[str, str]:
    import tomllib

    try:
        with file.open("rb") as source:
            return dict(_flatten("", tomllib.load(source), file))
    except OSError as failure:
        raise SettingError(f"{file}: {(failure.strerror or str(failure)).lower()}") from failure
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as failure:
        raise SettingError(f"{file}: not TOML: {failure}") from failure


def _flatten(prefix: str, table: Mapping[str, Any], file: Path) -> Iterator[tuple[str, str]]:
    for name, value in table.items():
        if isinstance(value, Mapping):
            yield from _flatten(f"{prefix}{name}.", value, file)
        else:
            yield f"{prefix}{name}", _text(f"{prefix}{name}", value, file)


def _text(name: str, value: Any, file: Path) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | int | float):
        return str(value)
    if isinstance(value, list):
        return ",".join(_text(name, item, file) for item in value)
    raise SettingError(f"{file}: {name} is neither text, nor a number, nor true or false, nor a list of them")


def read_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Variables that name no setting are none of ours: Kubernetes makes its own, from the names of services."""
    known = _variables()
    return {known[variable]: text for variable, text in environment.items() if variable in known}


def misspelt_variables(environment: Mapping[str, str]) -> list[str]:
    """Variables that were ignored, though they look as if they were meant: one line for each."""
    import difflib

    known = _variables()
    lines = []
    for variable in sorted(environment):
        if variable.startswith(PREFIX) and variable not in known and variable not in NOT_SETTINGS:
            lines += [
                f"{variable} is not a setting and was ignored; did you mean {near}?"
                for near in difflib.get_close_matches(variable, known, n=1, cutoff=0.9)
            ]
    return lines


def _variables() -> dict[str, str]:
    """Dots and underscores look the same in a variable's name, so it is the known names that decide."""
    return {PREFIX + name.upper().replace(".", "_"): name for name in BROKER_SETTINGS}
