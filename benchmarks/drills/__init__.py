"""Drills in simulated time, many at once: what exporters would have exposed, judged by promtool."""
