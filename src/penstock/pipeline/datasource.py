"""`format("penstock")`, as Spark finds it."""

from __future__ import annotations

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from penstock.pipeline.options import read_options, write_options
from penstock.pipeline.problem import OptionError
from penstock.pipeline.sink import BatchWriter, StreamWriter, check_brokers, check_columns, check_topic, new_job
from penstock.pipeline.source import (
    BatchReader,
    NarrowedBatchReader,
    RefusedStreamReader,
    StreamReader,
    check_schema,
    row_schema,
)


class PenstockDataSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "penstock"

    def schema(self) -> StructType:
        return row_schema(read_options(self.options, streaming=None).headers)

    def reader(self, schema: StructType) -> DataSourceReader:
        options = read_options(self.options, streaming=False)
        check_schema(schema, options.headers)
        return NarrowedBatchReader(options) if options.used_once else BatchReader(options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        try:
            options = read_options(self.options, streaming=True)
            check_schema(schema, options.headers)
        except OptionError as problem:
            return RefusedStreamReader(problem)
        return StreamReader(options)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        options = write_options(self.options)
        check_columns(schema, options)
        if overwrite:
            raise OptionError("rows can be appended to topics only: mode overwrite would have to delete them")
        if options.batch is None:  # else a stream runs, which is as patient as its tasks
            check_topic(options, options.client.hasty())
            check_brokers(options)
        return BatchWriter(options, new_job())

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        options = write_options(self.options)
        check_columns(schema, options)
        if options.batch is not None:
            raise OptionError("option 'batchId' is for batches inside foreachBatch; a stream numbers its own")
        check_topic(options, options.client)  # asked before each batch, and as patient as its tasks
        check_brokers(options)
        return StreamWriter(options, new_job())
