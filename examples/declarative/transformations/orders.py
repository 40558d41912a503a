"""Orders out of a topic, into a table; and the large ones of them, into a topic."""

import os

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

spark = SparkSession.active()
BROKERS = os.environ.get("PENSTOCK_BOOTSTRAP", "127.0.0.1:9092")
SCHEMA = "id BIGINT, customer STRING, amount DOUBLE"


@dp.table
def orders() -> DataFrame:
    """Every order, as it comes."""
    records = (
        spark.readStream.format("penstock")
        .option("kafka.bootstrap.servers", BROKERS)
        .option("subscribe", "orders")
        .option("startingOffsets", "earliest")
        .load()
    )
    return records.select(F.from_json(F.col("value").cast("string"), SCHEMA).alias("order")).select("order.*")


@dp.materialized_view
def customers() -> DataFrame:
    """What each customer has ordered so far."""
    orders = spark.read.table("orders")
    return orders.groupBy("customer").agg(F.count("*").alias("orders"), F.sum("amount").alias("amount"))


dp.create_sink("large_orders", "penstock", {"kafka.bootstrap.servers": BROKERS, "topic": "large-orders"})


@dp.append_flow(target="large_orders")
def large() -> DataFrame:
    found = spark.readStream.table("orders").where("amount > 100")
    return found.select(F.col("id").cast("string").alias("key"), F.to_json(F.struct("*")).alias("value"))
