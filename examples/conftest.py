"""The folders of the programs, where their tests import them from."""

import sys
from pathlib import Path

sys.path += [str(folder) for folder in Path(__file__).parent.iterdir() if folder.is_dir()]
