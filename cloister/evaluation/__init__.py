"""Quality of a synthetic table: marginals, queries, violations, learning, detection, attacks.

Every figure here is computed from real rows without noise. None is private: all are for internal
use only.
"""
