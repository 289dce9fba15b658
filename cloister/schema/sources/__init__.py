"""Where raw cells come from: CSV, Parquet and SQL tables, storage types, small public files."""
