"""``argus doctor``: checks what a rank and a node need, and says what to do."""
