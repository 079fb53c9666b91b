"""Schema text to catalog: every rule of the language holds for what comes out.

A property that only an interface declares becomes a property of the node with all its annotations, so a bare ``@key``,
``@unique`` or ``@index`` on it constrains the node. Where the node declares it too, the node's declaration is the whole
truth and the interface only demands its type. Interfaces that give a node the same property must agree on it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeVar, get_args

from omnigraph_engine.errors import SchemaError, did_you_mean
from omnigraph_engine.schema import rules
from omnigraph_engine.schema.constraints import canonical
from omnigraph_engine.schema.model import (
    Annotation,
    Catalog,
    Constraint,
    EdgeType,
    InterfaceType,
    NodeType,
    Property,
    PropertyConstraint,
    PropType,
)
from omnigraph_engine.schema.parser import parse
from omnigraph_engine.schema.rules import Owner
from omnigraph_engine.schema.source import Fault
from omnigraph_engine.schema.syntax import (
    ColumnsSyntax,
    ConstraintSyntax,
    Declaration,
    EdgeSyntax,
    InterfaceSyntax,
    Name,
    NodeSyntax,
    PropertySyntax,
    SchemaFile,
)

_KINDS: Mapping[type[Declaration], Literal["interface", "node", "edge"]] = {
    InterfaceSyntax: "interface",
    NodeSyntax: "node",
    EdgeSyntax: "edge",
}
_PROPERTY_CONSTRAINTS: tuple[PropertyConstraint, ...] = get_args(PropertyConstraint)

NamedType = TypeVar("NamedType", InterfaceType, NodeType, EdgeType)
Found = TypeVar("Found", InterfaceSyntax, NodeSyntax)


def parse_catalog(source: str) -> Catalog:
    """The meaning of a schema text; equal for texts that differ only in comments, whitespace and the order of declarations.

    Raises:
        SchemaSyntaxError: The text is not of the language's form.
        SchemaError: It is, but breaks a rule; the first broken one is reported, with its place.
    """
    file = parse(source)
    try:
        return _resolve(file)
    except Fault as fault:
        raise fault.located(SchemaError, source) from None


@dataclass(frozen=True)
class _Member:
    """A property of one type, its own or inherited."""

    written: PropertySyntax
    type: PropType
    annotations: tuple[Annotation, ...]
    declared_directly: bool = True
    satisfies: tuple[tuple[str, str], ...] = ()


def _resolve(file: SchemaFile) -> Catalog:
    _check_type_names(file.declarations)
    declared = {declaration.name.text: declaration for declaration in file.declarations}
    interfaces: list[InterfaceType] = []
    nodes: list[NodeType] = []
    edges: list[EdgeType] = []
    for declaration in file.declarations:
        if isinstance(declaration, InterfaceSyntax):
            interfaces.append(_interface(declaration))
        elif isinstance(declaration, NodeSyntax):
            nodes.append(_node(declaration, declared))
        else:
            edges.append(_edge(declaration, declared))
    return Catalog(_by_name(interfaces), _by_name(nodes), _by_name(edges))


def _by_name(types: Sequence[NamedType]) -> Mapping[str, NamedType]:
    return {named.name: named for named in sorted(types, key=lambda named: named.name)}


def _check_type_names(declarations: Iterable[Declaration]) -> None:
    first: dict[str, Declaration] = {}
    for declaration in declarations:
        name = declaration.name
        other = first.setdefault(name.text.lower(), declaration)
        if other is not declaration:
            raise Fault(
                name.span,
                f"the name '{name.text}' is taken by {_owner(other)} in line {other.name.span.line}; "
                "type names differ in more than case",
            )


def _owner(declaration: Declaration) -> Owner:
    return Owner(_KINDS[type(declaration)], declaration.name.text)


def _interface(written: InterfaceSyntax) -> InterfaceType:
    owner = _owner(written)
    members = _own_members(owner, written.properties)
    _constraints(owner, members, ())
    return InterfaceType(written.name.text, _properties(owner, members))


def _node(written: NodeSyntax, declared: Mapping[str, Declaration]) -> NodeType:
    owner = _owner(written)
    annotations = rules.type_annotations(owner, written.annotations)
    interfaces = {
        reference.text: (reference, _find(reference, InterfaceSyntax, declared)) for reference in written.implements
    }
    members = _own_members(owner, written.body.properties)
    for name in sorted(interfaces):
        members = _with_inherited(owner, members, *interfaces[name])
    return NodeType(
        written.name.text,
        properties=_properties(owner, members),
        annotations=annotations,
        implements=tuple(sorted(interfaces)),
        constraints=_constraints(owner, members, written.body.constraints),
        declared_key=_declared_key(members, written.body.constraints),
    )


def _edge(written: EdgeSyntax, declared: Mapping[str, Declaration]) -> EdgeType:
    owner = _owner(written)
    for endpoint in (written.from_type, written.to_type):
        _find(endpoint, NodeSyntax, declared)
    members = _own_members(owner, written.body.properties)
    return EdgeType(
        written.name.text,
        from_type=written.from_type.text,
        to_type=written.to_type.text,
        properties=_properties(owner, members),
        cardinality=rules.cardinality(written.cardinality),
        annotations=rules.type_annotations(owner, written.annotations),
        constraints=_constraints(owner, members, written.body.constraints),
    )


def _own_members(owner: Owner, properties: Sequence[PropertySyntax]) -> dict[str, _Member]:
    rules.check_property_names(owner, (written.name for written in properties))
    return {
        written.name.text: _Member(
            written, rules.property_type(written.type), rules.property_annotations(owner, written)
        )
        for written in properties
    }


def _with_inherited(
    owner: Owner, members: Mapping[str, _Member], reference: Name, interface: InterfaceSyntax
) -> dict[str, _Member]:
    merged = dict(members)
    for name, demanded in _own_members(_owner(interface), interface.properties).items():
        present = merged.get(name, replace(demanded, declared_directly=False))
        _check_agreement(owner, present, demanded, reference)
        merged[name] = replace(present, satisfies=(*present.satisfies, (reference.text, name)))
    return merged


def _check_agreement(owner: Owner, present: _Member, demanded: _Member, reference: Name) -> None:
    name = demanded.written.name.text
    if present.declared_directly:
        if present.type != demanded.type:
            raise Fault(
                present.written.type.span,
                f"'{name}' of {owner} is {present.type}, but interface {reference.text} declares {demanded.type}",
            )
        return
    interfaces = f"interfaces {', '.join(interface for interface, _ in present.satisfies)} and {reference.text}"
    if present.type != demanded.type:
        types = f"{present.type} and {demanded.type}"
        raise Fault(reference.span, f"{interfaces} declare '{name}' with different types: {types}")
    if _meaning(present) != _meaning(demanded):
        hint = f"Declare '{name}' in {owner} to settle it."
        raise Fault(reference.span, f"{interfaces} declare '{name}' with different annotations", hint)


def _meaning(member: _Member) -> frozenset[Annotation]:
    return frozenset(annotation for annotation in member.annotations if annotation.name != "rename_from")


def _properties(owner: Owner, members: Mapping[str, _Member]) -> tuple[Property, ...]:
    types = _types(members)
    return tuple(
        Property(
            name,
            member.type,
            annotations=member.annotations,
            property_constraints=_property_constraints(member),
            embed_source=rules.embed_source(owner, member.written, types),
            declared_directly=member.declared_directly,
            satisfies=member.satisfies,
        )
        for name, member in sorted(members.items())
    )


def _constraints(
    owner: Owner, members: Mapping[str, _Member], body: Sequence[ConstraintSyntax]
) -> tuple[Constraint, ...]:
    written = [*_expanded(members), *body]
    rules.check_one_key(owner, written)
    types = _types(members)
    return canonical(rules.constraint(owner, constraint, types) for constraint in written)


def _declared_key(members: Mapping[str, _Member], body: Sequence[ConstraintSyntax]) -> tuple[str, ...]:
    keys = (written for written in (*_expanded(members), *body) if isinstance(written, ColumnsSyntax))
    return tuple(dict.fromkeys(column.text for written in keys if written.kind == "key" for column in written.columns))


def _expanded(members: Mapping[str, _Member]) -> Iterator[ColumnsSyntax]:
    """The bare ``@key``, ``@unique`` and ``@index`` of properties as the constraints they stand for."""
    for name, member in members.items():
        for annotation in member.written.annotations:
            for kind in _PROPERTY_CONSTRAINTS:
                if annotation.name == kind:
                    yield ColumnsSyntax(kind, (Name(name, annotation.span),), annotation.span)


def _property_constraints(member: _Member) -> tuple[PropertyConstraint, ...]:
    names = {annotation.name for annotation in member.annotations}
    return tuple(kind for kind in _PROPERTY_CONSTRAINTS if kind in names)


def _types(members: Mapping[str, _Member]) -> dict[str, PropType]:
    return {name: member.type for name, member in members.items()}


def _find(name: Name, wanted: type[Found], declared: Mapping[str, Declaration]) -> Found:
    found = declared.get(name.text)
    if isinstance(found, wanted):
        return found
    kind = _KINDS[wanted]
    if found is not None:
        raise Fault(name.span, f"'{name.text}' is of kind {_owner(found).kind}, not {kind}")
    known = (other for other, declaration in declared.items() if isinstance(declaration, wanted))
    raise Fault(name.span, f"unknown {kind} '{name.text}'", did_you_mean(name.text, known))
