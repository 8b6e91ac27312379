"""The worker's own pages: a dashboard for operators and a question box for analysts.

The analyst's view is computed from the output topics alone, in ``page_data.published_state``. Queries go
through the same topic as all other queries, by ``page_queries``. Only the operator's view adds the queries
and the worker's health.
"""
