"""The privacy budget, worked out from the published ledger alone."""
