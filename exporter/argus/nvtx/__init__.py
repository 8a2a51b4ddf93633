"""NVTX ranges as phases: the library that NVTX loads, and the rules by which it goes."""
