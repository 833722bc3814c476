"""Fixtures for every test; the builders are importable from any test folder."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
