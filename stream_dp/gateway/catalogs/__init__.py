"""Postgres' catalogs over data sets, in a process that knows names, comments and public rows."""
