"""The tables of a file, entry by entry: each is asked for by its name and its kind, and refused by its name."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import Any

from penstock.pipeline.problem import PipelineError


class FileError(PipelineError):
    """Something in a file that makes no sense."""


class Entries:
    """One table. `where` is its name, and empty for the file as a whole."""

    def __init__(self, given: Mapping[str, Any], where: str, known: Sequence[str]) -> None:
        self._given = given
        self._where = where
        for name in given:
            if name not in known:
                close = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
                place = f"[{where}]" if where else "the file"
                hint = f"; did you mean {close[0]!r}?" if close else f"; it takes {', '.join(known)}"
                raise FileError(f"{place} has {name!r}, which is not known{hint}")

    def __contains__(self, name: str) -> bool:
        return name in self._given

    def error(self, name: str, what: str) -> FileError:
        return FileError(f"{self._named(name)} {what}")

    def raw(self, name: str) -> Any:
        return self._given.get(name)

    def text(self, name: str) -> str | None:
        value = self._given.get(name)
        if value is None:
            return None
        if not isinstance(value, str) or not value.strip():
            raise self.error(name, f"is {value!r}; it must be a text in quotes")
        return value

    def required(self, name: str) -> str:
        value = self.text(name)
        if value is None:
            raise self.error(name, "is missing")
        return value

    def choice(self, name: str, among: tuple[str, ...], default: str | None) -> str:
        value = (self.required(name) if default is None else self.text(name) or default).lower()
        if value not in among:
            raise self.error(name, f"is {value!r}; it must be one of {', '.join(among)}")
        return value

    def number(self, name: str, smallest: int) -> int | None:
        value = self._given.get(name)
        if value is None:
            return None
        if not isinstance(value, int) or isinstance(value, bool) or value < smallest:
            raise self.error(name, f"is {value!r}; it must be a whole number of at least {smallest}")
        return value

    def flag(self, name: str, default: bool) -> bool:
        value = self._given.get(name, default)
        if not isinstance(value, bool):
            raise self.error(name, f"is {value!r}; it must be true or false")
        return value

    def list(self, name: str) -> tuple[str, ...]:
        value = self._given.get(name, [])
        value = [value] if isinstance(value, str) else value
        if not isinstance(value, list) or any(not isinstance(each, str) or not each for each in value):
            raise self.error(name, f"is {value!r}; it must be a list of texts")
        return tuple(dict.fromkeys(value))

    def texts(self, name: str) -> dict[str, str]:
        """A table of whatever names, whose values are texts, numbers or flags."""
        found = self._given.get(name, {})
        if not isinstance(found, dict):
            raise self.error(name, "must be a table")
        for key, value in found.items():
            if not isinstance(value, str | int | float):
                raise self.error(f"{name}.{key}", f"is {value!r}; it must be a text, a number, or true or false")
        return {key: str(value).lower() if isinstance(value, bool) else str(value) for key, value in found.items()}

    def table(self, name: str, known: Sequence[str]) -> Entries:
        found = self._given.get(name)
        if not isinstance(found, dict):
            raise self.error(name, f"must be a table of {', '.join(known)}")
        return Entries(found, self._path(name), known)

    def tables(self, name: str, known: Sequence[str]) -> dict[str, Entries]:
        """Tables under a name, each by a name of its own, such as [source.orders]."""
        found = self._given.get(name, {})
        if not isinstance(found, dict) or any(not isinstance(each, dict) for each in found.values()):
            raise FileError(f"{name!r} must be tables with names, such as [{name}.orders]")
        return {key: Entries(each, f"{self._path(name)}.{key}", known) for key, each in found.items()}

    def one_of(self, *names: str) -> None:
        given = [each for each in names if each in self._given]
        if len(given) != 1:
            listed = ", ".join(repr(each) for each in names)
            which = " and ".join(repr(each) for each in given) if given else "none"
            raise FileError(f"[{self._where}] needs one of {listed}; there is {which}")

    def _path(self, name: str) -> str:
        return f"{self._where}.{name}" if self._where else name

    def _named(self, name: str) -> str:
        return f"{name!r} in [{self._where}]" if self._where else repr(name)
