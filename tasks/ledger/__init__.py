"""The ledger's part in a release: charges, allowances, queries, and verification of a home."""
