"""What the exporter does when a run of this node hangs: it takes the stacks of its ranks, and shows them."""
