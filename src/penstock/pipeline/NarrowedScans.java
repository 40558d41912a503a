// Filters above our scans, handed to a source that only this place of this query has.
//
// Spark 4.3 keeps one source in Python for each DataFrame, and one plan of it: what the filters of one query had narrowed
// would be missing in the next, and in the other half of a union. So each scan with a filter above it gets a source of its
// own here, which is marked as used once, and only such a source narrows what it reads. Filters stay where they are, and
// whatever goes wrong while a scan is narrowed leaves it as it was: everything is read then.
//
// What a topic holds changes, and the one plan of a DataFrame says until where it is read. A source of this kind is told
// that plan, so that each use of a DataFrame sees the same records, with a filter or without.
//
// Compiled when it is asked for, by the compiler that comes with Spark, which knows neither generics nor lambdas.
package penstock;

import java.sql.Date;
import java.sql.Timestamp;
import java.time.Instant;
import java.time.LocalDate;
import java.time.LocalDateTime;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.catalyst.expressions.And;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.execution.datasources.DataSourceStrategy$;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2ScanRelation;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceCreationResult;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceV2;
import org.apache.spark.sql.execution.datasources.v2.python.PythonFilterPushdownResult;
import org.apache.spark.sql.execution.datasources.v2.python.PythonInputPartition;
import org.apache.spark.sql.execution.datasources.v2.python.PythonScan;
import org.apache.spark.sql.sources.Filter;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import scala.Option;
import scala.Product;
import scala.Some;
import scala.jdk.javaapi.CollectionConverters;

public class NarrowedScans extends Rule {
    private static final Logger LOG = LoggerFactory.getLogger("penstock.NarrowedScans");
    private static final long DAY_MS = 86400000L;
    // The years 2 to 9998: Python's are 1 to 9999, of which a zone may take some hours.
    private static final long FIRST_MS = -719162L * DAY_MS + 366L * DAY_MS;
    private static final long STOP_MS = 2932897L * DAY_MS - 366L * DAY_MS;

    private final String mark;
    private final String planned;
    private final List names;
    private final String growing;

    /** The options by which a source is told that it is used once and what was planned, and the source that is. */
    public NarrowedScans(String mark, String planned, List names, String growing) {
        this.mark = mark;
        this.planned = planned;
        this.names = new ArrayList(names);
        this.growing = growing;
    }

    public TreeNode apply(TreeNode plan) {
        return this.visit((LogicalPlan) plan);
    }

    private LogicalPlan visit(LogicalPlan plan) {
        List before = CollectionConverters.asJava(plan.children());
        List after = new ArrayList();
        boolean changed = false;
        for (int i = 0; i < before.size(); i++) {
            LogicalPlan child = (LogicalPlan) before.get(i);
            LogicalPlan visited = this.isNew(child) ? this.under(plan, (DataSourceV2ScanRelation) child) : this.visit(child);
            changed |= visited != child;
            after.add(visited);
        }
        if (!changed) {
            return plan;
        }
        return (LogicalPlan) plan.withNewChildren(CollectionConverters.asScala(after).toList());
    }

    private boolean isNew(LogicalPlan plan) {
        if (!(plan instanceof DataSourceV2ScanRelation)) {
            return false;
        }
        DataSourceV2ScanRelation found = (DataSourceV2ScanRelation) plan;
        return found.scan().getClass() == PythonScan.class && this.names.contains(found.relation().table().name());
    }

    private LogicalPlan under(LogicalPlan parent, DataSourceV2ScanRelation found) {
        if (!(parent instanceof org.apache.spark.sql.catalyst.plans.logical.Filter)) {
            return found;
        }
        List filters = new ArrayList();
        this.collect(((org.apache.spark.sql.catalyst.plans.logical.Filter) parent).condition(), filters);
        if (filters.isEmpty()) {
            return found;
        }
        Scan scan = null;
        try {
            scan = this.narrowed(found, (Filter[]) filters.toArray(new Filter[filters.size()]));
        } catch (Exception failure) {
            LOG.info("everything is read, because filters could not narrow it", failure);
        }
        if (scan == null) {
            return found;
        }
        Object[] parts = new Object[found.productArity()];
        for (int i = 0; i < parts.length; i++) {
            parts[i] = found.productElement(i) instanceof Scan ? scan : found.productElement(i);
        }
        return (LogicalPlan) found.makeCopy(parts);
    }

    private void collect(Expression condition, List filters) {
        if (condition instanceof And) {
            this.collect(((And) condition).left(), filters);
            this.collect(((And) condition).right(), filters);
            return;
        }
        Option filter = DataSourceStrategy$.MODULE$.translateFilter(condition, false);
        if (filter.isDefined() && isKnownToPython(filter.get())) {
            filters.add(filter.get());
        }
    }

    /** Spark has years that Python's datetime has not, and one such value would fail all filters beside it. */
    private static boolean isKnownToPython(Object part) {
        if (part instanceof Timestamp) {
            return isKnownYear(((Timestamp) part).getTime());
        }
        if (part instanceof Instant) {
            long second = ((Instant) part).getEpochSecond();
            return second >= FIRST_MS / 1000 && second < STOP_MS / 1000;
        }
        if (part instanceof Date) {
            return isKnownYear(((Date) part).getTime());
        }
        if (part instanceof LocalDate) {
            return isKnownYear(((LocalDate) part).toEpochDay() * DAY_MS);
        }
        if (part instanceof LocalDateTime) {
            return isKnownYear(((LocalDateTime) part).toLocalDate().toEpochDay() * DAY_MS);
        }
        if (part instanceof Object[]) {
            Object[] each = (Object[]) part;
            for (int i = 0; i < each.length; i++) {
                if (!isKnownToPython(each[i])) {
                    return false;
                }
            }
        } else if (part instanceof Filter) {
            Product filter = (Product) part;
            for (int i = 0; i < filter.productArity(); i++) {
                if (!isKnownToPython(filter.productElement(i))) {
                    return false;
                }
            }
        }
        return true;
    }

    private static boolean isKnownYear(long momentMs) {
        return momentMs >= FIRST_MS && momentMs < STOP_MS;
    }

    /** Null where Python gets none of the filters. */
    private Scan narrowed(DataSourceV2ScanRelation found, Filter[] filters) {
        String name = found.relation().table().name();
        StructType schema = found.relation().table().schema();
        Map given = new HashMap(found.relation().options().asCaseSensitiveMap());
        given.put(this.mark, "true");
        if (name.equals(this.growing)) {
            given.put(this.planned, planOf(found.scan()));
        }
        CaseInsensitiveStringMap options = new CaseInsensitiveStringMap(given);
        PythonDataSourceV2 source = new PythonDataSourceV2();
        source.setShortName(name);
        PythonDataSourceCreationResult created = source.getOrCreateDataSourceInPython(name, options, new Some(schema));
        Option pushed = source.source().pushdownFiltersInPython(created, schema, filters);
        if (!pushed.isDefined()) {
            return null;
        }
        source.setReadInfo(((PythonFilterPushdownResult) pushed.get()).readInfo());
        return new NarrowedScan(source, name, schema, options, filters);
    }

    /** Partitions as Python has pickled them, in Base64. Spark keeps them, and asks Python but once. */
    private static String planOf(Scan scan) {
        InputPartition[] partitions = scan.toBatch().planInputPartitions();
        StringBuilder text = new StringBuilder();
        for (int i = 0; i < partitions.length; i++) {
            text.append(i == 0 ? "" : ",");
            text.append(Base64.getEncoder().encodeToString(((PythonInputPartition) partitions[i]).pickedPartition()));
        }
        return text.toString();
    }

    /** Which the rule, run again, leaves alone. */
    public static class NarrowedScan extends PythonScan {
        public NarrowedScan(
            PythonDataSourceV2 source, String name, StructType schema, CaseInsensitiveStringMap options, Filter[] filters
        ) {
            super(source, name, schema, options, filters);
        }
    }
}
