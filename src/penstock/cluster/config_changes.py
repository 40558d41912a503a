"""What one request does to the settings that were made on a topic or a broker (KIP-339)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from penstock.cluster.settings import Setting, SettingType
from penstock.protocol.errors import ApiError, ErrorCode


@dataclass(frozen=True, slots=True)
class Append:
    """Adds to a list what it does not hold yet."""

    values: str


@dataclass(frozen=True, slots=True)
class Subtract:
    """Takes out of a list what it holds."""

    values: str


Change = str | Append | Subtract | None  # a value to set; None removes the setting
Changes = Mapping[str, Change]


def apply_changes(
    current: Mapping[str, str], changes: Changes, known: Mapping[str, Setting], *, replace: bool = False
) -> dict[str, str]:
    """`replace` drops everything that is not named, which is how AlterConfigs differs from IncrementalAlterConfigs."""
    result = {} if replace else dict(current)
    for name, change in changes.items():
        if isinstance(change, (Append, Subtract)):
            result[name] = _change_list(name, current.get(name), change, known.get(name))
        elif change is None:
            result.pop(name, None)
        else:
            result[name] = change
    return result


def _change_list(name: str, current: str | None, change: Append | Subtract, setting: Setting | None) -> str:
    if setting is None or setting.type is not SettingType.LIST:
        verb = type(change).__name__.upper()
        raise ApiError(ErrorCode.INVALID_CONFIG, f"Can't {verb} to key {name} because its type is not LIST.")
    text = current if current is not None else setting.text(setting.default)
    parts = [part for part in (text or "").split(",") if part]
    for value in change.values.split(","):
        if isinstance(change, Append) and value not in parts:
            parts.append(value)
        elif isinstance(change, Subtract) and value in parts:
            parts.remove(value)
    return ",".join(parts)
