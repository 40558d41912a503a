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

from penstock.pipeline.options import OF_CLIENTS, OF_READERS, Options, read_options, write_options
from penstock.pipeline.problem import OptionError
from penstock.pipeline.sink import BatchWriter, StreamWriter, check_brokers, check_columns, new_job
from penstock.pipeline.source import BatchReader, StreamReader, check_schema, row_schema


class PenstockDataSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "penstock"

    def schema(self) -> StructType:
        options = Options(self.options, OF_CLIENTS | OF_READERS, "source")
        return row_schema(options.flag("includeHeaders", False))

    def reader(self, schema: StructType) -> DataSourceReader:
        options = read_options(self.options, streaming=False)
        check_schema(schema, options.headers)
        return BatchReader(options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        options = read_options(self.options, streaming=True)
        check_schema(schema, options.headers)
        return StreamReader(options)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        options = write_options(self.options)
        check_columns(schema, options)
        if overwrite:
            raise OptionError("rows can be appended to topics only: mode overwrite would have to delete them")
        check_brokers(options)
        return BatchWriter(options, new_job())

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        options = write_options(self.options)
        check_columns(schema, options)
        if options.batch is not None:
            raise OptionError("option 'batchId' is for batches inside foreachBatch; a stream numbers its own")
        check_brokers(options)
        return StreamWriter(options, new_job())
