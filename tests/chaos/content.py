"""What the graph of a chaos run holds, as plain dictionaries: its rules, what a write makes of it, and what a merge does.

It knows nothing of the engine: a merge here goes through all rows by id and decides for each by the table in docs/branches.md.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

Row = Mapping[str, Any]
Content = dict[str, dict[str, Row]]  # by type, by id

# Person and Account are written in pairs, Setting and Total as well; Place is replaced while LivesAt points to it.
SCHEMA = """
node Person { name: String @key  tag: String  amount: I64  badge: I64? @unique }
node Account { name: String @key  tag: String  amount: I64 }
node Setting { name: String @key  tag: String  amount: I64 }
node Total { name: String @key  tag: String  amount: I64  count: I64 }
node Place { name: String @key  tag: String }
edge Knows: Person -> Person { tag: String }
edge LivesAt: Person -> Place @card(0..2) { tag: String }
"""
TYPES = ("Person", "Account", "Setting", "Total", "Place", "Knows", "LivesAt")
EDGES = {"Knows": ("Person", "Person"), "LivesAt": ("Person", "Place")}
MOST_PLACES = 2
HOT = "hot-"  # how the names begin that writers share
# Always the same settings are replaced: two sides that did it contradict each other in all of them, so that a merge takes all
# of them, and their total, from one side.
SETTINGS = ("s0", "s1", "s2")


class Violation(Exception):
    """The graph, or a snapshot of it, is not what the protocol promises."""


class Contradiction(Violation):
    """Two branches cannot be merged as they are."""


def nothing() -> Content:
    return {name: {} for name in TYPES}


def copied(content: Content) -> Content:
    return {name: dict(rows) for name, rows in content.items()}


def row_id(row: Row) -> str:
    return str(row["id"] if "id" in row else row["name"])


def digest(content: Content) -> str:
    """Equal for equal contents, whatever the order in which rows are stored."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]


def check_content(content: Content) -> None:
    """Raises unless a snapshot with this content could be the state between two whole commits."""
    people, accounts = content["Person"], content["Account"]
    if {key: (row["tag"], -row["amount"]) for key, row in people.items()} != {
        key: (row["tag"], row["amount"]) for key, row in accounts.items()
    }:
        raise Violation("Person and Account, always written together, differ")
    tags = {row["tag"] for name in ("Setting", "Total") for row in content[name].values()}
    total = sum(row["amount"] for row in content["Total"].values())
    if len(tags) > 1 or total != sum(row["amount"] for row in content["Setting"].values()):
        raise Violation(f"Setting and Total, always replaced together, differ: {sorted(tags)}")
    check_rules(content)


def check_rules(content: Content) -> None:
    """Raises when the content breaks a rule of the schema."""
    badges = Counter(row["badge"] for row in content["Person"].values() if row["badge"] is not None)
    if badges and max(badges.values()) > 1:
        raise Violation(f"the badge {badges.most_common(1)} is not unique")
    for edge, ends in EDGES.items():
        for role, node in zip(("src", "dst"), ends, strict=True):
            missing = {row[role] for row in content[edge].values()} - content[node].keys()
            if missing:
                raise Violation(f"{edge}.{role} dangles: {sorted(missing)[:3]}")
    homes = Counter(row["src"] for row in content["LivesAt"].values())
    if homes and max(homes.values()) > MOST_PLACES:
        raise Violation(f"too many LivesAt edges: {homes.most_common(1)}")


def write(content: Content, tag: str, writes: Iterable[Mapping[str, Any]], based_on: str | None) -> None:
    """Changes the content as a commit with these writes does; raises when it could not have been made on this content."""
    if based_on is not None:
        settings = {row["tag"] for row in content["Setting"].values()} or {""}
        if settings != {based_on}:
            raise Violation(f"{tag} replaced {sorted(settings)}, and had read {based_on!r}")
    for part in writes:
        rows = {row_id(row): row for row in part["rows"]}
        table = content[part["type"]]
        if part["mode"] == "append" and not rows.keys().isdisjoint(table):
            raise Violation(f"{tag} inserted ids that existed: {sorted(rows.keys() & table.keys())[:3]}")
        if part["mode"] == "overwrite":
            table.clear()
        table.update(rows)
    check_content(content)


def merge(base: Content, others: Iterable[Content], theirs: Content, ours: Content, on_conflict: str) -> Content:
    """What ``ours`` holds once ``theirs`` is merged into it. Raises ``Contradiction`` when it must be refused.

    Args:
        base: What both had, at the nearest commit that both contain.
        others: The same at further such commits, which there are when histories merged each other crosswise.
        theirs: The source.
        ours: The target.
        on_conflict: ``fail``, or whose row is taken where both changed it.
    """
    merged, other_bases = nothing(), list(others)
    for name in TYPES:
        for key in sorted(base[name].keys() | theirs[name].keys() | ours[name].keys()):
            was, their, our = (side[name].get(key) for side in (base, theirs, ours))
            if any(_disputed(was, other[name].get(key), their, our) for other in other_bases):
                raise Contradiction(f"nobody knows who changed {name} {key} last")
            if their in (was, our):
                row = our
            elif our == was:
                row = their
            elif on_conflict == "fail":
                raise Contradiction(f"both changed {name} {key}")
            else:
                row = our if on_conflict == "ours" else their
            if row is not None:
                merged[name][key] = row
    try:
        check_rules(merged)
    except Violation as violation:
        raise Contradiction(str(violation)) from violation
    return merged


def _disputed(base: Row | None, other: Row | None, their: Row | None, our: Row | None) -> bool:
    """Whether by one base only one side changed the row, and by the other only the other side did."""
    stories = {(their != was, our != was) for was in (base, other)}
    return stories == {(True, False), (False, True)}
