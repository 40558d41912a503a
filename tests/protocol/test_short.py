"""What the short ways do with bytes, in C and in Python alike: codec and batch reader say what is right."""

from __future__ import annotations

import struct
import subprocess
import sys
from types import ModuleType

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from penstock.protocol import pure_short, short
from penstock.protocol.codec import encode_bytes
from penstock.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from penstock.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from penstock.protocol.record_batch import HEADER, HEADER_SIZE, Record, build_batch, read_header, read_records
from penstock.protocol.wire import uvarint

TWINS: list[ModuleType] = [pure_short]
if short.COMPILED:
    from penstock.protocol import _short

    TWINS.append(_short)

INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)

CLIENT = b"\0\x05blast"
twins = pytest.mark.parametrize("twin", TWINS, ids=lambda twin: twin.__name__.rpartition(".")[2])


def produce(version: int, index: int, records: bytes, correlation_id: int = 7) -> bytearray:
    """A whole frame."""
    data = PartitionProduceData(index=index, records=memoryview(records))
    topic = TopicProduceData(name="t" if version < 13 else "", topic_id=bytes(16), partition_data=[data])
    body = encode_bytes(ProduceRequest(acks=1, timeout_ms=1000, topic_data=[topic]), version)
    tags = b"\0" if version >= 9 else b""
    frame = struct.pack(">hhi", 0, version, correlation_id) + CLIENT + tags + body
    return bytearray(struct.pack(">i", len(frame)) + frame)


def shape(twin: ModuleType, version: int) -> pure_short.ProduceShape:
    """Of the frames above."""
    marked = produce(version, 0x7EADBEEF, b"")
    prefix = bytes(marked[12 : marked.index(struct.pack(">i", 0x7EADBEEF))])
    found: pure_short.ProduceShape = twin.ProduceShape(version, prefix, version >= 9)
    return found


def batch(values: int = 3, size: int = 10) -> bytearray:
    return bytearray(build_batch([Record(n, 5 + n, None, bytes(size)) for n in range(values)]))


@twins
@pytest.mark.parametrize("version", [8, 9, 12, 13])
@given(
    index=INT32, correlation_id=INT32, size=st.integers(1, 40_000), before=st.integers(0, 30), behind=st.integers(0, 30)
)
@example(index=0, correlation_id=0, size=126, before=0, behind=0)
@example(index=0, correlation_id=0, size=127, before=0, behind=0)
@example(index=0, correlation_id=0, size=16_382, before=0, behind=0)
@example(index=0, correlation_id=0, size=16_383, before=0, behind=0)
def test_a_request_of_the_kind_says_what_is_its_own(
    twin: ModuleType, version: int, index: int, correlation_id: int, size: int, before: int, behind: int
) -> None:
    frame = produce(version, index, bytes(size), correlation_id)
    data = bytearray(before) + frame + bytearray(behind)
    found = shape(twin, version).match(data, before, before + len(frame))
    assert found is not None
    at = before + frame.index(bytes(size))
    assert found[:2] == (correlation_id, index)
    assert found[3] - found[2] == size
    assert found[3] == before + len(frame) - (3 if version >= 9 else 0)
    assert at <= found[2]


@twins
@pytest.mark.parametrize("version", [8, 9, 13])
def test_a_request_of_another_kind_is_none(twin: ModuleType, version: int) -> None:
    frame, known = produce(version, 1, bytes(100)), shape(twin, version)
    assert known.match(frame, 0, len(frame)) is not None
    for at in [5, 7, *range(12, frame.index(struct.pack(">i", 1), 12))]:  # key, version, everything before the index
        other = bytearray(frame)
        other[at] ^= 1
        assert known.match(other, 0, len(other)) is None, at
    for stop in range(len(frame)):
        assert known.match(frame, 0, stop) is None, stop
    assert known.match(frame + b"\0", 0, len(frame) + 1) is None
    assert known.match(frame, 0, len(frame) + 1) is None, "it ends behind the buffer"
    assert known.match(frame, -1, len(frame)) is None
    assert known.match(produce(version, 1, bytes(3_000_000)), 0, 20) is None


@twins
@pytest.mark.parametrize("length", [0x7FFFFFFF, 0xFFFFFFFF, 0x80000000, 0])
def test_a_length_that_lies_is_none(twin: ModuleType, length: int) -> None:
    frame = produce(8, 1, bytes(100))
    at = frame.index(struct.pack(">i", 100), 12)
    frame[at : at + 4] = struct.pack(">I", length)
    assert shape(twin, 8).match(frame, 0, len(frame)) is None


@twins
def test_no_records_are_not_those_of_length_nothing(twin: ModuleType) -> None:
    body = bytearray(produce(9, 1, b"")[:-4])
    none, empty = body + bytes(4), body + b"\1" + bytes(3)
    assert shape(twin, 9).match(none, 0, len(none)) is None
    assert shape(twin, 9).match(empty, 0, len(empty)) == (7, 1, len(body) + 1, len(body) + 1)


@twins
@given(values=st.integers(1, 40), size=st.integers(0, 300), before=st.integers(0, 9), behind=st.integers(0, 9))
def test_a_batch_is_read_as_its_own_reader_does(
    twin: ModuleType, values: int, size: int, before: int, behind: int
) -> None:
    whole = batch(values, size)
    header = read_header(whole)
    data = bytearray(before) + whole + bytearray(behind)
    for buffer in (data, memoryview(data), memoryview(bytes(data))):
        sound, base, length, epoch, magic, attributes, delta, newest, producer, *rest = twin.open_batch(buffer, before)
        assert sound is True
        assert (base, length, epoch, magic) == (0, len(whole) - 12, HEADER.unpack_from(whole)[2], 2)
        assert (attributes, delta, newest) == (header.attributes, values - 1, header.max_timestamp)
        assert (producer, *rest) == (-1, -1, -1, values)
    if behind == 0:
        assert not twin.open_batch(data[:-1], before)[0], "it is not whole"


@twins
@given(header=st.binary(min_size=HEADER_SIZE, max_size=HEADER_SIZE + 50))
def test_what_is_no_batch_is_not_sound_and_read_all_the_same(twin: ModuleType, header: bytes) -> None:
    fields = HEADER.unpack_from(header)
    assert twin.open_batch(bytearray(header), 0) == (
        False, fields[0], fields[1], fields[2], fields[3], fields[5], fields[6], *fields[8:]
    )  # fmt: skip


@twins
def test_every_flipped_bit_under_the_checksum_is_seen(twin: ModuleType) -> None:
    whole = batch()
    for at in range(17, len(whole)):
        whole[at] ^= 4
        assert not twin.open_batch(whole, 0)[0]
        whole[at] ^= 4
    assert twin.open_batch(whole, 0)[0]


@twins
@pytest.mark.parametrize("at", [-1, 1, 61, 2**40])
def test_there_must_be_room_for_a_header(twin: ModuleType, at: int) -> None:
    with pytest.raises(ValueError):
        twin.open_batch(bytearray(HEADER_SIZE), at)


@twins
@given(base_offset=INT64, leader_epoch=INT32)
def test_a_stamp_changes_offset_and_epoch_alone(twin: ModuleType, base_offset: int, leader_epoch: int) -> None:
    whole = batch()
    stamped = bytearray(whole)
    twin.stamp(memoryview(stamped), base_offset, leader_epoch)
    assert stamped[:8] == struct.pack(">q", base_offset)
    assert stamped[12:16] == struct.pack(">i", leader_epoch)
    assert stamped[8:12] + stamped[16:] == whole[8:12] + whole[16:]
    assert twin.open_batch(stamped, 0)[:4] == (True, base_offset, len(whole) - 12, leader_epoch)


@twins
def test_what_is_too_short_or_read_only_is_not_stamped(twin: ModuleType) -> None:
    for refused in (memoryview(bytearray(HEADER_SIZE - 1)), memoryview(bytes(HEADER_SIZE))):
        with pytest.raises(ValueError):
            twin.stamp(refused, 1, 1)


@twins
@given(correlation_id=INT32, numbers=st.tuples(INT64, INT64, INT64), at=st.integers(8, 20))
def test_an_answer_is_its_shape_with_other_numbers(
    twin: ModuleType, correlation_id: int, numbers: tuple[int, int, int], at: int
) -> None:
    frame = bytes(range(50))
    filled = twin.AnswerShape(frame, at).fill(correlation_id, *numbers)
    assert filled == (
        frame[:4] + struct.pack(">i", correlation_id) + frame[8:at] + struct.pack(">qqq", *numbers) + frame[at + 24 :]
    )
    assert frame == bytes(range(50)), "the shape stays"


@twins
@pytest.mark.parametrize("at", [-1, 0, 7, 27, 2**40])
def test_the_numbers_of_an_answer_stand_within_it(twin: ModuleType, at: int) -> None:
    with pytest.raises(ValueError):
        twin.AnswerShape(bytes(50), at)


def fetch(version: int, asked: tuple[int, int, int, int, int], correlation_id: int = 7) -> bytearray:
    index, epoch, offset, last_epoch, max_bytes = asked
    partition = FetchPartition(
        partition=index, current_leader_epoch=epoch, fetch_offset=offset, last_fetched_epoch=last_epoch,
        log_start_offset=-1, partition_max_bytes=max_bytes,
    )  # fmt: skip
    topic = FetchTopic(topic="t" if version < 13 else "", topic_id=bytes(16), partitions=[partition])
    body = encode_bytes(FetchRequest(max_wait_ms=1, min_bytes=1, session_epoch=-1, topics=[topic]), version)
    tags = b"\0" if version >= 12 else b""
    frame = struct.pack(">hhi", 1, version, correlation_id) + CLIENT + tags + body
    return bytearray(struct.pack(">i", len(frame)) + frame)


def fetch_shape(twin: ModuleType, version: int) -> pure_short.FetchShape:
    marked = fetch(version, (0x7EADBEEF, 1, 2, 3, 4))
    at = marked.index(struct.pack(">i", 0x7EADBEEF))
    tail = marked[at + (32 if version >= 12 else 28) :]
    found: pure_short.FetchShape = twin.FetchShape(version, bytes(marked[12:at]), bytes(tail), version >= 12)
    return found


@twins
@pytest.mark.parametrize("version", [9, 11, 12, 13, 17])
@given(asked=st.tuples(INT32, INT32, INT64, INT32, INT32), correlation_id=INT32, before=st.integers(0, 9))
def test_a_fetch_of_the_kind_says_what_it_asks(
    twin: ModuleType, version: int, asked: tuple[int, int, int, int, int], correlation_id: int, before: int
) -> None:
    frame = fetch(version, asked, correlation_id)
    data = bytearray(before) + frame + b"behind"
    last_epoch = asked[3] if version >= 12 else -1
    expected = (correlation_id, *asked[:3], last_epoch, asked[4])
    assert fetch_shape(twin, version).match(data, before, before + len(frame)) == expected


@twins
@pytest.mark.parametrize("version", [11, 13])
def test_a_fetch_of_another_kind_is_none(twin: ModuleType, version: int) -> None:
    frame, known = fetch(version, (1, 2, 3, 4, 5)), fetch_shape(twin, version)
    index_at = frame.index(struct.pack(">ii", 1, 2))
    tail_at = index_at + (32 if version >= 12 else 28)
    for at in [5, 7, *range(12, index_at), *range(tail_at, len(frame))]:
        other = bytearray(frame)
        other[at] ^= 1
        assert known.match(other, 0, len(other)) is None, at
    for stop in range(len(frame)):
        assert known.match(frame, 0, stop) is None
    assert known.match(frame, 0, len(frame) + 1) is None
    assert known.match(frame, -1, len(frame)) is None


@twins
@pytest.mark.parametrize("flexible", [False, True])
@given(
    correlation_id=INT32, numbers=st.tuples(INT64, INT64, INT64), at=st.integers(8, 20), tail=st.binary(max_size=3),
    size=st.integers(0, 300) | st.sampled_from([126, 127, 16_382, 16_383, 16_384]),
)  # fmt: skip
def test_an_answer_with_records_knows_its_length(
    twin: ModuleType,
    flexible: bool,
    correlation_id: int,
    numbers: tuple[int, int, int],
    at: int,
    tail: bytes,
    size: int,
) -> None:
    head, records = bytes(range(50)), bytes(n % 251 for n in range(size))
    shape = twin.RecordsShape(head, at, tail, flexible)
    length = uvarint(size + 1) if flexible else struct.pack(">i", size)
    total = struct.pack(">i", 50 - 4 + len(length) + size + len(tail))
    expected = total + struct.pack(">i", correlation_id) + head[8:at] + struct.pack(">qqq", *numbers) + head[at + 24 :]
    assert shape.before(correlation_id, size, *numbers) == expected + length
    assert shape.around(correlation_id, records, *numbers) == expected + length + records + tail


@twins
def test_records_that_fit_into_no_frame_are_refused(twin: ModuleType) -> None:
    shape = twin.RecordsShape(bytes(50), 8, b"", True)
    assert len(shape.before(1, 2**31 - 60, 2, 3, 4)) == 55
    for size in (-1, 2**31 - 50, 2**40):
        with pytest.raises(ValueError):
            shape.before(1, size, 2, 3, 4)


@pytest.mark.skipif(not short.COMPILED, reason="in Python everything has a length")
def test_arguments_of_the_wrong_type_are_refused_in_c() -> None:
    for call in (
        lambda: _short.open_batch(b"bytes", 0),
        lambda: _short.open_batch(memoryview(bytearray(200))[::2], 0),
        lambda: _short.open_batch(bytearray(100), "0"),
        lambda: _short.open_batch(bytearray(100)),
        lambda: _short.stamp(bytearray(100), 1),
        lambda: _short.stamp(bytearray(100), 1, None),
        lambda: _short.ProduceShape(9, b"", True).match(bytearray(100), None, 9),
        lambda: _short.ProduceShape(9, b"", flexible=True),
        lambda: _short.ProduceShape("9", b"", True),
        lambda: _short.FetchShape(9, b"", b"", True).match(bytearray(100), None, 9),
        lambda: _short.FetchShape(9, b"", "", True),
        lambda: _short.AnswerShape("", 8),
        lambda: _short.RecordsShape(bytes(50), 8, None, True),
        lambda: _short.RecordsShape(bytes(50), 8, b"", True).before(1, 2, 3, 4),
        lambda: _short.RecordsShape(bytes(50), 8, b"", True).before(1, None, 3, 4, 5),
        lambda: _short.RecordsShape(bytes(50), 8, b"", True).around(1, 2, 3, 4, 5),
        lambda: _short.AnswerShape(bytes(50), 8).fill(1, 2, 3),
        lambda: _short.AnswerShape(bytes(50), 8).fill(1, 2, 3, None),
    ):
        with pytest.raises(TypeError):
            call()  # type: ignore[no-untyped-call]
    with pytest.raises(OverflowError):
        _short.stamp(bytearray(100), 2**63, 1)


def test_without_a_compiler_the_twin_in_python_is_taken() -> None:
    code = (
        "import sys; sys.modules['penstock.protocol._short'] = None\n"
        "from penstock.protocol import pure_short, short\n"
        "print(short.COMPILED, short.open_batch is pure_short.open_batch)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "True"]


# ---- records


@st.composite
def batches(draw: st.DrawFn) -> bytearray:
    texts = st.none() | st.binary(max_size=200)
    headers = st.lists(st.tuples(st.text(max_size=3), texts), max_size=3).map(tuple)
    rows = draw(st.lists(st.tuples(st.integers(0, 2**40), texts, texts, headers), min_size=1, max_size=8))
    return bytearray(build_batch([Record(n, time, *row) for n, (time, *row) in enumerate(rows)]))


def count_of(data: bytearray) -> int:
    return int.from_bytes(data[57:61], "big")


@twins
@given(data=batches())
def test_a_batch_has_its_records_and_no_others(twin: ModuleType, data: bytearray) -> None:
    count = count_of(data)
    newest = max(record.timestamp_ms for record in read_records(data, 0)) - int.from_bytes(data[27:35], "big")
    assert twin.newest_delta(data, count) == newest
    assert twin.newest_delta(memoryview(data), count) == newest
    for wrong in (count - 1, count + 1, -1):
        assert twin.newest_delta(data, wrong) is None
    assert twin.newest_delta(data[:-1], count) is None
    assert twin.newest_delta(data + b"\0", count) is None
    assert twin.newest_delta(data[:60], 1) is None
    assert twin.newest_delta(data[:HEADER_SIZE], 0) is None


@given(data=batches(), where=st.integers(0, 10**6), byte=st.integers(0, 255), count=st.integers(-1, 9))
def test_both_say_the_same_of_whatever_stands_there(data: bytearray, where: int, byte: int, count: int) -> None:
    data[HEADER_SIZE + where % (len(data) - HEADER_SIZE)] = byte
    for wanted in (count, count_of(data)):
        assert len({twin.newest_delta(data, wanted) for twin in TWINS}) == 1


@twins
@given(payload=st.binary(max_size=60), count=st.integers(0, 2**31 - 1))
@example(payload=b"\xff\xff\xff\xff\x0f" * 3, count=1)
@example(payload=b"\x0c\0" + b"\xff" * 9 + b"\x01\0\1\1\0", count=1)
@example(payload=b"\x0e\0\0\0\xff\xff\xff\xff\x0f\1\0", count=1)
def test_what_is_no_record_is_none(twin: ModuleType, payload: bytes, count: int) -> None:
    data = bytearray(HEADER_SIZE) + payload
    assert twin.newest_delta(data, count) == pure_short.newest_delta(data, count)


@twins
def test_records_may_be_as_long_as_they_say_and_no_longer(twin: ModuleType) -> None:
    """Each field of a record, one that runs past its end."""
    #         size attributes time delta key value headers
    whole = bytes([12, 0, 0, 0, 1, 1, 0])
    head = bytearray(HEADER_SIZE)
    assert twin.newest_delta(head + whole, 1) == 0
    for place, byte in [(0, 0), (0, 1), (0, 10), (0, 14), (3, 2), (4, 3), (4, 2), (5, 2), (5, 3), (6, 2), (6, 1)]:
        wrong = bytearray(whole)
        wrong[place] = byte
        assert twin.newest_delta(head + wrong, 1) is None, (place, byte)


# ---- what only a mistake in this program could pass


@twins
@pytest.mark.parametrize("version", [9, 12, 13])
@pytest.mark.parametrize("place", [1, 2, 3])
def test_a_request_with_tags_is_of_another_kind(twin: ModuleType, version: int, place: int) -> None:
    frame = produce(version, 3, bytes(batch()))
    match = shape(twin, version).match
    assert match(frame, 0, len(frame)) is not None
    frame[-place] = 1
    assert match(frame, 0, len(frame)) is None


@twins
def test_numbers_without_end_match_nothing(twin: ModuleType) -> None:
    frame = produce(9, 3, bytes(batch()))
    for start, stop in [(2**63 - 10, len(frame)), (-1, len(frame)), (0, len(frame) + 1), (5, 4), (0, 2**63 - 1)]:
        assert shape(twin, 9).match(frame, start, stop) is None


@twins
def test_a_view_that_was_released_is_refused(twin: ModuleType) -> None:
    view = memoryview(batch())
    view.release()
    for use in (lambda: twin.open_batch(view, 0), lambda: twin.stamp(view, 0, 0), lambda: twin.newest_delta(view, 3)):
        with pytest.raises((TypeError, ValueError)):
            use()
