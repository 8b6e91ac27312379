"""The kind ``adaptive_threshold``: its law and its answerer."""
