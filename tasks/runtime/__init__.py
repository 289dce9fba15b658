"""What every step uses: the home, locks, atomic files, progress, versions of the code."""
