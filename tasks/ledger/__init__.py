"""The ledger's part in a release, and budgets as people see and grant them."""

from __future__ import annotations
