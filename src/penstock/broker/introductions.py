"""How brokers know each other from clients, before anything was asked: by their client ids.

The id ends with the name of the broker's folder, which was drawn at random and stands in its announcement: whoever can
read that could do anything to the cluster, and a client can't.
"""

from __future__ import annotations

from collections.abc import Mapping

from penstock.cluster.model import BrokerState


def client_id_of(node_id: int, folder: str) -> str:
    return f"penstock-broker-{node_id}/{folder}"


def is_broker(client_id: str, brokers: Mapping[int, BrokerState]) -> bool:
    return any(each.folder and client_id == client_id_of(each.node_id, each.folder) for each in brokers.values())
