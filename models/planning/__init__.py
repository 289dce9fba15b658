"""What plans have in common: marginals for hard constraints, the strength of noise, shared stages."""
