"""Arguments of calls that Python would take as they come and stumble over later."""

from __future__ import annotations

from omnigraph_engine.errors import InvalidArgument


def whole_number(name: str, value: object, *, least: int) -> None:
    """Raises unless the value is a whole number, not below ``least``."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise InvalidArgument(f"{name} is {value!r}, not a whole number.", hint=f"Give a whole number from {least} on.")
    if value < least:
        raise InvalidArgument(
            f"{name} is {value}; it must {'not be negative' if least == 0 else f'be at least {least}'}."
        )
