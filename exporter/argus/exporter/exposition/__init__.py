"""Metric families and the formats in which Prometheus reads them."""
