"""Kernel names as a person reads them: ``at::native::reduce_kernel`` for ``_ZN2at6native13reduce_kernel…``.

The ring holds names as the compiler mangled them, cut to 127 bytes.  What comes
first in them, the function with its namespaces, is readable without a demangler
(Itanium C++ ABI, 5.1.3 and 5.1.4); template arguments and parameters are left out.
"""

from __future__ import annotations

import re
from functools import lru_cache

_UNNAMED = ("_GLOBAL__N", "_INTERNAL_")
"""How compilers write unnamed namespaces, with the name of the file behind it."""
_LENGTH = re.compile(r"[1-9]\d{0,3}", re.ASCII)


@lru_cache(maxsize=4096)
def readable(name: str) -> str:
    """The function's name with its namespaces; the name itself where it is not mangled."""
    if not name.startswith("_Z"):
        return name
    at, nested = 2, False
    if name.startswith("N", at):
        at, nested = at + 1, True
        while name[at : at + 1] in ("r", "V", "K"):  # qualifiers of a member function
            at += 1
    elif name.startswith("L", at):
        at += 1
    parts = []
    while match := _LENGTH.match(name, at):
        begin, at = match.end(), match.end() + int(match[0])
        part = name[begin:at]
        if not part.startswith(_UNNAMED):
            parts.append(part)
        if not nested or at > len(name):
            break
    return "::".join(parts) or name
