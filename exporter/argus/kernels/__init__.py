"""Kernel classes for people: what a trace's kernels are, and the user's own patterns."""
