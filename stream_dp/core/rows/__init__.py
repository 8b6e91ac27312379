"""Rows: the attributes that they have, the persons behind them, and sealed blocks of them."""
