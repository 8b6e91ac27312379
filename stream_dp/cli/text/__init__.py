"""Everything that commands print in words, tables and bars."""
