"""The drawing of a schema."""

from __future__ import annotations

from pathlib import Path

from omnigraph_engine.schema.catalog import parse_catalog
from omnigraph_engine.schema.diagram import diagram

INDUSTRY_INTEL = Path(__file__).parents[2] / "data" / "industry-intel" / "schema.pg"


def test_the_drawing_shows_every_type_property_rule_and_edge() -> None:
    source = r"""
        interface Keyed { slug: String @key }
        node Person implements Keyed {
          age: I32? bio: String? first: String tags: [String]
          kind: enum(a-rather-long-value, another-rather-long-value) @index
          vector: Vector(3) @embed(bio)
          @unique(first, age) @range(age, 0..150) @range(age, ..200) @check(first, "^\"x\n") @index(bio)
        }
        node Empty {}
        edge Knows: Person -> Person { since: Date? @index @unique(src, dst) }
        edge Owns: Person -> Empty @card(1..1)
    """
    expected = r"""
interface Keyed
└─ slug  String  key

node Empty

node Person : Keyed
├─ age     I32?       in ..200, in 0..150
├─ bio     String?    index
├─ first   String     matches "^\"x\n"
├─ kind    enum(a-rather-long-value, another-rather-long-value)  index
├─ slug    String     key, from Keyed
├─ tags    [String]
├─ vector  Vector(3)  embeds bio
└─ unique (age, first)

Person ──Knows──▶ Person  (0..)
├─ since  Date?  index
└─ unique (dst, src)
Person ──Owns──▶ Empty  (1..1)
"""
    assert diagram(parse_catalog(source)) == expected.strip("\n")


def test_each_member_of_a_composite_key_is_marked() -> None:
    drawn = diagram(parse_catalog("node P { a: String b: I32 c: I32 @key(a, b) }"))
    assert drawn.split("\n") == ["node P", "├─ a  String  key", "├─ b  I32     key", "└─ c  I32"]


def test_a_long_property_is_wrapped_under_its_type() -> None:
    values = ", ".join(f"value-{number}" for number in range(10, 30))
    lines = diagram(parse_catalog(f"node P {{ a: enum({values}) b: I32 }}")).split("\n")
    assert all(len(line) <= 100 for line in lines)
    assert lines[1].startswith("├─ a  enum(value-10, ")
    assert lines[2].startswith("│       value-")
    assert lines[-1] == "└─ b  I32"


def test_a_schema_of_ten_nodes_fits_a_terminal_and_is_drawn_the_same_every_time() -> None:
    source = INDUSTRY_INTEL.read_text(encoding="utf-8")
    drawn = diagram(parse_catalog(source))
    assert drawn == diagram(parse_catalog(source))
    assert max(map(len, drawn.split("\n"))) <= 100
    assert "InformationArtifact ──PublishedBySource──▶ SourceEntity  (0..1)" in drawn
    assert drawn.count("──▶") == 23


def test_an_empty_schema_draws_as_nothing() -> None:
    assert diagram(parse_catalog("")) == ""
