"""The three schema files of a graph as one value: the text, the accepted schema, and the hashes that bind them.

Whoever holds a ``SchemaContract`` has a text that means the accepted schema and identities that belong to it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from omnigraph_engine.errors import SchemaContractBroken, SchemaError, SchemaSyntaxError
from omnigraph_engine.schema.catalog import parse_catalog
from omnigraph_engine.schema.identity import AcceptedSchema
from omnigraph_engine.schema.ir import ir_hash, ir_text, parse_ir
from omnigraph_engine.schema.json_text import load_object, pretty_json
from omnigraph_engine.schema.model import Catalog
from omnigraph_engine.schema.shape import shape_hash

SOURCE_FILE = "_schema.pg"
IR_FILE = "_schema.ir.json"
STATE_FILE = "__schema_state.json"

_STATE_VERSIONS = {"format_version": 2, "schema_identity_version": 2}
_EDITED = (
    f"Put the accepted text back into {SOURCE_FILE}, for example from a backup, "
    "and make the change as a schema change of the graph."
)


@dataclass(frozen=True)
class SchemaContract:
    """The catalog of ``accepted`` is the meaning of ``source``, annotations and rename hints included."""

    source: str  # exactly as the user gave it
    accepted: AcceptedSchema

    @cached_property
    def state_text(self) -> str:
        """The text of the state file: equal texts mean equal schemas with equal identities."""
        return pretty_json(_state(self.accepted))

    def files(self) -> dict[str, str]:
        """The text of each file by its name below the graph root."""
        return {
            SOURCE_FILE: self.source,
            IR_FILE: ir_text(self.accepted),
            STATE_FILE: self.state_text,
        }


def read_contract(source: str, ir: str, state: str) -> SchemaContract:
    """The contract that the texts of the three files make; it is whole, or this raises.

    Raises:
        SchemaContractBroken: A file is damaged or they do not belong together; the message names the file.
    """
    recorded = _read_state(state)
    catalog = _parse_source(source)
    accepted = parse_ir(ir)
    shape, accepted_shape = shape_hash(catalog), shape_hash(accepted.catalog)
    if shape not in (accepted_shape, recorded["schema_shape_hash"]):
        raise SchemaContractBroken(
            f"{SOURCE_FILE} was edited by hand: it no longer means the schema this graph accepted.",
            details={"expected": accepted_shape, "found": shape},
            hint=_EDITED,
        )
    if shape != accepted_shape:
        raise SchemaContractBroken(f"{IR_FILE} and {SOURCE_FILE} describe different schemas.")
    contract = SchemaContract(source, replace(accepted, catalog=catalog))
    for member, expected in _state(contract.accepted).items():
        if recorded[member] != expected:
            raise SchemaContractBroken(
                f"{STATE_FILE} does not belong to {IR_FILE}: {member} differs.",
                details={"member": member, "expected": expected, "found": recorded[member]},
            )
    return contract


def _state(accepted: AcceptedSchema) -> dict[str, Any]:
    return {
        "format_version": _STATE_VERSIONS["format_version"],
        "schema_shape_hash": shape_hash(accepted.catalog),
        "schema_ir_hash": ir_hash(accepted),
        "schema_identity_version": _STATE_VERSIONS["schema_identity_version"],
        "schema_identity_domain": accepted.domain,
    }


def _read_state(text: str) -> dict[str, Any]:
    state = load_object(STATE_FILE, text)
    for member, expected in _STATE_VERSIONS.items():
        if state.get(member) != expected:
            raise SchemaContractBroken(
                f"{STATE_FILE} has {member} {state.get(member)!r}, and this package reads {expected}.",
                details={"member": member, "expected": expected, "found": state.get(member)},
                hint="Rebuild an older graph by export and load; read a newer one with a newer release.",
            )
    for member in ("schema_shape_hash", "schema_ir_hash", "schema_identity_domain"):
        if not isinstance(state.get(member), str):
            raise SchemaContractBroken(f"{STATE_FILE} has no {member}.")
    return state


def _parse_source(source: str) -> Catalog:
    try:
        return parse_catalog(source)
    except (SchemaSyntaxError, SchemaError) as error:
        raise SchemaContractBroken(
            f"{SOURCE_FILE} was edited by hand: it is no longer a valid schema: {error.message}", hint=_EDITED
        ) from error


def recorded_ir_hash(state: str) -> str:
    """Which accepted schema the text of the state file names."""
    return str(_read_state(state)["schema_ir_hash"])
