"""The HTTP API: its routes, its documents, its errors, and its description."""
