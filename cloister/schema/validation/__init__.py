"""Rows beside what is declared of them."""
