"""SQL, on the analyst's side: what a statement asks, as the JSON of query messages.

A condition by itself, with or without WHERE, stands for ``SELECT COUNT(*) WHERE`` and it. A SELECT may have
several aggregates and arithmetic on them, and HAVING, ORDER BY, LIMIT and OFFSET, which work on the published
values. ``FROM`` may be a subquery or a WITH that only filters. ``SUM``, ``AVG`` and ``COUNT`` may have FILTER
or a CASE that is a condition. ``STDDEV`` and ``VARIANCE`` follow from the counts of the bins. ``QUANTILE(x,
0.9)`` (or ``PERCENTILE_CONT(0.9) WITHIN GROUP (ORDER BY x)``), ``MEDIAN(x)``, ``MIN(x)`` and ``MAX(x)`` are
the bins that such a value lies in; ``MODE(x)`` is about all rows. A group may be a union of bins, as of
``FLOOR(x / 10) * 10`` or ``WIDTH_BUCKET(x, 0, 100, 10)``.

``MIN(x)`` and ``MAX(x)`` of numbers, with nothing else, no condition and no groups, are the outermost
declared edges, and nothing is asked. Nor is anything for a table that shows no row: with ``LIMIT 0``, or a
condition that is never true, such as ``1 = 0``. It has its columns, even of ``SELECT *``.

``ERROR_BAR(n)``, ``LOWER_BOUND(n)`` and ``UPPER_BOUND(n)`` are the half width and the ends of a value as
columns of their own. What BI tools and drivers write besides is in ``stream_dp.sql.reading.tool_forms``.

A condition compares attributes with constants: ``=``, ``<>``, ``<``, ``<=``, ``>``, ``>=``, ``[NOT] IN``,
``[NOT] BETWEEN``, ``[NOT] LIKE``, ``IS [NOT] NULL``, ``IS [NOT] DISTINCT FROM``, or a boolean attribute by
itself. AND, OR, NOT and ``IS [NOT] TRUE`` or ``FALSE`` combine conditions. A date is compared with ``DATE
'2026-03-14'`` or a longer period, such as ``'2026-03'``; ``EXTRACT(MONTH FROM d)`` is compared with a number,
and ``DATE_TRUNC('month', d)`` with the beginning of a period.

At the end, ``WITHIN 5%`` (of the answer), ``WITHIN 0.5% OF ROWS`` or ``WITHIN 50`` (a number) says how
precise the answer must be, and ``COSTING AT MOST 2%`` what it may take of any phase's budget. ``FRESH`` in
front of counts or a condition asks for fresh answers, which rest on looks of their own.

Where one row of each person counts in a phase, ``COUNT(DISTINCT user_id)`` asks how many persons there are.
``user_id`` is the column that says whose row it is.

Over a series, ``SUM`` and ``AVG`` with ``OVER (ORDER BY day ROWS BETWEEN 6 PRECEDING AND CURRENT ROW)`` are
of the last parts, and ``LAG`` and ``LEAD`` of another one.

``day``, ``week``, ``month`` and ``phase`` mean the time of a query unless an attribute has that name. ``WHERE
day >= DATE '2026-11-01' AND day < DATE '2026-11-08'`` or ``phase BETWEEN 3 AND 7`` says which phases it is
about, and ``GROUP BY day``, or ``GROUP BY DATE_TRUNC('month', day)``, asks one part for each period.
``day = CURRENT_DATE`` and ``day > CURRENT_DATE - INTERVAL '7 days'`` ask about the rows of today so far, too.

``carrier = 'other'`` asks for all values that the definition of ``carrier`` does not list, together. This
needs a cell for them, and 'other' must not be a listed value.
"""

from stream_dp.sql.plan.select_planner import in_sqlite as in_sqlite
from stream_dp.sql.plan.select_planner import names_of as names_of
from stream_dp.sql.plan.select_planner import parse as parse
from stream_dp.sql.plan.select_planner import plan as plan
from stream_dp.sql.plan.statement_plan import Dimension as Dimension
from stream_dp.sql.plan.statement_plan import StatementPlan as StatementPlan
from stream_dp.sql.plan.statement_queries import MOST_QUERIES as MOST_QUERIES
from stream_dp.sql.reading.attribute_names import example as example
from stream_dp.sql.reading.attribute_names import name_in_sql as name_in_sql
from stream_dp.sql.reading.statement_text import MAX_LENGTH as MAX_LENGTH
