"""What survives a crash: the store's interface, two stores behind it, the ledger and the bytes they keep."""
