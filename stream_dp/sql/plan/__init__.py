"""The plan of a statement: the queries to ask, and how a table follows from their answers."""
