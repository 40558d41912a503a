"""What topics, groups and brokers may be called, checked before a broker is asked."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable

from penstock.client.errors import BadName, SettingsError, UsageError

BOOTSTRAP_VARIABLE = "PENSTOCK_BOOTSTRAP"
DEFAULT_BOOTSTRAP = "127.0.0.1:9092"
NAME_LENGTH_MAX = 249

_LEGAL = re.compile(r"[a-zA-Z0-9._-]+")
_TOPIC_HINT = f"A topic's name has letters, digits, '.', '_' and '-', and at most {NAME_LENGTH_MAX} of them."
_TOPICS_HINT = "Consumer(group='billing', topics=['orders'])"


def check_timeout(timeout: float | None) -> None:
    """For the arguments of that name, where None is for ever."""
    if timeout is not None and (isinstance(timeout, bool) or not isinstance(timeout, int | float)):
        raise UsageError(f"timeout={timeout!r} is no number of seconds.", "For example: timeout=0.5")


def check_topic(name: str, said: str = "") -> str:
    """`said` is what comes first in the error, where it is not plain whose name this is."""
    if not isinstance(name, str):
        raise BadName(f"a topic's name is text, not {type(name).__name__}.", _TOPIC_HINT)
    if name in ("", ".", "..") or len(name) > NAME_LENGTH_MAX or not _LEGAL.fullmatch(name):
        shown = name if len(name) <= 80 else f"{name[:80]}…"
        raise BadName(f"{said}a topic can't be called {shown!r}.", _TOPIC_HINT)
    return name


def check_topics(topics: str | Iterable[str]) -> list[str]:
    """One topic or several. A name that begins with '^' is a regular expression over the names of all topics."""
    if not isinstance(topics, Iterable):
        raise BadName(f"topics={topics!r} names no topic.", _TOPICS_HINT)
    names = [topics] if isinstance(topics, str) else list(topics)
    if not names:
        raise BadName("a consumer needs a topic to read.", _TOPICS_HINT)
    for name in names:
        if not isinstance(name, str) or not name.startswith("^"):
            check_topic(name)
        elif not _is_text(name):
            raise BadName(f"{name!r} is no regular expression: it has surrogates.", _TOPIC_HINT)
    return names


def _is_text(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def check_group(name: str) -> str:
    if not isinstance(name, str) or not name.strip():
        raise BadName(
            f"a group can't be called {name!r}.",
            "It is a name that is not empty; consumers with the same name share the partitions.",
        )
    return name


def find_bootstrap(given: str | None) -> str:
    """Who is asked first: what was given, or $PENSTOCK_BOOTSTRAP, or the port where a broker listens by default."""
    if given is None:
        given = os.environ.get(BOOTSTRAP_VARIABLE) or DEFAULT_BOOTSTRAP
    if not isinstance(given, str) or not given.strip():
        raise SettingsError(f"bootstrap={given!r} names no broker.", "For example: bootstrap='127.0.0.1:9092'")
    for address in given.split(","):
        _check_address(address.strip())
    return given


def _check_address(address: str) -> None:
    host, _, port = address.rpartition("://")[2].rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65_536:
        raise SettingsError(f"bootstrap: {address!r} is not HOST:PORT.", "For example: bootstrap='127.0.0.1:9092'")
