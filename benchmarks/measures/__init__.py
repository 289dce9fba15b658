"""What benchmarks measure beside the evaluation of a release."""
