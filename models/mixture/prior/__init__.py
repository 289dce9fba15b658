"""An earlier release of the same table: its noisy numbers, used beside new ones."""
