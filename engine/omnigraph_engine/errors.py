"""Every error of the project: one base class, one stable code each.

Across Spark's process boundary only text survives, so ``str(error)`` starts with the code; callers of the
engine get the typed error itself, with ``details`` as data and a ``hint`` that says what to do.

Code families: OG1 the graph as a whole, OG2 commits and conflicts, OG3 schema, OG4 data, OG5 storage, OG6 usage.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar


class OmnigraphError(Exception):
    """Base of all errors: ``code`` is stable, ``retryable`` says whether the same call may succeed later."""

    code: ClassVar[str] = "OG0000"
    retryable: ClassVar[bool] = False

    def __init__(self, message: str, *, details: Mapping[str, Any] | None = None, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.details: dict[str, Any] = dict(details or {})
        self.hint = hint

    def __str__(self) -> str:
        text = f"{self.code} {self.message}"
        return f"{text} Hint: {self.hint}" if self.hint else text

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.message, self.details, self.hint)


def _rebuild(cls: type[OmnigraphError], message: str, details: dict[str, Any], hint: str | None) -> OmnigraphError:
    return cls(message, details=details, hint=hint)


def did_you_mean(name: str, known: Iterable[str]) -> str | None:
    """A hint naming the closest known word, or None when nothing is close."""
    by_folded = {word.casefold(): word for word in known}
    close = difflib.get_close_matches(name.casefold(), by_folded, n=1, cutoff=0.6)
    return f"Did you mean '{by_folded[close[0]]}'?" if close else None


# -- OG1: the graph as a whole ------------------------------------------------------------------------------


class GraphNotFound(OmnigraphError, LookupError):
    """Nothing is stored at the given address."""

    code = "OG1001"


class NotAGraph(OmnigraphError):
    """Something is stored at the given address, but it is not an OmniGraph graph."""

    code = "OG1002"


class GraphExists(OmnigraphError):
    """A graph, or something else, is already stored where one was to be created."""

    code = "OG1003"


class GraphCreationPending(OmnigraphError):
    """Another creation holds the claim on this address, or died holding it."""

    code = "OG1004"


class GraphDamaged(OmnigraphError):
    """What is stored contradicts itself; nothing was changed."""

    code = "OG1005"


class GraphTooOld(OmnigraphError):
    """The graph was written in an older format that this package does not read."""

    code = "OG1006"


class GraphTooNew(OmnigraphError):
    """The graph was written in a newer format than this package knows."""

    code = "OG1007"


class BranchNotFound(OmnigraphError, LookupError):
    """The graph has no branch of that name."""

    code = "OG1010"


class CommitNotFound(OmnigraphError, LookupError):
    """No branch of the graph has a commit of that id, version or time."""

    code = "OG1011"


class BranchExists(OmnigraphError):
    """The name of a new branch is taken, or lies within the folder of one that is."""

    code = "OG1013"


class BranchHasDescendants(OmnigraphError):
    """A branch cannot be deleted while others that were made from it live."""

    code = "OG1014"


class SnapshotGone(OmnigraphError, LookupError):
    """What a snapshot shows is not in storage any more: its branch was deleted, or the version was cleaned up."""

    code = "OG1015"


class ReadOnlyGraph(OmnigraphError, PermissionError):
    """A write was asked of a graph opened with ``mode="ro"``."""

    code = "OG1012"


# -- OG2: commits and conflicts -----------------------------------------------------------------------------


class VersionConflict(OmnigraphError):
    """A table or the branch head moved since it was read; ``details`` has table_key, expected and actual."""

    code = "OG2001"
    retryable = True


class PublishContention(OmnigraphError):
    """Other writers kept winning the manifest; nothing of this commit is visible."""

    code = "OG2002"
    retryable = True


class OutcomeUnknown(OmnigraphError):
    """The store failed while the commit was being decided; ``details`` has commit_id. Look before writing again."""

    code = "OG2003"


class WriterBusy(OmnigraphError):
    """Another operation on the same tables is under way and was still alive when the wait ended."""

    code = "OG2004"
    retryable = True


class SidecarUnreadable(OmnigraphError):
    """A recovery document is damaged, newer than this package, or another engine's to finish; nothing was changed."""

    code = "OG2005"


class OperationUndone(OmnigraphError):
    """A recovery took this write for abandoned and undid it; nothing of it is visible."""

    code = "OG2006"
    retryable = True


class DuplicateTransaction(OmnigraphError):
    """The application's transaction is in the graph already; nothing was done again."""

    code = "OG2007"


class MergeConflict(OmnigraphError):
    """Two branches contradict each other; nothing was merged. ``conflicts`` holds every contradiction, as an Arrow table."""

    code = "OG2008"

    def __init__(
        self,
        message: str,
        *,
        details: Mapping[str, Any] | None = None,
        hint: str | None = None,
        conflicts: Any = None,
    ) -> None:
        super().__init__(message, details=details, hint=hint)
        self.conflicts = conflicts

    def __reduce__(self) -> tuple[Any, ...]:
        rebuild, arguments = super().__reduce__()
        return rebuild, arguments, {"conflicts": self.conflicts}


# -- OG3: schema --------------------------------------------------------------------------------------------


class SchemaSyntaxError(OmnigraphError, SyntaxError):
    """The schema text does not parse; ``details`` has line and column."""

    code = "OG3001"


class SchemaError(OmnigraphError, ValueError):
    """The schema text parses but breaks a rule of the language; ``details`` has line and column."""

    code = "OG3002"


class SchemaContractBroken(OmnigraphError):
    """The three schema files of a graph do not belong together, for example after an edit by hand."""

    code = "OG3003"


class UnknownType(OmnigraphError, LookupError):
    """The schema has no node or edge type of that name."""

    code = "OG3004"


class UnknownProperty(OmnigraphError, LookupError):
    """The type has no property of that name."""

    code = "OG3005"


class SchemaChanged(OmnigraphError):
    """The graph has another schema than when this handle was opened."""

    code = "OG3006"


# -- OG4: data ----------------------------------------------------------------------------------------------


class InvalidInput(OmnigraphError, ValueError):
    """The data cannot be read as what it claims to be; ``details`` says where."""

    code = "OG4001"


class TypeMismatch(OmnigraphError, TypeError):
    """A column's Arrow type cannot be stored as its property's type."""

    code = "OG4002"


class ConstraintViolation(OmnigraphError, ValueError):
    """Rows break a rule of the schema; ``details`` names type, property, rule, count and the first values."""

    code = "OG4003"


class DuplicateKey(ConstraintViolation):
    """One id occurs twice, in the input or in the input and the graph."""

    code = "OG4004"


class MissingEndpoint(ConstraintViolation):
    """An edge names a node that does not exist."""

    code = "OG4005"


class UniqueViolation(ConstraintViolation):
    """Two rows hold the same value of a ``@unique`` property or group of properties."""

    code = "OG4006"


class CardinalityViolation(ConstraintViolation):
    """A source would have fewer or more edges of one type than its ``@card`` allows."""

    code = "OG4007"


# -- OG5: storage -------------------------------------------------------------------------------------------


class StorageError(OmnigraphError, OSError):
    """The store failed; whether anything was written is for the caller to find out."""

    code = "OG5001"
    retryable = True


class ObjectExists(StorageError, FileExistsError):
    """A put-if-absent found the object there already."""

    code = "OG5002"
    retryable = False


class ObjectNotFound(StorageError, FileNotFoundError):
    """The object is not there."""

    code = "OG5003"
    retryable = False


# -- OG6: usage ---------------------------------------------------------------------------------------------


class InvalidArgument(OmnigraphError, ValueError):
    """A call's arguments do not fit together or are not of the accepted form."""

    code = "OG6001"


def all_errors() -> list[type[OmnigraphError]]:
    """Every concrete error class, by code: what the reference page is rendered from."""
    found: list[type[OmnigraphError]] = []
    todo = OmnigraphError.__subclasses__()
    while todo:
        cls = todo.pop()
        found.append(cls)
        todo.extend(cls.__subclasses__())
    return sorted(set(found), key=lambda cls: cls.code)
