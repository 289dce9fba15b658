"""Benchmarks: many charged releases from one configuration, evaluated and summarised."""
