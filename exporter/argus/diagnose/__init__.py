"""Post-mortem of a recorded trace with the shipped rules (``argus diagnose``, docs/diagnose.md)."""
