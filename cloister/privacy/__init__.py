"""Mechanisms, randomness, events, accounting, the door, the journal and the ledger."""
