"""The terms of a statement: aggregates, buckets, dates, joined columns, and cells of attributes."""
