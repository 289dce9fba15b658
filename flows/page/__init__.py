"""The officer's page: what the command line shows and does, in a browser."""
