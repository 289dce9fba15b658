"""How cells are written, and what they become: typed values of declared attributes."""
