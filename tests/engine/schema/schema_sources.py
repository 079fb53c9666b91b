"""Schema texts for the tests of this folder: the worked example of the format, and random ones."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from hypothesis import strategies as st

DOMAIN = "01ARZ3NDEKTSV4RRFFQ69G5FAV"
GOLDEN = Path(__file__).parents[2] / "data" / "golden-schema"
INDUSTRY_INTEL = Path(__file__).parents[2] / "data" / "industry-intel" / "schema.pg"
EXAMPLE = (GOLDEN / "_schema.pg").read_text(encoding="utf-8")

# One text with every construct that the shape and the IR spell in a way of its own.
EVERYTHING = r"""
interface Named { name: String @index  label: String? @description("as shown") }
interface Dated { created: DateTime  label: String? @description("as shown") }
node Document @description("A document") @owner("search", team="a") implements Named, Dated {
    name: String @unique
    body: String
    kind: enum(report, memo, note)? @index
    pages: U32?
    score: F64?
    tags: [String]?
    payload: Blob?
    vector: Vector(8)? @embed("body", model="m1")
    @key(name, body)
    @unique(kind, pages)
    @range(pages, 1..)
    @range(score, -0.5..2)
    @check(name, "^[A-Z]\"é\\d+")
}
node Author implements Named {}
edge Wrote: Author -> Document @card(1..3) @description("who wrote what") {
    share: F32?
    @unique(src, dst)
    @index(dst)
}
edge Cites: Document -> Document { weight: F64? @index @unique }
"""

_TYPES = ["String", "String?", "I64", "F64?", "Bool", "Date?", "enum(a, b)", "enum(a, b, c)", "Vector(2)", "[String]?"]
_ANNOTATIONS = [
    "",
    '@description("one")',
    '@description("two")',
    '@note("x", k="v")',
    "@index",
    "@unique",
    "@unique @index",
]


@dataclass(frozen=True)
class PropertySketch:
    name: str
    type: str
    annotations: str


@dataclass(frozen=True)
class TypeSketch:
    kind: str
    name: str
    properties: tuple[PropertySketch, ...]
    ends: tuple[str, str] | None = None
    implements: tuple[str, ...] = ()
    cardinality: str = ""
    annotations: str = ""


@dataclass(frozen=True)
class SchemaSketch:
    """A schema that can be written as it is, or with every node, edge and property renamed by hint."""

    types: tuple[TypeSketch, ...]

    def source(self) -> str:
        return "\n".join(_written(sketch, renamed=False) for sketch in self.types)

    def renamed_source(self) -> str:
        return "\n".join(_written(sketch, renamed=True) for sketch in self.types)


def new_name(name: str) -> str:
    return f"{name}_x"


def _written(sketch: TypeSketch, *, renamed: bool) -> str:
    rename = renamed and sketch.kind != "interface"
    name = new_name(sketch.name) if rename else sketch.name
    hint = f' @rename_from("{sketch.name}")' if rename else ""
    ends = ""
    if sketch.ends:
        start, end = (new_name(node) if renamed else node for node in sketch.ends)
        ends = f": {start} -> {end} {sketch.cardinality}"
    implements = f" implements {', '.join(sketch.implements)}" if sketch.implements else ""
    lines = [_property_line(prop, renamed=renamed) for prop in sketch.properties]
    body = "\n".join(["{", *lines, "}"])
    return f"{sketch.kind} {name}{ends} {sketch.annotations}{hint}{implements} {body}"


def _property_line(prop: PropertySketch, *, renamed: bool) -> str:
    name = new_name(prop.name) if renamed else prop.name
    hint = f' @rename_from("{prop.name}")' if renamed else ""
    return f"    {name}: {prop.type} {prop.annotations}{hint}"


def _properties(names: str) -> st.SearchStrategy[tuple[PropertySketch, ...]]:
    one = st.builds(PropertySketch, st.sampled_from(names), st.sampled_from(_TYPES), st.sampled_from(_ANNOTATIONS))
    return st.lists(one, max_size=4, unique_by=lambda prop: prop.name).map(tuple)


@st.composite
def schemas(draw: st.DrawFn) -> SchemaSketch:
    """Random valid schemas over few names, so that two of them overlap."""
    annotations = st.sampled_from(["", '@description("one")', '@description("two")'])
    # Interfaces have property names of their own, so that what they demand never clashes.
    demanded = {
        name: PropertySketch(prop, "String?", "")
        for name, prop in draw(st.lists(st.sampled_from([("Named", "name"), ("Dated", "date")]), unique=True))
    }
    interfaces = [TypeSketch("interface", name, (prop,)) for name, prop in demanded.items()]
    nodes = []
    for name in draw(st.lists(st.sampled_from(["Ant", "Bee", "Cat"]), unique=True, min_size=1)):
        implements = tuple(interface for interface in demanded if draw(st.booleans()))
        redeclared = tuple(demanded[interface] for interface in implements if draw(st.booleans()))
        properties = (*draw(_properties("abcde")), *redeclared)
        nodes.append(TypeSketch("node", name, properties, implements=implements, annotations=draw(annotations)))
    node_names = st.sampled_from([node.name for node in nodes])
    edges = [
        TypeSketch(
            "edge",
            name,
            draw(_properties("abc")),
            ends=(draw(node_names), draw(node_names)),
            cardinality=draw(st.sampled_from(["", "@card(0..2)"])),
            annotations=draw(annotations),
        )
        for name in draw(st.lists(st.sampled_from(["Eats", "Fears"]), unique=True))
    ]
    return SchemaSketch(tuple(draw(st.permutations([*interfaces, *nodes, *edges]))))
