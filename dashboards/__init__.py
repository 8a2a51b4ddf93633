"""Grafana dashboards: ``python -m dashboards`` writes ``dashboards/json/`` and ``docs/panels.md``."""
