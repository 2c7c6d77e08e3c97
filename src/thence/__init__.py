"""thence collects events, lands them exactly once in tables, and knows where every row came from.

Importing this package is cheap on purpose: no Spark, no database driver, no web framework.
"""

from __future__ import annotations

__version__ = "0.1.0"
