"""Races, guards, transactions and leases are tested on both databases.

What Python alone decides is tested on PostgreSQL in the slow suite.
"""

import pytest

on_both = pytest.mark.parametrize("place", ["sqlite", "postgresql"], indirect=True)
