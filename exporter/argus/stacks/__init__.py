"""What a rank's Python threads did in the last minutes: tables of stacks, and ``argus stacks``."""
