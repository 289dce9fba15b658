"""Structure and parameters as the paper prints them: Laplace noise, advanced composition."""
