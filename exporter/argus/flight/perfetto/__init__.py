"""Perfetto's trace format, as far as ARGUS writes it and reads it back."""
