"""Names that tests give: an unknown one is a `BadArgument` that says which ones are near."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

from penstock.protocol.errors import ErrorCode
from penstock.server.routing import HANDLERS
from penstock.testing.arguments import BadArgument

SHOWN_MAX = 3

APIS: dict[str, int] = {route.request.__name__.removesuffix("Request"): key for key, route in HANDLERS.items()}


def api_key(name: str) -> int:
    if not isinstance(name, str) or name not in APIS:
        raise unknown(f"no API is called {name!r}", name, APIS)
    return APIS[name]


def error_code(name: str) -> ErrorCode:
    if not isinstance(name, str) or name not in ErrorCode.__members__ or name == ErrorCode.NONE.name:
        errors = [each for each in ErrorCode.__members__ if each != ErrorCode.NONE.name]
        raise unknown(f"no error is called {name!r}", name, errors)
    return ErrorCode[name]


def unknown(what: str, name: object, known: Iterable[str]) -> BadArgument:
    """To be raised."""
    spellings = {_plain(each): each for each in known}
    near = [spellings[each] for each in get_close_matches(_plain(str(name)), spellings, SHOWN_MAX, 0.5)]
    hint = f"did you mean {' or '.join(near)}?" if near else f"there are {', '.join(sorted(spellings.values()))}"
    return BadArgument(f"{what}: {hint}" if spellings else what)


def _plain(name: str) -> str:
    return name.lower().replace("_", "")
