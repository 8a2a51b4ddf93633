"""What holds a training loop up on the host, seen without a line in the program.

Garbage collections and later compilations become host phases (``gc``,
``jit_compile``), checkpoints, rendezvous and the compilations of the start
declared pauses.  No library is imported for it.  See ``docs/stalls.md``.
"""
