"""The kind ``correlated_vector``: its law and its answerer."""
