"""Which messages a consumer wants, said by their headers.

It is done here for now. The interface has what a broker would need to do it (`as_terms`), so that it can take over.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, Protocol

from penstock.client.errors import DeserializationError, SettingsError, UsageError
from penstock.client.message import Header, Message
from penstock.client.pure_messages import headers_of as headers_of
from penstock.client.pure_messages import unreadable_headers

Terms = Mapping[str, frozenset[bytes]]  # a header's name, and the values that will do
Where = Mapping[str, str | bytes | Collection[str | bytes]] | Callable[[list[Header]], bool]


class HeaderFilter(Protocol):
    def accepts(self, headers: list[Header]) -> bool: ...

    def as_terms(self) -> Terms | None:
        """The same as data: every name must have one of its values. None if it can't be said so."""


class TermFilter:
    """Each of the headers has one of the values. Of headers with the same name, the last counts."""

    def __init__(self, terms: Terms) -> None:
        self._terms = dict(terms)

    def accepts(self, headers: list[Header]) -> bool:
        found = dict(headers)
        return all(found.get(name) in values for name, values in self._terms.items())

    def as_terms(self) -> Terms | None:
        return self._terms


class FunctionFilter:
    def __init__(self, function: Callable[[list[Header]], bool]) -> None:
        self._function = function

    def accepts(self, headers: list[Header]) -> bool:
        try:
            return bool(self._function(headers))
        except Exception as failure:
            raise UsageError(
                f"where failed on a message with the headers {headers!r}: {type(failure).__name__}: {failure}.",
                "It gets a list of pairs, (name, bytes), which may be empty, and says whether the message is wanted.",
            ) from failure

    def as_terms(self) -> Terms | None:
        return None


def make_filter(where: Where | HeaderFilter | None) -> HeaderFilter | None:
    """`{"region": "eu"}`, `{"region": {"eu", "us"}}`, or a function of the headers."""
    if where is None:
        return None
    if isinstance(where, Mapping):
        if not where:
            raise SettingsError("where={} asks for nothing.", "Leave it out to read everything.")
        return TermFilter({_name(name): _values(name, value) for name, value in where.items()})
    if hasattr(where, "accepts") and hasattr(where, "as_terms"):
        return where
    if callable(where):
        return FunctionFilter(where)
    raise SettingsError(
        f"where={where!r} is no filter.", "Give {'header': 'value'}, {'header': {'one', 'other'}} or a function."
    )


def _name(name: Any) -> str:
    if not isinstance(name, str):
        raise SettingsError(f"where: {name!r} is no name of a header.", "Names are text.")
    return name


def _values(name: str, value: Any) -> frozenset[bytes]:
    values = [value] if isinstance(value, (str, bytes)) or not isinstance(value, Collection) else list(value)
    for each in values:
        if not isinstance(each, (str, bytes)):
            raise SettingsError(f"where: {name!r} can't be {each!r}.", "A header's value is text or bytes.")
    return frozenset(each.encode() if isinstance(each, str) else each for each in values)


def unreadable(raw: Any) -> DeserializationError:
    return unreadable_headers(Message(raw))
