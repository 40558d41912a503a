"""Penstock: a distributed message queue that speaks the Kafka protocol.

The names of the Python client are here too: `from penstock import Producer, Consumer`. They are loaded when they are
asked for, so that a broker pays nothing for them.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.client import *  # noqa: F403

__version__ = "0.1.0"


def __getattr__(name: str) -> object:
    """What is neither a module of this package nor a name of Python's own may be one of the client's."""
    is_of_python = name.startswith("__") and name != "__all__"
    if is_of_python or find_spec(f"{__name__}.{name}") is not None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from penstock import client

    if name != "__all__" and name not in client.__all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(client, name)
