"""What the exporter does with flight recorders: traces on demand, snapshots when an alert accuses a rank."""
