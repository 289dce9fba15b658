"""What plans share: marginals for hard constraints, the strength of noise, stages."""
