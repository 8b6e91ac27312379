"""Rows on their way to a data set, and answers on their way to data frames."""
