"""How answers are shown: one view for commands, data frames, tables of statements, pages and alerts."""
