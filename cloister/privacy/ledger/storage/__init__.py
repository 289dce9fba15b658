"""Where entries lie: the databases, their tables and guards, and exports to files."""
