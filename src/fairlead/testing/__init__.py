"""What fairlead and stores written elsewhere are tested with.

`contract` holds a store to every clause of `fairlead.storage.protocol`, `machine` compares it with the memory store,
`leases` interleaves lookers and actors, `races` sets threads and processes on it. Needs the extra `testing`; nothing
else in fairlead imports from here.
"""

import sys

from fairlead.core import extras

try:
    import hypothesis  # noqa: F401
    import pytest  # noqa: F401
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(extras.told(error, "fairlead.testing") or str(error), name=error.name) from None

if "pytest" in sys.modules:
    sys.modules["pytest"].register_assert_rewrite(
        "fairlead.testing.clauses",
        "fairlead.testing.leases",
        "fairlead.testing.machine",
        "fairlead.testing.races",
        "fairlead.testing.steps",
        "fairlead.testing.vandalism",
    )
