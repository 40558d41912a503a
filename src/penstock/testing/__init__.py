"""A broker for other people's tests: real, in their process, empty for each test, and ready in milliseconds.

`PenstockBroker` and `PenstockCluster` run the same broker that `penstock start` does, given a world whose clock can be
moved and whose answers can be made to fail. `message` makes what a handler is given. What pytest needs is in `plugin`.
Nothing in the other rooms knows of this one, and nothing of the others is imported before a broker is asked for: pytest
loads the plugin in every run.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.testing.arguments import BadArgument
    from penstock.testing.broker import PenstockBroker
    from penstock.testing.cluster import PenstockCluster
    from penstock.testing.handlers import message
    from penstock.testing.messages import StoredMessage

__all__ = ["BadArgument", "PenstockBroker", "PenstockCluster", "StoredMessage", "message"]

_HOMES = {
    "BadArgument": "arguments",
    "PenstockBroker": "broker",
    "PenstockCluster": "cluster",
    "StoredMessage": "messages",
    "message": "handlers",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
