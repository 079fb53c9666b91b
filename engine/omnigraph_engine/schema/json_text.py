"""The JSON of the schema files: written exactly as serde_json writes it, read without leniency.

A hash is taken over what is written, so both engines must agree on every byte. Python's own writer spells floats and
lays out empty arrays differently.
"""

from __future__ import annotations

import json
import math
from typing import Any

from omnigraph_engine.errors import SchemaContractBroken


def load_object(file_name: str, text: str) -> dict[str, Any]:
    """The JSON object a schema file holds; a member given twice is refused, since readers differ on which one counts.

    Raises:
        SchemaContractBroken: The text is not one JSON object.
    """
    try:
        document = json.loads(text, object_pairs_hook=_members)
        compact_json(
            document
        ).encode()  # Python reads NaN and escapes of half a character; neither can be written again
    except (ValueError, RecursionError) as error:
        raise SchemaContractBroken(f"{file_name} is not JSON: {error}.") from error
    if not isinstance(document, dict):
        raise SchemaContractBroken(f"{file_name} is not a JSON object.")
    return document


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        message = f"the member '{twice}' is given twice"
        raise ValueError(message)
    return members


def compact_json(value: Any) -> str:
    """Byte for byte what ``serde_json::to_string`` gives: no spaces, keys in insertion order."""
    return _render(value, newline=None)


def pretty_json(value: Any) -> str:
    """Byte for byte what ``serde_json::to_string_pretty`` gives: two spaces, no newline at the end."""
    return _render(value, newline="\n")


def _render(value: Any, newline: str | None) -> str:
    inner = None if newline is None else newline + "  "
    if isinstance(value, dict):
        colon = ":" if newline is None else ": "
        members = [f"{_render(key, None)}{colon}{_render(member, inner)}" for key, member in value.items()]
        return _block("{", members, "}", newline)
    if isinstance(value, (list, tuple)):
        return _block("[", [_render(member, inner) for member in value], "]", newline)
    if isinstance(value, float):
        return _float_text(value)
    return json.dumps(value, ensure_ascii=False)


def _block(opening: str, members: list[str], closing: str, newline: str | None) -> str:
    if newline is None or not members:
        return opening + ",".join(members) + closing
    inner = newline + "  "
    return opening + inner + f",{inner}".join(members) + newline + closing


def _float_text(value: float) -> str:
    """The shortest digits that read back as ``value``, laid out as ryu does.

    Python finds the same digits but writes the exponent with a sign and two digits (``1e+21``, ``1e-07``), and already
    uses it at 1e-5, where ryu still writes ``0.00001``.
    """
    if not math.isfinite(value):
        message = f"JSON has no spelling for {value}"
        raise ValueError(message)
    mantissa, _, exponent = repr(value).partition("e")
    if not exponent:
        return mantissa
    if int(exponent) == -5:
        sign = "-" if value < 0 else ""
        return f"{sign}0.0000{mantissa.lstrip('-').replace('.', '')}"
    return f"{mantissa}e{int(exponent)}"
