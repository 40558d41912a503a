"""Spark looks for data sources in packages of such a name, and takes what is called DefaultSource."""

from penstock.pipeline.datasource import PenstockDataSource as DefaultSource

__all__ = ["DefaultSource"]
