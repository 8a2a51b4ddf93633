"""Benchmarks: cost and size, measured side by side in one run.  ``python -m benchmarks --help``."""
