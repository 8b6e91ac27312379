"""The kind ``between``: its law and its answerer."""
