"""What comes before the charge of a release: checks, the plan, the stores; no data is opened."""
