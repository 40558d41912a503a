"""The way to ZooKeeper, for a person who waits: what is waited for is said meanwhile, and in the end what to do."""

from __future__ import annotations

import asyncio
import logging

from penstock.cluster.coordination import CoordinationError, Disconnected
from penstock.cluster.zookeeper import CONNECT_TIMEOUT_MS, SESSION_TIMEOUT_MS, ZooKeeperStore

log = logging.getLogger("penstock.broker")

TOLD_AFTER_S = 1.5
DEFAULT_PORT = "2181"


async def open_zookeeper(
    connect: str, session_timeout_ms: int = SESSION_TIMEOUT_MS, connect_timeout_ms: int = CONNECT_TIMEOUT_MS
) -> ZooKeeperStore:
    hosts = connect.partition("/")[0]
    telling = asyncio.get_running_loop().call_later(
        TOLD_AFTER_S, log.warning, "waiting for ZooKeeper at %s, for up to %g s", hosts, connect_timeout_ms / 1000
    )
    try:
        return await ZooKeeperStore.open(connect, session_timeout_ms, connect_timeout_ms)
    except Disconnected as error:
        raise Disconnected(f"{error}. {_advice(hosts)}") from None
    except ValueError as error:  # no address at all
        raise CoordinationError(str(error)) from None
    finally:
        telling.cancel()


def _advice(hosts: str) -> str:
    """One line without an end: it may become part of a log line, or of a sentence."""
    host, separator, port = hosts.partition(",")[0].rpartition(":")
    first = f"{host} {port}" if separator else f"{port} {DEFAULT_PORT}"
    return (
        "Check that it runs, that this is its address, and that this machine can reach it: "
        f"'echo srvr | nc {first}' shows its mode. 'penstock cluster start' brings one of its own, on this machine"
    )
