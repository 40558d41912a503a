"""Records as rows: the columns of their values, and what is known of each beside it; or the reason why there are none.

    orders   id  amount  at  …  _topic  _partition  _offset  _timestamp  _key  _headers

A record is bad if its value is not what the format and the schema say, if its key or text is not UTF-8, or if it fails
an expectation. A record without a value is not bad: it says that its key is gone, and its columns are all NULL.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

from pyspark.errors import PySparkException
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from penstock.pipeline.source import HEADERS
from penstock.pipeline.transform.entries import FileError
from penstock.pipeline.transform.model import Format, Source
from penstock.pipeline.transform.saying import in_short

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

METADATA = ("topic", "partition", "offset", "timestamp", "headers")
BESIDE = ("_topic", "_partition", "_offset", "_timestamp", "_key", "_headers")
KEY, VALUE, DECODED = "_penstock_key", "_penstock_value", "_penstock_decoded"  # as they came, and what became of it
CORRUPT = "_penstock_corrupt"
ERROR = "_penstock_error"
OF_TIMES = ("startingTimestamp", "startingOffsetsByTimestampStrategy")
SHOWN_MAX = 100  # characters of a field's text in an error
AVRO_MODULE = "org.apache.spark:spark-avro_2.13"

Fault = tuple["Column", "Column"]
"""When a record is bad, and what is said of it then."""


def records(spark: SparkSession, source: Source, options: Mapping[str, str]) -> DataFrame:
    """Every one, good or bad: the bytes as they came, the columns that became of them, and what is beside them."""
    key = F.col("key").cast("string") if source.text_key else F.col("key")
    beside = [key.alias("_key"), *(F.col(name).alias(f"_{name}") for name in METADATA)]
    plain = spark.readStream.format("penstock").options(**options).load()
    plain = plain.select(F.col("key").alias(KEY), F.col("value").alias(VALUE), *beside)
    plain = plain.withColumn(DECODED, decoded(spark, source))
    kind = plain.schema[DECODED].dataType
    assert isinstance(kind, StructType)
    columns = [F.col(DECODED)[name].alias(name) for name in kind.names if name != CORRUPT]
    return plain.select(*columns, "*")


def reader_options(source: Source, client: Mapping[str, str]) -> dict[str, str]:
    """Of format("penstock")."""
    options = {**client, "includeHeaders": "true", "failOnDataLoss": str(source.fail_on_data_loss).lower()}
    if source.pattern is not None:
        options["subscribePattern"] = source.pattern
    else:
        options["subscribe"] = ",".join(source.topics)
    if source.starting.isdigit():
        options |= dict(zip(OF_TIMES, (source.starting, "latest")))
    else:
        options["startingOffsets"] = source.starting
    if source.offsets_max is not None:
        options["maxOffsetsPerTrigger"] = str(source.offsets_max)
    return options


def columns_of(records_: DataFrame) -> list[str]:
    """Those of the values."""
    return [each for each in records_.columns if each not in BESIDE and not each.startswith("_penstock_")]


def rows(records_: DataFrame, source: Source) -> DataFrame:
    """The view: records that are good."""
    bad = F.lit(False)
    for wrong, _ in faults(records_, source):
        bad = bad | wrong
    found = records_.where(~bad).select(*columns_of(records_), *BESIDE)
    return found if source.watermark is None else _watermarked(found, source)


def dead_letters(records_: DataFrame, source: Source) -> DataFrame:
    """Records that are bad, as they came, with headers that say why and from where."""
    said = F.coalesce(*(F.when(wrong, text) for wrong, text in faults(records_, source)))
    told = {
        "penstock.error": F.col(ERROR),
        "penstock.topic": F.col("_topic"),
        "penstock.partition": F.col("_partition").cast("string"),
        "penstock.offset": F.col("_offset").cast("string"),
        "penstock.timestamp": F.unix_millis("_timestamp").cast("string"),
    }
    more = F.array(
        *(F.struct(F.lit(name).alias("key"), F.encode(text, "UTF-8").alias("value")) for name, text in told.items())
    )
    none = F.array().cast(HEADERS)
    bad = records_.withColumn(ERROR, said).where(F.col(ERROR).isNotNull())
    headers = F.concat(F.coalesce(F.col("_headers"), none), more).cast(HEADERS)
    return bad.select(F.col(KEY).alias("key"), F.col(VALUE).alias("value"), headers.alias("headers"))


# ---- values


def decoded(spark: SparkSession, source: Source) -> Column:
    """A struct. Raises FileError where the schema makes none."""
    text = F.col(VALUE).cast("string")
    if source.format is Format.BINARY:
        return F.struct(F.col(VALUE).alias("value"))
    if source.format is Format.TEXT:
        return F.struct(text.alias("value"))
    if source.format is Format.AVRO:
        return _from_avro(spark, source)
    schema = StructType([*json_schema(source), StructField(CORRUPT, StringType())])
    return F.from_json(text, schema, {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT})


def json_schema(source: Source) -> StructType:
    try:
        schema = StructType.fromDDL(source.schema)
    except PySparkException as error:
        raise FileError(f"'schema' in [source.{source.name}]: {in_short(error)}") from None
    if not isinstance(schema, StructType) or not len(schema):
        raise FileError(f"'schema' in [source.{source.name}] has no columns")
    _check_names(schema.names, source)
    return schema


def _check_names(names: list[str], source: Source) -> None:
    lower = [name.lower() for name in names]
    for name in names:
        if name.lower() in BESIDE or name.startswith("_penstock"):
            raise FileError(f"'schema' in [source.{source.name}] has {name!r}, a name that every source has already")
        if lower.count(name.lower()) > 1:
            raise FileError(f"'schema' in [source.{source.name}] has {name!r} twice; SQL does not tell case apart")


def _from_avro(spark: SparkSession, source: Source) -> Column:
    from pyspark.sql.avro.functions import from_avro

    where = f"[source.{source.name}]"
    try:
        document = json.loads(source.schema)
    except ValueError as error:
        raise FileError(f"'schema' in {where} is no JSON, which Avro's schemas are: {error}") from None
    if not isinstance(document, dict) or document.get("type") != "record" or not document.get("fields"):
        raise FileError(f"'schema' in {where} is no Avro record with fields")
    try:
        column = from_avro(F.col(VALUE), source.schema, {"mode": "PERMISSIVE"})
        made = spark.createDataFrame([], f"{VALUE} BINARY").select(column.alias("v")).schema["v"].dataType
    except PySparkException as error:
        if "AVRO_NOT_LOADED" in str(error):
            module = f"{AVRO_MODULE}:{spark.version}"
            raise FileError(
                f"format 'avro' in {where} needs Spark's Avro module, which pyspark comes without: "
                f"run with --packages {module}, or put its jar into 'spark.jars' of [spark]"
            ) from None
        raise FileError(f"'schema' in {where}: {in_short(error)}") from None
    assert isinstance(made, StructType)
    _check_names(made.names, source)
    return column


# ---- what is wrong


def faults(records_: DataFrame, source: Source) -> list[Fault]:
    """In the order in which they are told. Conditions are never NULL."""
    there = F.col(VALUE).isNotNull()
    found: list[Fault] = []
    if source.text_key:
        found.append((_not_utf8(KEY), F.lit("the key is not UTF-8")))
    if source.format in (Format.JSON, Format.TEXT):
        found.append((_not_utf8(VALUE), F.lit("the value is not UTF-8")))
    if source.format is Format.JSON:
        schema = json_schema(source)
        wrong = F.col(DECODED).isNull() | F.col(DECODED)[CORRUPT].isNotNull()
        found.append((there & wrong, _why_not_json(schema, source)))
        for each in schema:
            if not each.nullable:
                missing = there & F.col(DECODED)[each.name].isNull()
                found.append((missing, F.lit(f"field {each.name!r} is missing, and NOT NULL")))
    if source.format is Format.AVRO:
        found.append((there & _not_avro(records_, source), F.lit("the value does not fit the Avro schema")))
    for name, condition in source.expect.items():
        _check_condition(records_, source, name, condition)
        # As CHECK in SQL: what is NULL, because a field is, does not fail. That it must not be is said with NOT NULL.
        found.append((there & ~F.coalesce(F.expr(condition), F.lit(True)), F.lit(name)))
    return found


def _not_utf8(column: str) -> Column:
    return F.col(column).isNotNull() & ~F.is_valid_utf8(F.col(column).cast("string"))


def _why_not_json(schema: StructType, source: Source) -> Column:
    """Which field it is, as far as that can be told: Spark says only that something does not fit."""
    texts = F.from_json(F.col(VALUE).cast("string"), "map<string,string>")
    said = F.when(texts.isNull(), F.lit("the value is no JSON object"))
    for each in schema:
        text = texts[each.name]
        cut = F.concat(F.substring(text, 1, SHOWN_MAX), F.lit("…"))
        shown = F.when(F.length(text) > SHOWN_MAX, cut).otherwise(text)
        kind = each.dataType.simpleString()
        words = F.concat(F.lit(f"field {each.name!r} is "), shown, F.lit(f", which is no {kind}"))
        said = said.when(text.isNotNull() & F.col(DECODED)[each.name].isNull(), words)
    return said.otherwise(F.lit(f"the value does not fit the schema {source.schema}"))


def _not_avro(records_: DataFrame, source: Source) -> Column:
    """Spark makes a row of NULLs of what it can't read. One whose fields are really all null is known by its bytes."""
    empty = F.lit(True)
    for name in columns_of(records_):
        empty = empty & F.col(name).isNull()
    nulls = bytes_of_nulls(source.schema)
    return empty if nulls is None else empty & (F.col(VALUE) != F.lit(nulls))


def bytes_of_nulls(schema: str) -> bytes | None:
    """How Avro writes a record whose fields are all null, or None where one of them can't be."""
    found = bytearray()
    for each in json.loads(schema)["fields"]:
        kinds = each["type"] if isinstance(each["type"], list) else [each["type"]]
        if "null" not in kinds:
            return None
        if isinstance(each["type"], list):
            found.append(2 * kinds.index("null"))  # the branch of the union, in zigzag
    return bytes(found)


def _check_condition(records_: DataFrame, source: Source, name: str, condition: str) -> None:
    try:
        records_.where(condition)
    except PySparkException as error:
        raise FileError(f"{name!r} in [source.{source.name}.expect]: {in_short(error)}") from None


def _watermarked(found: DataFrame, source: Source) -> DataFrame:
    assert source.watermark is not None
    column, delay = source.watermark.column, source.watermark.delay
    where = f"'watermark' in [source.{source.name}]"
    kinds = {each.name: each.dataType.simpleString() for each in found.schema}
    if column not in kinds:
        raise FileError(f"{where} is for column {column!r}; there are {', '.join(kinds)}")
    if not kinds[column].startswith("timestamp"):
        raise FileError(f"{where} is for column {column!r}, which is {kinds[column]} and no timestamp")
    try:
        return found.withWatermark(column, delay)
    except (PySparkException, ValueError) as error:
        raise FileError(f"{where} has delay {delay!r}: {in_short(error)}") from None
