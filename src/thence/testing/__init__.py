"""The test kit of thence: contract suites for every port, stores in memory, a clock to move, a proxy that breaks links.

It is part of the wheel, so that an implementation written elsewhere can prove itself with the suites that ours pass.
The product never imports it. It needs pytest, hypothesis and pyarrow only where those are used.
"""

from __future__ import annotations

import sys

if "pytest" in sys.modules:
    import pytest

    # Without this, a failed assert in a suite says nothing about the values.
    pytest.register_assert_rewrite("thence.testing.contracts")
