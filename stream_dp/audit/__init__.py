"""Checks a published ledger from outside: its chain, its order, and the price of every look.

It reads what everybody can read, and shares no arithmetic with the code that charged: an error there would
otherwise be confirmed by itself. Formulas are those of docs/proofs; ``oracle`` asks dp-accounting, a
library of others, what the looks of a block cost together.
"""

from stream_dp.audit.verify import BlockReport, Finding, Report, verify

__all__ = ["BlockReport", "Finding", "Report", "verify"]
