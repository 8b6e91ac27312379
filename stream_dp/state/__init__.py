"""State that survives a crash: the store's interface, two stores behind it, the ledger and its bytes."""
