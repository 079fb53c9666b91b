"""Loads a folder of files into a graph: all of it becomes visible as one commit, or nothing does.

    python examples/batch_load.py GRAPH FOLDER --schema schema.pg
    spark-submit examples/batch_load.py GRAPH FOLDER --mode merge --message "the June delivery"

The folder may be on any store that Spark reads. What is in it says where it goes:

* ``Person.parquet`` and ``Person.csv``, a file or a folder each, hold rows of the type Person. A CSV file begins with the
  names of its columns. Edges name their nodes in the columns ``src`` and ``dst``.
* ``*.jsonl`` hold lines of any type: ``{"type": "Person", "data": {...}}``, ``{"edge": "Knows", "from": ..., "to": ...}``.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import warnings
from collections.abc import Sequence

from omnigraph_engine.errors import GraphNotFound, InvalidArgument, OmnigraphError
from pyspark.sql import DataFrame, SparkSession

from omnigraph_spark import Graph

ENTRY = re.compile(r"(.*?/(?P<name>[^/]+)\.(?P<format>parquet|csv|jsonl))(/|$)")


def main(spark: SparkSession, arguments: Sequence[str]) -> None:
    given = parser().parse_args(arguments)
    graph = open_or_create(spark, given.graph, given.schema)
    tables, lines = entries(spark, given.folder)
    with graph.transaction(actor=given.actor, message=given.message) as tx:
        for path, name, file_format in tables:
            tx.load(name, read_table(spark, graph, path, name, file_format), given.mode)
        if lines:
            tx.load_json(spark.read.text(lines), given.mode)
    for key, table in sorted(tx.receipt.tables.items()):
        print(
            f"{key}: {table.inserted} inserted, {table.updated} updated, {table.deleted} deleted, {table.rows} rows now"
        )
    print(f"Commit {tx.commit.id}" if tx.commit else "There was nothing to do.")


def entries(spark: SparkSession, folder: str) -> tuple[list[tuple[str, str, str]], list[str]]:
    """The tables of a folder as (path, type, format), and its files of JSON lines."""
    # Spark lists the folder, so that it may be on any store; of the files only their paths are asked for.
    files = spark.read.format("binaryFile").option("recursiveFileLookup", "true").load(folder).select("path").collect()
    found = {(entry[1], entry["name"], entry["format"]) for file in files if (entry := ENTRY.match(file.path))}
    if not found:
        raise InvalidArgument(f"'{folder}' has no .parquet, .csv or .jsonl files.")
    tables = sorted(entry for entry in found if entry[2] != "jsonl")
    return tables, sorted(path for path, _, file_format in found if file_format == "jsonl")


def read_table(spark: SparkSession, graph: Graph, path: str, name: str, file_format: str) -> DataFrame:
    """Rows of one type. Text becomes what the schema says; a value that cannot is an error."""
    if file_format == "parquet":
        return spark.read.parquet(path)
    types = {field.name: field.dataType for field in graph.read(name).schema}
    text = spark.read.csv(path, header=True)
    return text.select([text[name].cast(types[name]) if name in types else text[name] for name in text.columns])


def open_or_create(spark: SparkSession, uri: str, schema: str | None) -> Graph:
    try:
        return Graph.open(spark, uri)
    except GraphNotFound:
        if schema is None:
            raise
    with open(schema, encoding="utf-8") as file:
        return Graph.create(spark, uri, file.read())


def parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(description="Loads a folder of files into a graph, as one commit.")
    found.add_argument("graph", help="folder or URL of the graph")
    found.add_argument("folder", help="folder or URL with the files")
    found.add_argument("--schema", help="a .pg file, to create the graph when there is none")
    found.add_argument("--mode", choices=("append", "merge", "overwrite"), default="append")
    found.add_argument("--actor", help="who makes the commit")
    found.add_argument("--message", help="what it is for")
    return found


def start_spark() -> SparkSession:
    # Starting the JVM forks this process, which Lance warns of; the child becomes another program at once.
    warnings.filterwarnings("ignore", message="lance is not fork-safe")
    if "PYSPARK_GATEWAY_PORT" not in os.environ:  # not under spark-submit, which knows the interpreter of its workers
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    return SparkSession.builder.appName("omnigraph batch load").getOrCreate()


if __name__ == "__main__":
    try:
        main(start_spark(), sys.argv[1:])
    except OmnigraphError as error:
        sys.exit(f"{type(error).__name__}: {error}")
