"""Record batches straight to Arrow's columns and back, with no Python object for a record on the way.

    record batch --- RowDecoder ---> RecordBatch --- RowEncoder ---> Encoded --- seal ---> record batch

The columns are those of Spark's Kafka connector. What is done for every record is done by one of two twins (twins.py).
"""

from __future__ import annotations

from penstock.pipeline.row_decoder import EPOCH_FIELD, HEADERS_FIELD, ROWS_MAX, SCHEMA, RowDecoder
from penstock.pipeline.row_encoder import RowEncoder, RowError
from penstock.pipeline.sealing import BATCH_BYTES_MAX, Encoded, seal
from penstock.pipeline.twins import COMPILED

__all__ = [
    "BATCH_BYTES_MAX",
    "COMPILED",
    "EPOCH_FIELD",
    "HEADERS_FIELD",
    "ROWS_MAX",
    "SCHEMA",
    "Encoded",
    "RowDecoder",
    "RowEncoder",
    "RowError",
    "seal",
]
