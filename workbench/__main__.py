"""`python -m workbench`: the same door as the command `workbench`."""

from __future__ import annotations

import sys

from workbench.cli import main

sys.exit(main())
