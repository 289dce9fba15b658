"""Measured domains: their plan, and the steps that measure them."""
