"""The worker's own pages: a dashboard for operators and a question box for analysts.

The analyst's view is computed from the output topics alone (``published``). Queries go through the same topic
as all other queries (``asking``). Only the operator's view adds the queries and the worker's health.
"""
