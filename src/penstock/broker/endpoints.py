"""Where a broker listens, and where its clients are told to connect: on each listener its own.

A broker behind an address translation, or in a container, has a listener for each network from which it is reached;
its clients learn the addresses of the listener they came through.
"""

from __future__ import annotations

from typing import NamedTuple

from penstock.cluster.settings import BrokerSettings

DEFAULT_LISTENER = "PLAINTEXT"
LISTENERS_MAX = 16


class BadAddress(Exception):
    """The message says what is expected."""


class Place(NamedTuple):
    """A listener; without an advertised address clients are told where it listens."""

    name: str
    host: str
    port: int
    advertised: tuple[str, int] | None


def places(settings: BrokerSettings) -> list[Place]:
    """Raises BadAddress."""
    advertised = dict(map(_named, settings.get("advertised.listeners")))
    listeners = [_named(text) for text in settings.get("listeners")]
    if not listeners:
        listeners = [(DEFAULT_LISTENER, host_and_port(settings.get("listen")))]
        if settings.get("advertised"):
            advertised.setdefault(DEFAULT_LISTENER, host_and_port(settings.get("advertised")))
    names = [name for name, _ in listeners]
    if len(set(names)) != len(names) or len(names) > LISTENERS_MAX:
        raise BadAddress(f"each listener needs a name of its own, and there can be {LISTENERS_MAX}: {', '.join(names)}")
    if unknown := sorted(advertised.keys() - set(names)):
        raise BadAddress(f"advertised.listeners names {unknown[0]}, but there is no such listener")
    between = settings.get("inter.broker.listener.name")
    if between is not None and between not in names:
        raise BadAddress(f"inter.broker.listener.name is {between}, but there is no such listener")
    return [Place(name, host, port, advertised.get(name)) for name, (host, port) in listeners]


def between_brokers(settings: BrokerSettings) -> str:
    """The name of the listener that brokers use among themselves."""
    return settings.get("inter.broker.listener.name") or places(settings)[0].name


def reachable(host: str) -> str:
    """What clients on this machine can dial when the broker listens on every address."""
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)


def host_and_port(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not host or not port.isdigit() or int(port) > 65535:
        raise BadAddress(f"{text!r} is not HOST:PORT, such as 127.0.0.1:9092")
    return host.strip("[]"), int(port)


def _named(text: str) -> tuple[str, tuple[str, int]]:
    name, found, address = text.partition("://")
    if not found or not name:
        raise BadAddress(f"{text!r} is not NAME://HOST:PORT, such as OUTSIDE://broker1.example.com:9092")
    return name, host_and_port(address)
