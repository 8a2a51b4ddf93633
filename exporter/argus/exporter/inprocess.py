"""The exporter inside the training process, for notebooks."""
