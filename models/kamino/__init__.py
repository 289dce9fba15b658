"""Kamino: constraint-aware synthesis (Ge, Mohapatra, He, Ilyas; VLDB 2021)."""
