"""Reading a statement: its grammar, its tree, its conditions, and what it must not say."""
