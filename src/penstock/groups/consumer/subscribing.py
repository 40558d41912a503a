"""Which topics a group reads: by name, and by pattern (SubscribedTopicRegex).

A pattern is held against all topics when somebody first subscribes with it, and again when topics have changed, but not
more often than every `consumer_regex_refresh_interval_ms`. A name that it was held against once is not looked at again.
What it matched is stored, so that a new coordinator gives nobody less than the last one did.
"""

from __future__ import annotations

from penstock.groups.consumer.draft import Draft
from penstock.groups.consumer.group import ConsumerGroup, Matches, ResolvedPattern
from penstock.groups.consumer.records import group_epoch_record, pattern_record
from penstock.groups.patterns import compile_pattern
from penstock.groups.turn import Turn
from penstock.protocol.errors import ApiError

NOTHING_SEEN = Matches(frozenset(), frozenset())
PATTERNS_PER_HEARTBEAT = 4


def update_subscription(turn: Turn, draft: Draft, *, has_changed: bool) -> None:
    """Begins a group epoch if the members' subscriptions, or the topics that they mean, are others than they were."""
    group = draft.group
    matches_changed = _update_patterns(turn, draft)
    must_bump = has_changed or matches_changed or group.group_epoch == 0
    if not must_bump and group.topics_generation == turn.topics.generation:
        return
    group.topics_generation = turn.topics.generation
    draft.metadata_hash = turn.topics.hash_of(draft.topic_names())
    if must_bump or draft.metadata_hash != group.metadata_hash:
        draft.group_epoch = group.group_epoch + 1
        draft.records.append(group_epoch_record(group.group_id, draft.group_epoch, draft.metadata_hash))


def drop_unused_patterns(draft: Draft) -> None:
    unused = [regex for regex in draft.resolved if not draft.uses_regex(regex)]
    if not unused:
        return
    draft.resolved = {regex: each for regex, each in draft.resolved.items() if regex not in unused}
    draft.records += [pattern_record(draft.group.group_id, regex, None) for regex in unused]


def _update_patterns(turn: Turn, draft: Draft) -> bool:
    """Whether a pattern that is in use matches other topics than it did."""
    group = draft.group
    regex = draft.member.topic_regex if draft.member is not None else None
    if not regex and not group.resolved:
        return False
    drop_unused_patterns(draft)
    changed = False
    if regex and regex not in draft.resolved:
        _resolve(turn, draft, regex)
        changed = True
    if _refresh_is_due(turn, group):
        changed |= _refresh(turn, draft)
    return changed


def _refresh(turn: Turn, draft: Draft) -> bool:
    """A few patterns at a time, so that nobody waits long and what has changed fits in an append. The next heartbeat
    goes on."""
    group, names = draft.group, turn.topics.names()
    behind = [regex for regex in draft.resolved if group.matches.get(regex, NOTHING_SEEN).seen != names]
    if len(behind) <= PATTERNS_PER_HEARTBEAT:
        group.patterns_generation = turn.topics.generation
        group.patterns_resolved_ms = turn.now_ms
    changed = False
    for regex in behind[:PATTERNS_PER_HEARTBEAT]:
        changed |= _resolve_again(turn, draft, regex)
    return changed


def _resolve_again(turn: Turn, draft: Draft, regex: str) -> bool:
    """A pattern that another coordinator could read, and this one can't, goes on to mean what it meant there."""
    try:
        return _resolve(turn, draft, regex)
    except ApiError:
        draft.group.matches[regex] = Matches(turn.topics.names(), frozenset())
        return False


def _refresh_is_due(turn: Turn, group: ConsumerGroup) -> bool:
    if group.patterns_generation == turn.topics.generation:
        return False
    since_ms = group.patterns_resolved_ms
    return since_ms is None or turn.now_ms - since_ms >= turn.config.consumer_regex_refresh_interval_ms


def _resolve(turn: Turn, draft: Draft, regex: str) -> bool:
    matched = _match(turn, draft.group, regex)
    before = draft.resolved.get(regex)
    if before is not None and before.topics == matched:
        return False
    resolved = ResolvedPattern(matched, turn.topics.generation, turn.now_ms)
    draft.resolved = {**draft.resolved, regex: resolved}
    draft.records.append(pattern_record(draft.group.group_id, regex, resolved))
    return True


def _match(turn: Turn, group: ConsumerGroup, regex: str) -> frozenset[str]:
    """Compiled anew each time, which is seldom: a compiled pattern may be large."""
    names = turn.topics.names()
    known = group.matches.get(regex, NOTHING_SEEN)
    pattern = compile_pattern(regex)
    matched = known.matched & names | {name for name in names - known.seen if pattern.matches(name)}
    group.matches[regex] = Matches(names, matched)
    return matched
