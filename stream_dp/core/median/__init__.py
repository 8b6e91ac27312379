"""The papers' family: the median mechanism for one table, and what makes it last while the table grows."""
