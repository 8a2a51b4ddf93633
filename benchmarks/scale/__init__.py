"""A job of any size in front of a real Prometheus: pages rendered beforehand, served at their times."""
