"""The Gaussian copula of Asghar et al. on dummy-coded attributes, as printed and as records."""
