"""What settings are made of: sections that refuse unknown keys, and strings that do not show themselves."""

from __future__ import annotations

import msgspec


class Secret(str):
    """A string that does not show itself. `reveal` gives it to whoever needs it."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "'**********'"

    def __str__(self) -> str:
        return "**********"

    def __format__(self, spec: str) -> str:
        return format(str(self), spec)

    def reveal(self) -> str:
        """The string itself."""
        return str.__str__(self)


class Section(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One mapping of the file; unknown keys are refused."""
