"""The topics in which a group's messages wait: a tier for each delay, and the dead letters. Pure, but for `ensure`.

A copy has the partition number of its origin, so that messages of one key stay in one partition, in order. The names
hold topic and group, which do not tell where one ends and the other begins: `a.b` of `c` and `a` of `b.c` share topics.
That does no harm, because a copy's headers name both, and each group goes past what is not its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from penstock.client.errors import BadName
from penstock.client.retrying.policy import UNITS_MS, spoken

NAME_MAX = 249
DEAD_LETTER_SUFFIX = ".dlq"


@dataclass(frozen=True, slots=True)
class Tier:
    topic: str
    delay_ms: int


@dataclass(frozen=True, slots=True)
class Places:
    """Where messages of one topic go that a group can't handle."""

    origin: str
    tiers: tuple[Tier, ...]
    dead_letters: str | None

    def tier(self, delay_ms: int) -> Tier:
        return next(each for each in self.tiers if each.delay_ms == delay_ms)

    @property
    def names(self) -> list[str]:
        named = [each.topic for each in self.tiers]
        return named if self.dead_letters is None else [*named, self.dead_letters]


def places(origin: str, group: str, tiers_ms: Iterable[int], dead_letter: bool | str) -> Places:
    tiers = tuple(Tier(_named(f"{origin}.{group}.retry.{spoken(each)}", origin, group), each) for each in tiers_ms)
    if isinstance(dead_letter, str):
        return Places(origin, tiers, dead_letter)
    return Places(
        origin, tiers, _named(f"{origin}.{group}{DEAD_LETTER_SUFFIX}", origin, group) if dead_letter else None
    )


def is_tier(name: str, origin: str, group: str) -> bool:
    """Whether it is called as one, of whatever policy: those of earlier ones are read too."""
    delay = name.removeprefix(f"{origin}.{group}.retry.")
    return delay != name and re.fullmatch(rf"\d+({'|'.join(UNITS_MS)})", delay) is not None


def _named(name: str, origin: str, group: str) -> str:
    if len(name) > NAME_MAX:
        raise BadName(
            f"the topic {name[:60]}… would have a name of {len(name)} characters, and {NAME_MAX} is the most.",
            f"It is made of the topic ({len(origin)}) and the group ({len(group)}): shorten one of them.",
        )
    if not re.fullmatch(r"[A-Za-z0-9._-]+", name):
        raise BadName(
            f"the group {group!r} would be part of the topic {name!r}, which can't be a topic's name.",
            "With retry or dead_letter, a group's name has letters, digits, '.', '_' and '-' only.",
        )
    return name
