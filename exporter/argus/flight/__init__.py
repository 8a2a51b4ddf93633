"""The flight recorder's read side: what each rank did last, as a trace that Perfetto opens."""
