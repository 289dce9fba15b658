"""Measured domains: their plan, and the steps that ask for them."""
