"""Recorded traces through the same segments and exporter as a live job (``argus replay``, docs/traces.md)."""
