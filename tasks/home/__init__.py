"""What every room uses: the home of an installation, its files, and the process at work in it."""
