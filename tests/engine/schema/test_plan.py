"""The migration plan: every change has its step, what cannot be done says so, and nothing to do is no step."""

from __future__ import annotations

import json
from typing import get_args

import pytest
from hypothesis import given, settings
from omnigraph_engine.errors import SchemaError
from omnigraph_engine.schema.catalog import parse_catalog
from omnigraph_engine.schema.identity import AcceptedSchema, accept_initial, evolve
from omnigraph_engine.schema.model import InterfaceType
from omnigraph_engine.schema.plan import MigrationPlan, plan
from omnigraph_engine.schema.shape import shape_json
from omnigraph_engine.schema.steps import (
    AddIndex,
    AddProperty,
    AddType,
    ChangeMetadata,
    DropProperty,
    DropType,
    RenameProperty,
    RenameType,
    Step,
    Unsupported,
    WidenEnum,
)
from schema_sources import DOMAIN, EVERYTHING, EXAMPLE, INDUSTRY_INTEL, SchemaSketch, new_name, schemas


def accept(source: str) -> AcceptedSchema:
    return accept_initial(parse_catalog(source), DOMAIN)


def planned(old: str, new: str) -> MigrationPlan:
    return plan(accept(old), parse_catalog(new))


def steps(old: str, new: str) -> list[Step]:
    return list(planned(old, new).steps)


def only_reason(old: str, new: str) -> tuple[str, str]:
    """Entity and reason of the one step that such a change is: an unsupported one."""
    (step,) = steps(old, new)
    assert isinstance(step, Unsupported)
    return step.entity, step.reason


# -- nothing to do ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "source",
    ["", EXAMPLE, EVERYTHING, INDUSTRY_INTEL.read_text(encoding="utf-8")],
    ids=["empty", "example", "all", "real"],
)
def test_the_plan_to_the_same_schema_is_empty(source: str) -> None:
    result = planned(source, source)
    assert result.steps == ()
    assert result.is_empty
    assert result.supported
    assert not result.destructive


def test_comments_order_and_hints_that_have_done_their_work_need_no_step() -> None:
    old = "node P { a: String  b: I32? } node Q {}"
    new = '/* moved */ node Q {} node P @rename_from("Long_ago") { b: I32?  a: String @rename_from("z") }'
    assert planned(old, new).is_empty


def test_the_order_of_enum_values_columns_and_interfaces_needs_no_step() -> None:
    interfaces = "interface I {} interface J {}"
    old = f"{interfaces} node P implements I, J {{ e: enum(a, b)  x: String  y: String  @unique(x, y) }}"
    new = f"{interfaces} node P implements J, I {{ e: enum(b, a)  x: String  y: String  @unique(y, x) }}"
    assert planned(old, new).is_empty


# -- every kind of step -------------------------------------------------------------------------------------

SUPPORTED = [
    (
        "node P {}",
        "node P {} node Q { a: String } edge E: P -> Q",
        [AddType("node", "Q"), AddType("edge", "E")],
        ["add node:Q", "add edge:E"],
    ),
    ("node P {}", "node P {} interface I {}", [AddType("interface", "I")], ["add interface:I"]),
    (
        "node P {}",
        'node Q @rename_from("P") {}',
        [RenameType("node", "Q", "P")],
        ["rename node:P to Q"],
    ),
    (
        "node P {} edge E: P -> P",
        'node P {} edge F: P -> P @rename_from("E")',
        [RenameType("edge", "F", "E")],
        ["rename edge:E to F"],
    ),
    (
        "node P {}",
        "node P { a: [String]? }",
        [AddProperty("node", "P", "a", "[String]?", needs_empty_table=False)],
        ["add node:P.a: [String]?"],
    ),
    (
        "node P {} edge E: P -> P",
        "node P {} edge E: P -> P { a: I32 }",
        [AddProperty("edge", "E", "a", "I32", needs_empty_table=True)],
        ["add edge:E.a: I32 (only while E has no rows)"],
    ),
    (
        "interface I {}",
        "interface I { a: I32 }",
        [AddProperty("interface", "I", "a", "I32", needs_empty_table=False)],
        ["add interface:I.a: I32"],
    ),
    (
        "node P { a: String }",
        'node P { b: String @rename_from("a") }',
        [RenameProperty("node", "P", "b", "a")],
        ["rename node:P.a to b"],
    ),
    (
        "node P { a: String }",
        "node P { a: String @index }",
        [AddIndex("node", "P", ("a",))],
        ["add index node:P(a)"],
    ),
    (
        "node P {} edge E: P -> P",
        "node P {} edge E: P -> P { @index(src, dst) }",
        [AddIndex("edge", "E", ("dst", "src"))],
        ["add index edge:E(dst, src)"],
    ),
    (
        "node P { e: enum(b, d)? }",
        "node P { e: enum(a, b, c, d)? }",
        [WidenEnum("node", "P", "e", ("a", "c"))],
        ["widen enum node:P.e by a, c"],
    ),
    (
        "node P { a: String }",
        'node P @description("people") { a: String @instruction("as is") }',
        [ChangeMetadata("node", "P", None), ChangeMetadata("node", "P", "a")],
        ["change metadata of node:P", "change metadata of node:P.a"],
    ),
    (
        "node P { a: String @unique }",
        "node P { a: String  @unique(a) }",
        [ChangeMetadata("node", "P", "a")],
        ["change metadata of node:P.a"],
    ),
    (
        "node P { a: String  b: I32? }",
        "node P { b: I32? }",
        [DropProperty("node", "P", "a")],
        ["drop node:P.a"],
    ),
    (
        "interface I {} node P {} node Q {} edge E: P -> Q",
        "node P {}",
        [DropType("edge", "E"), DropType("node", "Q"), DropType("interface", "I")],
        ["drop edge:E", "drop node:Q", "drop interface:I"],
    ),
]


@pytest.mark.parametrize(("old", "new", "expected", "lines"), SUPPORTED)
def test_a_supported_change_is_exactly_its_steps(old: str, new: str, expected: list[Step], lines: list[str]) -> None:
    result = planned(old, new)
    assert list(result.steps) == expected
    assert [str(step) for step in result.steps] == lines
    assert result.supported
    assert not result.is_empty


def test_the_cases_above_and_the_unsupported_one_are_all_kinds_of_steps() -> None:
    seen = {type(step) for _, _, expected, _ in SUPPORTED for step in expected}
    assert {*seen, Unsupported} == set(get_args(Step))


def test_a_type_of_another_kind_is_a_drop_and_an_addition() -> None:
    assert steps("node A {} node B {}", "node B {} edge A: B -> B") == [AddType("edge", "A"), DropType("node", "A")]


def test_additions_come_before_drops_nodes_before_their_edges_and_drops_the_other_way() -> None:
    kinds = [
        (type(step), step.type_kind)
        for step in steps(
            "interface I {} node A {} node B {} edge E: A -> B", "interface J {} node C {} node D {} edge F: C -> D"
        )
    ]
    assert kinds == [
        (AddType, "interface"),
        (AddType, "node"),
        (AddType, "node"),
        (AddType, "edge"),
        (DropType, "edge"),
        (DropType, "node"),
        (DropType, "node"),
        (DropType, "interface"),
    ]


def test_constraints_arrive_with_an_added_property_and_leave_with_a_dropped_one() -> None:
    plain = "node P { a: I32 }"
    constrained = "node P { a: I32  b: I32? @index  @unique(a, b)  @range(b, 0..) }"
    assert steps(plain, constrained) == [AddProperty("node", "P", "b", "I32?", needs_empty_table=False)]
    assert steps(constrained, plain) == [DropProperty("node", "P", "b")]


# -- renames ------------------------------------------------------------------------------------------------


def test_a_rename_carries_constraints_embeddings_and_edges_along() -> None:
    old = """
        node Person { name: String @key  age: I32?  bio: String  v: Vector(2)? @embed("bio")
                      @index(name, age)  @range(age, 0..)  @check(name, "x") }
        edge Knows: Person -> Person
    """
    new = """
        node Human @rename_from("Person") {
            title: String @key @rename_from("name")  years: I32? @rename_from("age")  text: String @rename_from("bio")
            v: Vector(2)? @embed("text")  @index(title, years)  @range(years, 0..)  @check(title, "x") }
        edge Knows: Human -> Human
    """
    assert steps(old, new) == [
        RenameType("node", "Human", "Person"),
        RenameProperty("node", "Human", "text", "bio"),
        RenameProperty("node", "Human", "title", "name"),
        RenameProperty("node", "Human", "years", "age"),
    ]
    before, after = accept(old), evolve(accept(old), parse_catalog(new))
    assert after.identity(after.catalog.nodes["Human"]) == before.identity(before.catalog.nodes["Person"])
    assert after.property_ids["Human", "title"] == before.property_ids["Person", "name"]


def test_without_a_hint_a_new_name_is_an_addition_and_a_drop() -> None:
    assert steps("node P { a: String? }", "node P { b: String? }") == [
        AddProperty("node", "P", "b", "String?", needs_empty_table=False),
        DropProperty("node", "P", "a"),
    ]
    assert steps("node P {}", "node Q {}") == [AddType("node", "Q"), DropType("node", "P")]


def test_a_rename_and_a_change_of_the_same_property_are_two_steps() -> None:
    assert steps("node P { a: enum(x) }", 'node P { b: enum(x, y) @rename_from("a") @index }') == [
        RenameProperty("node", "P", "b", "a"),
        WidenEnum("node", "P", "b", ("y",)),
        AddIndex("node", "P", ("b",)),
    ]


@pytest.mark.parametrize(
    ("new", "entity", "reason"),
    [
        ('node Human @rename_from("Persn") {}', "node:Human", "Did you mean 'Person'"),
        ('node Human @rename_from("Person") {} node Person { age: I32? }', "node:Human", "'Person' is still declared"),
        ('node Person { x: I32? @rename_from("agee") }', "node:Person.x", "Did you mean 'age'"),
        ('node X {} edge Human: X -> X @rename_from("Person")', "edge:Human", "none of the accepted edge types"),
    ],
)
def test_a_hint_that_cannot_be_followed_is_unsupported_and_evolution_refuses_it(
    new: str, entity: str, reason: str
) -> None:
    old = "node Person { age: I32? }"
    result = planned(old, new)
    (broken,) = (step for step in result.steps if isinstance(step, Unsupported))
    assert broken.entity == entity
    assert reason in broken.reason
    assert not result.supported
    with pytest.raises(SchemaError):
        evolve(accept(old), parse_catalog(new))


# -- what no migration does ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("a: I32", "a: I64", "its type cannot change from I32 to I64"),
        ("a: I32", "a: String", "its type cannot change from I32 to String"),
        ("a: String", "a: [String]", "its type cannot change from String to [String]"),
        ("a: Vector(2)", "a: Vector(3)", "its type cannot change from Vector(2) to Vector(3)"),
        ("a: I32?", "a: I32", "it is optional, which cannot change"),
        ("a: I32", "a: I32?", "it is required, which cannot change"),
        ("a: enum(x, y)", "a: enum(x)", "values that its enum would lose: y"),
        ("a: enum(x, y)", "a: enum(y, z)", "values that its enum would lose: x"),
        ("a: enum(x)", "a: enum(x, y)?", "its type cannot change from enum(x) to enum(x, y)?"),
        ("a: enum(x)", "a: String", "its type cannot change from enum(x) to String"),
        ("a: String", "a: enum(x)", "its type cannot change from String to enum(x)"),
        ('a: Vector(2) @embed("t")  t: String', "a: Vector(2)  t: String", "source and model of @embed"),
        ("a: Vector(2)  t: String", 'a: Vector(2) @embed("t")  t: String', "source and model of @embed"),
        (
            'a: Vector(2) @embed("t", model="m")  t: String',
            'a: Vector(2) @embed("t", model="n")  t: String',
            "source and model of @embed",
        ),
    ],
)
def test_a_property_whose_values_would_have_to_change_is_unsupported(old: str, new: str, reason: str) -> None:
    entity, found = only_reason(f"node P {{ {old} }}", f"node P {{ {new} }}")
    assert entity == "node:P.a"
    assert reason in found


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("", "@key(a)", "its @key cannot change"),
        ("@key(a)", "", "its @key cannot change"),
        ("@key(a)", "@key(a, b)", "its @key cannot change"),
        ("", "@unique(a)", "stored rows were never held to @unique(a)"),
        ("@unique(a)", "", "@unique(a) cannot be taken away"),
        ("", "@range(b, 0..)", "stored rows were never held to @range(b, 0..)"),
        ("@range(b, ..1.5)", "", "@range(b, ..1.5) cannot be taken away"),
        ("", '@check(a, "^x")', 'stored rows were never held to @check(a, "^x")'),
        ('@check(a, "^x")', "", '@check(a, "^x") cannot be taken away'),
        ("@index(a)", "", "@index(a) cannot be taken away"),
    ],
)
def test_a_constraint_that_stored_rows_may_break_or_rely_on_is_unsupported(old: str, new: str, reason: str) -> None:
    entity, found = only_reason(f"node P {{ a: String  b: I32  {old} }}", f"node P {{ a: String  b: I32  {new} }}")
    assert entity == "node:P"
    assert reason in found


def test_bounds_of_another_spelling_are_another_constraint_as_in_the_hash() -> None:
    result = planned("node P { a: F64  @range(a, 0..) }", "node P { a: F64  @range(a, 0.0..) }")
    assert [type(step) for step in result.steps] == [Unsupported, Unsupported]


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("edge E: P -> Q", "edge E: Q -> P", "its endpoints are P -> Q"),
        ("edge E: P -> Q", "edge E: P -> P", "its endpoints are P -> Q"),
        ("edge E: P -> Q", "edge E: P -> Q @card(0..1)", "its cardinality cannot change"),
        ("edge E: P -> Q @card(1..)", "edge E: P -> Q", "its cardinality cannot change"),
    ],
)
def test_an_edge_type_keeps_its_endpoints_and_cardinality(old: str, new: str, reason: str) -> None:
    nodes = "node P {} node Q {}"
    entity, found = only_reason(f"{nodes} {old}", f"{nodes} {new}")
    assert entity == "edge:E"
    assert reason in found


def test_an_edge_whose_end_is_replaced_by_another_type_is_unsupported() -> None:
    result = planned("node P {} edge E: P -> P", "node Q {} edge E: Q -> Q")
    assert [type(step) for step in result.steps] == [AddType, Unsupported, DropType]


def test_a_node_type_keeps_its_interfaces() -> None:
    entity, reason = only_reason("interface I {} node P {}", "interface I {} node P implements I {}")
    assert entity == "node:P"
    assert "interfaces it implements" in reason


def test_a_property_stays_where_it_was_declared() -> None:
    inherited = "interface I { a: String } node P implements I {}"
    declared = "interface I { a: String } node P implements I { a: String }"
    for old, new, where in ((inherited, declared, "by an interface alone"), (declared, inherited, "in P itself")):
        entity, reason = only_reason(old, new)
        assert entity == "node:P.a"
        assert where in reason


def test_one_unsupported_step_makes_the_whole_plan_unsupported_and_the_others_stay_visible() -> None:
    result = planned("node P { a: I32  e: enum(x) }", "node P { a: I64  e: enum(x, y) }")
    assert [type(step) for step in result.steps] == [Unsupported, WidenEnum]
    assert not result.supported


# -- a plan is data -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("node P { a: String }", "node P {}"),
        ("node P {} node Q {}", "node P {}"),
        ("node P {} edge E: P -> P { a: String }", "node P {} edge E: P -> P"),
        ("node P { a: String? }", "node P { b: String? }"),
    ],
)
def test_a_plan_that_takes_stored_values_out_of_sight_is_destructive(old: str, new: str) -> None:
    assert planned(old, new).destructive


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("interface I { a: String }", "interface I {}"),
        ("interface I {}", ""),
        ("node P { a: String @index }", "node P { a: String }"),
        ("node P { a: String }", "node P { a: String  b: String? } node Q {}"),
        ("node P { a: String }", 'node Q @rename_from("P") { b: String @rename_from("a") }'),
    ],
)
def test_a_plan_that_keeps_every_stored_value_is_not_destructive(old: str, new: str) -> None:
    assert not planned(old, new).destructive


def test_a_plan_is_json_with_the_kind_and_every_field_of_each_step() -> None:
    document = planned(
        "node P { a: I32  e: enum(x)  z: String? }", "node P { a: I64  e: enum(x, y)  n: Bool  @index(a) }"
    ).to_json()
    assert json.loads(json.dumps(document)) == {
        "supported": False,
        "destructive": True,
        "steps": [
            {
                "kind": "unsupported",
                "destructive": False,
                "type_kind": "node",
                "type_name": "P",
                "property_name": "a",
                "reason": "its type cannot change from I32 to I64. Add a property under a new name, copy the values into "
                "it, then drop the old one.",
            },
            {
                "kind": "widen_enum",
                "destructive": False,
                "type_kind": "node",
                "type_name": "P",
                "property_name": "e",
                "added_values": ["y"],
            },
            {
                "kind": "add_property",
                "destructive": False,
                "type_kind": "node",
                "type_name": "P",
                "property_name": "n",
                "property_type": "Bool",
                "needs_empty_table": True,
            },
            {"kind": "add_index", "destructive": False, "type_kind": "node", "type_name": "P", "columns": ["a"]},
            {
                "kind": "drop_property",
                "destructive": True,
                "type_kind": "node",
                "type_name": "P",
                "property_name": "z",
            },
        ],
    }


def test_kinds_of_steps_have_names_of_their_own() -> None:
    kinds = [step.kind for step in get_args(Step)]
    assert len(kinds) == len(set(kinds))


# -- algebra ------------------------------------------------------------------------------------------------


@settings(max_examples=25)
@given(schemas())
def test_the_plan_from_any_schema_to_itself_is_empty(schema: SchemaSketch) -> None:
    assert planned(schema.source(), schema.source()).is_empty


@settings(max_examples=30)
@given(schemas(), schemas())
def test_a_plan_is_empty_exactly_when_the_shapes_are_the_same(first: SchemaSketch, second: SchemaSketch) -> None:
    old, new = accept(first.source()), parse_catalog(second.source())
    assert plan(old, new).is_empty is (shape_json(old.catalog) == shape_json(new))


def assert_plan_agrees_with_evolution(old: AcceptedSchema, source: str) -> None:
    catalog = parse_catalog(source)
    found, new = plan(old, catalog).steps, evolve(old, catalog)
    old_types = {identity: name for name, identity in old.type_ids.items()}
    new_types = {identity: name for name, identity in new.type_ids.items()}
    continued = old_types.keys() & new_types.keys()
    renamed = {(new_types[i], old_types[i]) for i in continued if new_types[i] != old_types[i]}
    assert {step.type_name for step in found if isinstance(step, AddType)} == {
        new_types[identity] for identity in new_types.keys() - continued
    }
    assert {step.type_name for step in found if isinstance(step, DropType)} == {
        old_types[identity] for identity in old_types.keys() - continued
    }
    assert {(step.type_name, step.old_name) for step in found if isinstance(step, RenameType)} == renamed

    # Properties of types that continue, under the name their type has now.
    now = {old_types[identity]: new_types[identity] for identity in continued}
    before = {identity: (now[owner], name) for (owner, name), identity in old.property_ids.items() if owner in now}
    after = {identity: place for place, identity in new.property_ids.items() if place[0] in now.values()}
    kept = before.keys() & after.keys()
    assert {(step.type_name, step.property_name) for step in found if isinstance(step, AddProperty)} == {
        after[identity] for identity in after.keys() - kept
    }
    assert {(step.type_name, step.property_name) for step in found if isinstance(step, DropProperty)} == {
        before[identity] for identity in before.keys() - kept
    }
    assert {
        (step.type_name, step.property_name, step.old_name) for step in found if isinstance(step, RenameProperty)
    } == {(*after[i], before[i][1]) for i in kept if after[i] != before[i]}


@settings(max_examples=30)
@given(schemas(), schemas())
def test_evolution_adds_and_drops_what_the_plan_says(first: SchemaSketch, second: SchemaSketch) -> None:
    assert_plan_agrees_with_evolution(accept(first.source()), second.source())


@settings(max_examples=25)
@given(schemas())
def test_evolution_renames_what_the_plan_says(schema: SchemaSketch) -> None:
    old = accept(schema.source())
    without_edges = SchemaSketch(tuple(sketch for sketch in schema.types if sketch.kind != "edge"))
    assert_plan_agrees_with_evolution(old, schema.renamed_source())
    assert_plan_agrees_with_evolution(old, without_edges.renamed_source() + "\nnode Dog { a: String }")


@settings(max_examples=25)
@given(schemas())
def test_renaming_everything_is_nothing_but_renames(schema: SchemaSketch) -> None:
    old = accept(schema.source())
    found = plan(old, parse_catalog(schema.renamed_source())).steps
    tables = {named.name for named in old.catalog.all_types() if not isinstance(named, InterfaceType)}
    assert {type(step) for step in found} <= {RenameType, RenameProperty}
    assert {(step.type_name, step.old_name) for step in found if isinstance(step, RenameType)} == {
        (new_name(name), name) for name in tables
    }
    assert sum(isinstance(step, RenameProperty) for step in found) == len(old.property_ids)
