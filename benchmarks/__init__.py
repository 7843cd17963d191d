"""Benchmarks: inputs are registered in one place, one runner owns the clock, results are committed."""
