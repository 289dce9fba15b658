"""What a synthetic table is worth: marginals, violations, model training, detection, attacks.

Every figure here is computed from real rows without noise. None is private: all are for internal
use only.
"""
