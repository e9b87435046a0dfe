"""What handlers may do to those who run them: an app with one task for each place, and a table of poisons.

A poison is a function. Most fare alike in every place; what cannot, says how it differs.
"""

from __future__ import annotations

from tests.poison import done, raised, returned
from tests.poison.table import POISONS, SETTINGS, app

__all__ = ["POISONS", "SETTINGS", "app", "done", "raised", "returned"]
