"""GPUs of this node through NVML: read by threads of their own, joined to the ranks that use them.

Nothing here is imported by a rank, and nothing takes a resource of the GPU:
other readers of NVML (dcgm-exporter, nvidia-smi) work beside it.
"""
