"""Runs of the report's own fabrication."""

import sys
from pathlib import Path

REPORT = str(Path(__file__).parents[1] / "report")
if REPORT not in sys.path:
    sys.path.insert(0, REPORT)
