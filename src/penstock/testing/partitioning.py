"""Which partition a message goes to, by the rules of Kafka's own clients: a key's hash, or one after the other."""

from __future__ import annotations

import struct
from collections import Counter

MIX, MASK, SEED = 0x5BD1E995, 0xFFFFFFFF, 0x9747B28C


class Partitioner:
    def __init__(self) -> None:
        self._turns: Counter[str] = Counter()

    def choose(self, topic: str, key: bytes | None, count: int) -> int:
        if key is not None:
            return (murmur2(key) & 0x7FFFFFFF) % count
        self._turns[topic] += 1
        return (self._turns[topic] - 1) % count


def murmur2(key: bytes) -> int:
    hashed = SEED ^ len(key)
    whole = len(key) & ~3
    for word in struct.unpack_from(f"<{whole >> 2}I", key):
        word = word * MIX & MASK
        word ^= word >> 24
        hashed = (hashed * MIX & MASK) ^ (word * MIX & MASK)
    if whole != len(key):
        hashed = (hashed ^ int.from_bytes(key[whole:], "little")) * MIX & MASK
    hashed = (hashed ^ hashed >> 13) * MIX & MASK
    return hashed ^ hashed >> 15
