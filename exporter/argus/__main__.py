"""``python -m argus``: the same as ``argus``."""

from __future__ import annotations

import sys

from argus.cli import main

sys.exit(main())
