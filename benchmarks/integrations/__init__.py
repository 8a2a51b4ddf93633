"""What the integrations cost: one job for each, which measures itself with and without, in turn."""
