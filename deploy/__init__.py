"""What is shipped, and how it is built."""

from __future__ import annotations
