"""The kind ``interior_point``: its law and its answerer."""
