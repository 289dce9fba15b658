"""Programs that make the tables of benchmarks."""
