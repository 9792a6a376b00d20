"""Teams, keys, prices, and the ledger that every usage event is posted to exactly once."""
