"""Flows over the tasks, and the command line on top of them."""
