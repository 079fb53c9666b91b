"""The steps of a schema migration: a closed set, each a line for people and a JSON object for programs."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from omnigraph_engine.schema.model import TypeKind


@dataclass(frozen=True)
class _OnType:
    """Names are those of the new schema, except where a field says old and in drops."""

    kind: ClassVar[str]

    type_kind: TypeKind
    type_name: str

    @property
    def destructive(self) -> bool:
        """Whether the step takes stored values out of the current version."""
        return False

    @property
    def entity(self) -> str:
        return f"{self.type_kind}:{self.type_name}"

    def to_json(self) -> dict[str, Any]:
        return {"kind": self.kind, "destructive": self.destructive, **asdict(self)}


@dataclass(frozen=True)
class _OnTypeOrProperty(_OnType):
    property_name: str | None

    @property
    def entity(self) -> str:
        return super().entity if self.property_name is None else f"{super().entity}.{self.property_name}"


@dataclass(frozen=True)
class _OnProperty(_OnTypeOrProperty):
    property_name: str


@dataclass(frozen=True)
class _Drop(_OnType):
    @property
    def destructive(self) -> bool:
        return self.type_kind != "interface"  # interfaces store nothing


@dataclass(frozen=True)
class AddType(_OnType):
    kind = "add_type"

    def __str__(self) -> str:
        return f"add {self.entity}"


@dataclass(frozen=True)
class RenameType(_OnType):
    """The table stays where it is: only its name changes."""

    kind = "rename_type"
    old_name: str

    def __str__(self) -> str:
        return f"rename {self.type_kind}:{self.old_name} to {self.type_name}"


@dataclass(frozen=True)
class DropType(_Drop):
    kind = "drop_type"

    def __str__(self) -> str:
        return f"drop {self.entity}"


@dataclass(frozen=True)
class AddProperty(_OnProperty):
    """Constraints that mention an added property arrive with it: its stored values are all null, or there are none."""

    kind = "add_property"
    property_type: str  # as the schema language writes it
    needs_empty_table: bool  # it is required, and stored rows would have no value

    def __str__(self) -> str:
        text = f"add {self.entity}: {self.property_type}"
        return f"{text} (only while {self.type_name} has no rows)" if self.needs_empty_table else text


@dataclass(frozen=True)
class RenameProperty(_OnProperty):
    kind = "rename_property"
    old_name: str

    def __str__(self) -> str:
        return f"rename {self.type_kind}:{self.type_name}.{self.old_name} to {self.property_name}"


@dataclass(frozen=True)
class DropProperty(_Drop, _OnProperty):
    """Constraints that mention a dropped property leave with it."""

    kind = "drop_property"

    def __str__(self) -> str:
        return f"drop {self.entity}"


@dataclass(frozen=True)
class WidenEnum(_OnProperty):
    kind = "widen_enum"
    added_values: tuple[str, ...]

    def __str__(self) -> str:
        return f"widen enum {self.entity} by {', '.join(self.added_values)}"


@dataclass(frozen=True)
class AddIndex(_OnType):
    """An intent: the index itself is built by maintenance."""

    kind = "add_index"
    columns: tuple[str, ...]

    def __str__(self) -> str:
        return f"add index {self.entity}({', '.join(self.columns)})"


@dataclass(frozen=True)
class ChangeMetadata(_OnTypeOrProperty):
    """Only the schema files change: annotations, or where an unchanged constraint is written."""

    kind = "change_metadata"

    def __str__(self) -> str:
        return f"change metadata of {self.entity}"


@dataclass(frozen=True)
class Unsupported(_OnTypeOrProperty):
    """A change that no migration makes; the reason says what to do instead."""

    kind = "unsupported"
    reason: str

    def __str__(self) -> str:
        return f"unsupported: {self.entity}: {self.reason}"


Step = (
    AddType
    | RenameType
    | DropType
    | AddProperty
    | RenameProperty
    | DropProperty
    | WidenEnum
    | AddIndex
    | ChangeMetadata
    | Unsupported
)
