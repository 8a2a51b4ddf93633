"""One line for training loops that a library runs: a module for each library.

Nothing here is imported before it is asked for, and each module imports its
library only.  See ``docs/integrations.md``.
"""
