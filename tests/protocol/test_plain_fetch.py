"""What is written without the codec is what the codec writes, and what is read is what it reads, or nothing."""

from __future__ import annotations

import struct

from hypothesis import given
from hypothesis import strategies as st

from penstock.protocol import plain_fetch
from penstock.protocol.codec import encode_bytes
from penstock.protocol.errors import ErrorCode
from penstock.protocol.framing import response_frame
from penstock.protocol.messages.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
    ReplicaState,
)
from penstock.protocol.plain_fetch import Answered, Asked

INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
TOPIC_IDS = st.binary(min_size=16, max_size=16)
ASKED = st.lists(st.tuples(TOPIC_IDS, INT32, INT32, INT64, INT32, INT64, INT32), max_size=6)
ANSWERED = st.lists(st.tuples(TOPIC_IDS, INT32, INT64, INT64, st.binary(max_size=300)), max_size=6)


def by_topic(asked: list[Asked]) -> list[Asked]:
    """A request names each topic once."""
    first: dict[bytes, int] = {}
    for topic_id, *_ in asked:
        first.setdefault(topic_id, len(first))
    return sorted(asked, key=lambda each: first[each[0]])


def request(asked: list[Asked]) -> FetchRequest:
    topics: dict[bytes, FetchTopic] = {}
    for topic_id, index, epoch, offset, last_epoch, start, size_max in asked:
        partition = FetchPartition(
            partition=index, current_leader_epoch=epoch, fetch_offset=offset, last_fetched_epoch=last_epoch,
            log_start_offset=start, partition_max_bytes=size_max,
        )  # fmt: skip
        topics.setdefault(topic_id, FetchTopic(topic_id=topic_id)).partitions.append(partition)
    state = ReplicaState(replica_id=2, replica_epoch=77)
    return FetchRequest(
        replica_state=state, max_wait_ms=500, min_bytes=1, max_bytes=1 << 20, session_id=3, session_epoch=9,
        topics=list(topics.values()),
    )  # fmt: skip


def response(answered: list[Answered]) -> FetchResponse:
    topics: dict[bytes, FetchableTopicResponse] = {}
    for topic_id, index, high_watermark, start, records in answered:
        data = PartitionData(
            partition_index=index, high_watermark=high_watermark, log_start_offset=start, aborted_transactions=None,
            records=records,
        )  # fmt: skip
        topics.setdefault(topic_id, FetchableTopicResponse(topic_id=topic_id)).partitions.append(data)
    return FetchResponse(session_id=3, responses=list(topics.values()))


@given(ASKED.map(by_topic))
def test_a_request_is_as_the_codec_writes_it(asked: list[Asked]) -> None:
    message = request(asked)
    head, tail = plain_fetch.request_ends(message)
    written = head + plain_fetch.write_asked(3, 9, asked) + tail
    assert written == encode_bytes(message, plain_fetch.VERSION)
    at = len(head) + 8
    assert plain_fetch.read_asked(bytearray(written), at, len(written) - len(tail)) == asked


@given(ANSWERED.map(by_topic))
def test_an_answer_is_as_the_codec_writes_it(answered: list[Answered]) -> None:
    frame = b"".join(plain_fetch.write_answer(5, 3, answered))
    assert frame == b"".join(map(bytes, response_frame(response(answered), plain_fetch.VERSION, 5)))
    assert plain_fetch.read_answer(memoryview(frame)[4:]) == (5, 3, answered)


class Range:
    """Records that are not in memory."""

    def __len__(self) -> int:
        return 1000


def test_records_in_files_stay_there() -> None:
    held = Range()
    answered: list[Answered] = [(b"t" * 16, 0, 5, 0, held), (b"t" * 16, 1, 5, 0, b"abc"), (b"u" * 16, 0, 5, 0, held)]
    parts = plain_fetch.write_answer(5, 3, answered)
    assert [part for part in parts if part is held] == [held, held]
    (size,) = struct.unpack_from(">i", parts[0])
    assert size + 4 == sum(map(len, parts))


@given(ASKED.filter(bool).map(by_topic), st.data())
def test_a_request_that_is_cut_is_not_read(asked: list[Asked], data: st.DataObject) -> None:
    written = bytearray(plain_fetch.write_asked(3, 9, asked)[8:])
    stop = data.draw(st.integers(0, len(written) - 1))
    assert plain_fetch.read_asked(written[:stop], 0, stop) is None


@given(ANSWERED.filter(bool).map(by_topic), st.data())
def test_an_answer_that_is_cut_is_not_read(answered: list[Answered], data: st.DataObject) -> None:
    frame = b"".join(plain_fetch.write_answer(5, 3, answered))[4:]
    stop = data.draw(st.integers(0, len(frame) - 1))
    assert plain_fetch.read_answer(memoryview(frame[:stop])) is None


def test_what_is_not_plain_is_left_to_the_codec() -> None:
    plain: list[Answered] = [(b"t" * 16, 0, 5, 0, b"abc")]
    failed, refused, parted = response(plain), response(plain), response(plain)
    failed.error_code = ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    refused.responses[0].partitions[0].error_code = ErrorCode.FENCED_LEADER_EPOCH
    parted.responses[0].partitions[0].diverging_epoch = EpochEndOffset(epoch=1, end_offset=2)
    for message in (failed, refused, parted):
        frame = b"".join(map(bytes, response_frame(message, plain_fetch.VERSION, 5)))
        assert plain_fetch.read_answer(memoryview(frame)[4:]) is None

    asked: list[Asked] = [(b"t" * 16, 0, 1, 5, 1, 0, 100)]
    message = request(asked)
    head, tail = plain_fetch.request_ends(message)
    message.forgotten_topics_data = [ForgottenTopic(topic_id=b"u" * 16, partitions=[1])]
    body = encode_bytes(message, plain_fetch.VERSION)
    assert plain_fetch.read_asked(bytearray(body), len(head) + 8, len(body) - len(tail)) is None
