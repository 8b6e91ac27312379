"""The kinds ``median`` and ``mode``: their law and their answerers."""
