"""The private rows: where they wait, where they are kept, how a look reads them, and what erases them."""
