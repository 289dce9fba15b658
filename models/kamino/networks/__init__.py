"""The tuple network, and fitted chains of conditionals."""
