"""The folder of the program, where its tests import it from."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
