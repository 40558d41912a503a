"""What tests give to the kit, looked at before it gets further: what can't be is a `BadArgument` that says what can."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from typing import Any

Headers = Mapping[str, Any] | Iterable[tuple[str, Any]]
HEADERS_HINT = "headers are a dict, or a list of pairs, from text to bytes, text, None or JSON"
TIMESTAMP_MS_MAX = 2**63 - 1


class BadArgument(ValueError, TypeError):
    """A test has given something that can't be: mend the test, the text says how."""


def check_text(value: object, what: str) -> str:
    if not isinstance(value, str):
        raise BadArgument(f"{what} is text, not {value!r}")
    return value


def check_int(value: object, what: str, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise BadArgument(f"{what} is a whole number from {least} on, not {value!r}")
    return value


def check_number(value: object, what: str, more_than: float = -math.inf) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not more_than < value < math.inf:
        limit = "" if more_than == -math.inf else f" of more than {more_than:g}"
        raise BadArgument(f"{what} is a number{limit}, such as 0.5, not {value!r}")
    return value


def check_timestamp(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= TIMESTAMP_MS_MAX:
        raise BadArgument(
            f"timestamp_ms is milliseconds since 1970, a whole number such as penstock.now_ms, not {value!r}"
        )
    return value


def as_bytes(value: Any) -> bytes | None:
    """Bytes and None as they are, text as UTF-8, anything else as JSON."""
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, bytearray | memoryview):
        return bytes(value)
    try:
        return value.encode() if isinstance(value, str) else json.dumps(value).encode()
    except UnicodeEncodeError:
        raise BadArgument(f"{value!r} can't be UTF-8: give its bytes") from None
    except (TypeError, ValueError, RecursionError):
        raise BadArgument(f"a {type(value).__name__} can't be a message: give bytes, text, None or JSON") from None


def as_headers(headers: Headers | None) -> tuple[tuple[str, bytes | None], ...]:
    if isinstance(headers, str | bytes):
        raise BadArgument(f"{headers!r} is no headers: {HEADERS_HINT}")
    try:
        pairs = [(name, value) for name, value in (headers.items() if isinstance(headers, Mapping) else headers or ())]
    except (TypeError, ValueError):
        raise BadArgument(f"{headers!r} is no headers: {HEADERS_HINT}") from None
    for name, _ in pairs:
        if not isinstance(name, str):
            raise BadArgument(f"the name of a header is text, not {name!r}: {HEADERS_HINT}")
    return tuple((name, as_bytes(value)) for name, value in pairs)
