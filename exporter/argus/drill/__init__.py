"""Fire drills: a modelled hybrid-parallel job with a known fault (``argus drill``, docs/drill.md)."""
