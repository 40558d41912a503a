"""Filters of Spark's that narrow what sources read: the rule of NarrowedScans.java, put into a session's optimizer.

What it may narrow it marks by the option USED_ONCE; a source without it reads everything, whatever filters it is told.
To a source whose end moves it hands, by PLANNED, what the DataFrame reads without a filter.
"""

from __future__ import annotations

from importlib.resources import files
from typing import TYPE_CHECKING, Any

from penstock.pipeline.history_source import FORMAT
from penstock.pipeline.options import PLANNED, USED_ONCE
from penstock.pipeline.problem import PipelineError
from penstock.pipeline.transform.saying import in_short

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RULE = "penstock.NarrowedScans"
GROWING = "penstock"  # what it reads is found out when it is planned; ranges of FORMAT are given to it
NAMES = (GROWING, FORMAT)


def install(spark: SparkSession) -> None:
    """Once is enough; a second time changes nothing. Raises PipelineError where that is not possible."""
    java = getattr(spark, "_jvm", None)
    if java is None:
        raise PipelineError("filters can be pushed down in a session of this process only, not through Spark Connect")
    try:
        _install(spark, java)
    except Exception as error:  # whatever Java says: the rule knows the inside of Spark, which may change
        raise PipelineError(f"filters can't be pushed down in Spark {spark.version}: {in_short(error)}") from error


def _install(spark: SparkSession, java: Any) -> None:
    methods = spark._jsparkSession.experimental()
    known = methods.extraOptimizations()
    if any(known.apply(n).getClass().getName() == RULE for n in range(known.size())):
        return
    compiler = java.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(methods.getClass().getClassLoader())
    compiler.cook(files("penstock.pipeline").joinpath("NarrowedScans.java").read_text("utf-8"))
    names = java.java.util.ArrayList()
    for each in NAMES:
        names.add(each)
    # Java's reflection, since py4j finds no class of a loader that it does not know.
    maker = compiler.getClassLoader().loadClass(RULE).getConstructors()[0]
    gateway = spark.sparkContext._gateway
    assert gateway is not None, "whoever has a _jvm has one"
    arguments = gateway.new_array(java.java.lang.Object, 4)
    for at, each in enumerate((USED_ONCE, PLANNED, names, GROWING)):
        arguments[at] = each
    set_rules = getattr(methods, "extraOptimizations_$eq")
    set_rules(known.appended(maker.newInstance(arguments)))
