"""Identities: given out in one order, kept for ever, never used twice."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from omnigraph_engine.errors import InvalidArgument, SchemaError
from omnigraph_engine.schema.catalog import parse_catalog
from omnigraph_engine.schema.identity import (
    AcceptedSchema,
    TableIdentity,
    accept_initial,
    evolve,
    is_domain,
    table_location,
)
from schema_sources import DOMAIN, EXAMPLE, SchemaSketch, new_name, schemas


def accept(source: str) -> AcceptedSchema:
    return accept_initial(parse_catalog(source), DOMAIN)


def change(accepted: AcceptedSchema, source: str) -> AcceptedSchema:
    return evolve(accepted, parse_catalog(source))


def all_ids(accepted: AcceptedSchema) -> list[int]:
    return [*accepted.type_ids.values(), *accepted.property_ids.values(), *accepted.incarnation_ids.values()]


def test_the_example_gets_the_identities_of_the_format() -> None:
    accepted = accept(EXAMPLE)
    assert accepted.type_ids == {"Company": 1, "Person": 2, "Knows": 3, "WorksAt": 4}
    assert accepted.property_ids == {
        ("Company", "name"): 5,
        ("Person", "age"): 6,
        ("Person", "name"): 7,
        ("Knows", "since"): 8,
    }
    assert accepted.incarnation_ids == {"Company": 9, "Person": 10, "Knows": 11, "WorksAt": 12}
    assert accepted.next_identity_id == 13

    person = accepted.catalog.nodes["Person"]
    assert accepted.identity(person) == TableIdentity(2, 10)
    assert table_location(person.table_key, accepted.identity(person)) == "nodes/0000000000000002-000000000000000a"


def test_interfaces_are_numbered_first_and_have_no_table() -> None:
    accepted = accept("interface Z { p: String } node B implements Z {} node A {} edge E: A -> B")
    assert accepted.type_ids == {"Z": 1, "A": 2, "B": 3, "E": 4}
    assert accepted.property_ids == {("Z", "p"): 5, ("B", "p"): 6}
    assert accepted.incarnation_ids == {"A": 7, "B": 8, "E": 9}


def test_a_new_graph_gets_a_domain_of_its_own() -> None:
    catalog = parse_catalog(EXAMPLE)
    first, second = accept_initial(catalog).domain, accept_initial(catalog).domain
    assert is_domain(first)
    assert is_domain(second)
    assert first != second


@pytest.mark.parametrize(
    "domain", ["", DOMAIN.lower(), DOMAIN[:-1], "8" + DOMAIN[1:], DOMAIN[:-1] + "U", DOMAIN + "\n"]
)
def test_a_domain_that_is_no_canonical_ulid_is_refused(domain: str) -> None:
    with pytest.raises(InvalidArgument):
        accept_initial(parse_catalog(EXAMPLE), domain)


def test_at_creation_rename_hints_are_inert() -> None:
    hinted = accept('node P @rename_from("Gone") { a: String @rename_from("b") }')
    plain = accept("node P { a: String }")
    assert (hinted.type_ids, hinted.property_ids) == (plain.type_ids, plain.property_ids)


def test_an_interface_that_embeds_what_it_does_not_declare_is_refused() -> None:
    source = 'interface I { v: Vector(2) @embed("t") } node N implements I { t: String }'
    with pytest.raises(SchemaError, match="'v' embeds 't'"):
        accept(source)


# -- evolution ----------------------------------------------------------------------------------------------


def test_what_is_new_is_numbered_in_the_order_of_a_new_graph_from_the_counter_on() -> None:
    grown = change(
        accept("node B { x: String } edge F: B -> B"),
        "node B { x: String  a: I32? } edge F: B -> B edge E: A -> B { w: F64? } node A { z: String  y: String }",
    )
    # B 1, F 2, B.x 3, tables 4 and 5 stay; the counter stood at 6.
    assert grown.type_ids == {"B": 1, "F": 2, "A": 6, "E": 7}
    assert grown.property_ids == {
        ("B", "x"): 3,
        ("B", "a"): 8,
        ("A", "y"): 9,
        ("A", "z"): 10,
        ("E", "w"): 11,
    }
    assert grown.incarnation_ids == {"B": 4, "F": 5, "A": 12, "E": 13}
    assert grown.next_identity_id == 14


def test_a_renamed_type_and_property_keep_identity_and_table() -> None:
    old = accept("node Person { name: String  age: I32? } edge Knows: Person -> Person")
    new = change(
        old,
        'node Human @rename_from("Person") { full_name: String @rename_from("name")  age: I32? } '
        'edge Knows: Human -> Human @rename_from("Long_ago")',
    )
    assert new.type_ids == {"Human": old.type_ids["Person"], "Knows": old.type_ids["Knows"]}
    assert new.property_ids["Human", "full_name"] == old.property_ids["Person", "name"]
    assert new.property_ids["Human", "age"] == old.property_ids["Person", "age"]
    assert new.incarnation_ids["Human"] == old.incarnation_ids["Person"]
    assert new.next_identity_id == old.next_identity_id


def test_a_composite_key_keeps_its_order_through_renames_that_cross() -> None:
    old = accept("node Pair { alpha: String  zeta: String  @key(alpha, zeta) }")
    new = change(
        old,
        'node Pair { aaaa: String @rename_from("zeta")  zzzz: String @rename_from("alpha")  @key(aaaa, zzzz) }',
    )
    assert old.key_in_identity_order(old.catalog.nodes["Pair"]) == ("alpha", "zeta")
    assert new.key_in_identity_order(new.catalog.nodes["Pair"]) == ("zzzz", "aaaa")


def test_dropped_and_added_again_is_another_type() -> None:
    first = accept("node P { a: String } node Q {}")
    again = change(change(first, "node Q {}"), "node P { a: String } node Q {}")
    assert again.type_ids["P"] >= first.next_identity_id
    assert again.property_ids["P", "a"] >= first.next_identity_id
    assert again.incarnation_ids["P"] >= first.next_identity_id
    assert again.type_ids["Q"] == first.type_ids["Q"]


def test_the_counter_does_not_go_back_when_everything_is_dropped() -> None:
    first = accept(EXAMPLE)
    assert change(first, "").next_identity_id == first.next_identity_id


def test_the_same_name_of_another_kind_is_another_type() -> None:
    old = accept("node A {} node B {}")
    new = change(old, "edge A: B -> B node B {}")
    assert new.type_ids["A"] >= old.next_identity_id
    assert new.incarnation_ids["A"] >= old.next_identity_id


def test_a_hint_beside_a_continued_name_has_done_its_work() -> None:
    old = accept("node P { a: String }")
    new = change(old, 'node P @rename_from("Missing") { a: String @rename_from("missing") }')
    assert (new.type_ids, new.property_ids) == (old.type_ids, old.property_ids)


def test_hints_on_the_properties_of_a_new_type_are_inert() -> None:
    new = change(accept("node P { a: String }"), 'node P { a: String } node Q { b: String @rename_from("a") }')
    assert new.property_ids["Q", "b"] != new.property_ids["P", "a"]


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ('node Human @rename_from("Persn") {}', "Human: .*'Persn'.*Did you mean 'Person'"),
        ('node Human @rename_from("Person") {} node Person {}', "'Person' is still declared"),
        ('node A @rename_from("Person") {} node B @rename_from("Person") {}', "'A' is renamed from 'Person' already"),
        ('node X {} edge Human: X -> X @rename_from("Person")', "Human: .*'Person'.*edge types"),
        ('node Person { x: I32? @rename_from("agee") }', r"Person\.x: .*Did you mean 'age'"),
        ('node Person { x: I32? @rename_from("age")  age: I32? }', "'age' is still declared"),
        ('node Person { x: I32? @rename_from("age")  y: I32? @rename_from("age") }', "'x' is renamed from 'age'"),
        ('node Other { y: I32? @rename_from("age") } node Person {}', "y: .*'age'.*properties of 'Other'"),
    ],
)
def test_a_hint_that_cannot_be_followed_is_refused(source: str, message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        change(accept("node Person { age: I32? } node Other {}"), source)


# -- algebra ------------------------------------------------------------------------------------------------


@settings(max_examples=30)
@given(schemas(), schemas())
def test_identities_are_unique_and_below_the_counter(first: SchemaSketch, second: SchemaSketch) -> None:
    accepted = accept(first.source())
    for schema in (accepted, change(accepted, second.source())):
        ids = all_ids(schema)
        assert len(ids) == len(set(ids))
        assert all(1 <= identity < schema.next_identity_id for identity in ids)


@settings(max_examples=30)
@given(schemas(), schemas())
def test_what_both_schemas_have_keeps_its_identities_and_nothing_else_does(
    first: SchemaSketch, second: SchemaSketch
) -> None:
    old = accept(first.source())
    new = change(old, second.source())
    assert new.domain == old.domain
    # The kinds of these schemas never share a type name, so the same name is the same kind.
    for name, identity in new.type_ids.items():
        assert identity == old.type_ids[name] if name in old.type_ids else identity >= old.next_identity_id
    for place, identity in new.property_ids.items():
        assert identity == old.property_ids[place] if place in old.property_ids else identity >= old.next_identity_id
    for name, identity in new.incarnation_ids.items():
        assert identity == old.incarnation_ids[name] if name in old.type_ids else identity >= old.next_identity_id


@settings(max_examples=30)
@given(schemas())
def test_evolving_into_the_same_schema_changes_nothing(schema: SchemaSketch) -> None:
    accepted = accept(schema.source())
    assert change(accepted, schema.source()) == accepted


@settings(max_examples=30)
@given(schemas())
def test_renaming_everything_keeps_every_identity(schema: SchemaSketch) -> None:
    old = accept(schema.source())
    new = change(old, schema.renamed_source())
    assert sorted(all_ids(new)) == sorted(all_ids(old))
    assert new.next_identity_id == old.next_identity_id
    for (owner, name), identity in old.property_ids.items():
        new_owner = owner if owner in old.catalog.interfaces else new_name(owner)
        assert new.property_ids[new_owner, new_name(name)] == identity


@settings(max_examples=30)
@given(schemas(), schemas())
def test_a_drop_and_a_return_never_bring_an_identity_back(first: SchemaSketch, second: SchemaSketch) -> None:
    old = accept(first.source())
    between = change(old, second.source())
    back = change(between, first.source())
    retired = set(all_ids(old)) - set(all_ids(between))
    assert retired.isdisjoint(all_ids(back))
