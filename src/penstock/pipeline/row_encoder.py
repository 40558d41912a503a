"""Rows of Arrow's columns as records of partitions.

Every row goes to a partition: the one that it names, else the one that its key is hashed to, else, for all rows of one
`add` that have no key, one after the other in turn. A partition's records wait in pieces that fit into a batch each.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable

import pyarrow as pa

from penstock.pipeline import twins
from penstock.pipeline.pure_records import ArrowArray
from penstock.pipeline.row_decoder import HEADERS_FIELD
from penstock.pipeline.sealing import BATCH_BYTES_MAX, Encoded
from penstock.protocol.record_batch import HEADER_SIZE

PARTITIONS_MAX = 1_000_000
TIMESTAMP = pa.timestamp("us", "UTC")


class RowError(ValueError):
    """A row that can't be a record, or a column that can't be a part of one."""


class RowEncoder:
    """Rows on their way to topics: each goes to its partition's buffer as an encoded record."""

    def __init__(
        self,
        topic: str | None,
        partition_counts: Callable[[str], int],
        *,
        now_ms: Callable[[], int],
        batch_bytes_of: Callable[[str], int] = lambda topic: BATCH_BYTES_MAX,
        first_of: Callable[[int], int] = random.randrange,
    ) -> None:
        """The topic, if one is given, wins over a column of that name. `first_of` starts the turn of the partitions."""
        self._topic = topic
        self._partition_counts = partition_counts
        self._now_ms = now_ms
        self._batch_bytes_of = batch_bytes_of
        self._first_of = first_of
        self._topics: dict[str, twins.Partitions] = {}
        self._turns: dict[str, int] = {}

    def add(self, rows: pa.RecordBatch) -> None:
        """The columns of a RecordBatch that Spark's Kafka connector knows, and a timestamp; others are left alone.

        Raises a RowError, and then no row is added.
        """
        if rows.num_rows == 0:
            return
        names, indices = self._topics_of(rows)
        topics = tuple(self._chosen(name) for name in names)
        headers = _column(rows, "headers", _as_headers)
        key, value = _column(rows, "key", _as_binary), _column(rows, "value", _as_binary)
        if value is None:
            raise RowError("there is no column 'value'")
        arrays = (
            _fixed(indices),
            _fixed(_column(rows, "partition", _as_type(pa.int32()))),
            _fixed(_column(rows, "timestamp", _as_timestamp)),
            _bytes(key),
        )
        refused = twins.encode(
            rows.num_rows, self._now_ms(), topics, *arrays, _buffers(value), *_header_arrays(headers)
        )
        if refused is not None:
            row, why = refused
            raise RowError(f"{self._place_of(rows, row)}: {why}")

    def buffered(self) -> Iterable[tuple[tuple[str, int], int]]:
        """How many bytes of records wait, for each partition that has any."""
        for topic, partitions in self._topics.items():
            for partition, size in partitions.buffered():
                yield (topic, partition), size

    def take(self, topic: str, partition: int) -> Encoded | None:
        """The oldest records of a partition, as many as fit into a batch, or one that is larger; None without any."""
        partitions = self._topics.get(topic)
        taken = partitions.take(partition) if partitions else None
        return Encoded(topic, partition, *taken) if taken else None

    def _topics_of(self, rows: pa.RecordBatch) -> tuple[list[str], pa.Array | None]:
        """The topics of these rows, and for each row which one it is, if there is a choice."""
        if self._topic is not None:
            return [self._topic], None
        column = _column(rows, "topic", _as_string)
        if column is None:
            raise RowError("there is no column 'topic', and no topic was given")
        encoded = column.dictionary_encode()
        return encoded.dictionary.to_pylist(), encoded.indices

    def _chosen(self, topic: str) -> tuple[twins.Partitions, int, int]:
        count = self._partition_counts(topic)
        if not 0 < count <= PARTITIONS_MAX:
            raise RowError(f"{topic} has {count} partitions")
        if topic not in self._topics:
            self._topics[topic] = twins.Partitions(max(1, self._batch_bytes_of(topic) - HEADER_SIZE))
            self._turns[topic] = self._first_of(count)
        self._topics[topic].grow(count)
        turn = self._turns[topic] % count
        self._turns[topic] = turn + 1
        return self._topics[topic], count, turn

    def _place_of(self, rows: pa.RecordBatch, row: int) -> str:
        names = rows.schema.names
        topic = self._topic if self._topic is not None else rows.column(names.index("topic"))[row].as_py()
        partition = rows.column(names.index("partition"))[row].as_py() if "partition" in names else None
        place = f"row {row} for {topic}"
        return place if partition is None else f"{place}, partition {partition}"


# ---- columns of the right type


def _column(rows: pa.RecordBatch, name: str, convert: Callable[[pa.Array], pa.Array]) -> pa.Array | None:
    """None where there is no such column. Large types, views and dictionaries become what they stand for."""
    found = rows.schema.get_all_field_indices(name)
    if not found:
        return None
    if len(found) > 1:
        raise RowError(f"there are {len(found)} columns '{name}'")
    column = rows.column(found[0])
    try:
        return convert(column)
    except (pa.ArrowException, TypeError) as error:
        raise RowError(f"column '{name}' of type {column.type}: {error}") from None


def _as_type(of_type: pa.DataType) -> Callable[[pa.Array], pa.Array]:
    return lambda column: column if column.type == of_type else column.cast(of_type)


def _as_string(column: pa.Array) -> pa.Array:
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    kind = column.type
    if pa.types.is_string(kind):
        return column
    if not (pa.types.is_large_string(kind) or pa.types.is_string_view(kind) or pa.types.is_null(kind)):
        raise TypeError("a string is needed")
    return column.cast(pa.string())


def _as_binary(column: pa.Array) -> pa.Array:
    """Strings are the bytes of their UTF-8."""
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    kind = column.type
    if pa.types.is_binary(kind) or pa.types.is_string(kind):
        return column
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return column.cast(pa.string())
    of_bytes = pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind) or pa.types.is_fixed_size_binary(kind)
    if not (of_bytes or pa.types.is_null(kind)):
        raise TypeError("a string or binary is needed")
    return column.cast(pa.binary())


def _as_timestamp(column: pa.Array) -> pa.Array:
    kind = column.type
    if pa.types.is_null(kind):
        return column.cast(TIMESTAMP)
    if not pa.types.is_timestamp(kind) or kind.tz is None:
        raise TypeError("a timestamp with a time zone is needed")
    # A zone changes how a moment is shown, not which one it is.
    return column if kind.unit == "us" else column.cast(TIMESTAMP, safe=False)


def _as_headers(column: pa.Array) -> pa.Array:
    return column if column.type == HEADERS_FIELD.type else column.cast(HEADERS_FIELD.type)


# ---- arrays as their buffers


def _buffers(array: pa.Array) -> ArrowArray:
    valid, offsets, data = array.buffers()
    return array.offset, valid, offsets, data


def _bytes(array: pa.Array | None) -> ArrowArray | None:
    return None if array is None else _buffers(array)


def _fixed(array: pa.Array | None) -> ArrowArray | None:
    if array is None:
        return None
    valid, data = array.buffers()
    return array.offset, valid, None, data


def _header_arrays(lists: pa.Array | None) -> tuple[ArrowArray | None, ...]:
    """Of lists of structs: the lists, the structs, names and values. Those of a struct reach as far as the struct."""
    if lists is None:
        return None, None, None, None
    items = lists.values
    valid, offsets = lists.buffers()[:2]
    names, values = items.field(0), items.field(1)
    return (
        (lists.offset, valid, offsets, None),
        (items.offset, items.buffers()[0], None, None),
        _bytes(names),
        _bytes(values),
    )
