"""The kind ``prefix_batch``: its law and its answerer."""
