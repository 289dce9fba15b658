"""What every step rests on: the home, locks, files that appear whole, progress, versions of the code."""
