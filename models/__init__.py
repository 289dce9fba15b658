"""The papers as code: each is plan, fit and sample behind one protocol."""
