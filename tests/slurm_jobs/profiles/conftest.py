"""What the tests of this folder share."""

import sys
from pathlib import Path

# Tests are no package that could be imported from.
sys.path.insert(0, str(Path(__file__).parent))
