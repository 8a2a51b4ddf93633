"""Grafana dashboards, generated: ``python -m dashboards`` writes ``dashboards/json/``."""
