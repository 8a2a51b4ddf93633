"""The rank's side: who this rank is, where its segment lies, and the tracer's life."""
