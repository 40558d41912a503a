"""The copy of a message that goes elsewhere, with what is known of its troubles. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from penstock.client.filtering import headers_of
from penstock.client.retrying.assigned import Assigned
from penstock.client.retrying.headers import Failure, Header, Parked, Place, iso
from penstock.client.retrying.parking import Copy

FOLLOWS = Failure("it follows an earlier message of its key, which waits", "")


@dataclass(slots=True)
class InHand:
    """A message that was read, from wherever, and is looked at now."""

    part: Assigned
    raw: Any
    offset: int
    parked: Parked | None = None
    headers: list[Header] | None = None  # the user's; not looked at while nothing is wrong
    attempts: int = 0  # before the one at hand

    @property
    def origin_offset(self) -> int:
        return self.offset if self.parked is None else self.parked.origin.offset


def copy_of(
    hand: InHand, group: str, topic: str, partitions: int, failure: Failure, due_at_ms: int | None, now_ms: int
) -> Copy:
    raw, now = hand.raw, iso(now_ms)
    place = Place(*hand.part.key, hand.offset)
    earlier = hand.parked
    has_failed = failure is not FOLLOWS
    first_failed_at = (earlier.first_failed_at if earlier is not None else "") or (now if has_failed else "")
    parked = Parked(  # by position: by name it takes twice as long
        place if earlier is None else earlier.origin,
        group,
        raw.timestamp()[1] if earlier is None else earlier.timestamp_ms,
        hand.attempts,
        failure,
        first_failed_at,
        now if has_failed else "",
        due_at_ms,
        place,
    )
    headers = (headers_of(raw) or []) if hand.headers is None else hand.headers
    return Copy(topic, parked.origin.partition % partitions, raw.key(), raw.value(), headers, parked)
