"""Graphs from GraphML, GML or node-link JSON files, with the irregularities of real ones."""

from __future__ import annotations

import json
import re
from pathlib import Path

import networkx as nx

from fogveil.core.errors import InputError


def read_graph(file: str) -> nx.Graph:
    """Read an undirected simple graph: of parallel links the first is kept, loops are dropped."""
    path = Path(file)
    readers = {".gml": _gml, ".graphml": nx.read_graphml, ".json": _json}
    reader = readers.get(path.suffix.lower())
    if reader is None:
        raise InputError(f"{path}: expected a graph file ending in .graphml, .gml or .json")
    try:
        content = reader(path)
    except OSError as error:
        raise InputError(
            f"{path}: cannot be read: {error.strerror}; name the graph file, as in "
            "--set topology.file=/path/to/graph.gml"
        ) from error
    except Exception as error:  # the readers raise anything, from KeyError to XML parse errors
        form = path.suffix[1:]
        raise InputError(f"{path}: cannot be parsed as {form}: {_one_line(error)}") from error
    graph = nx.Graph()
    graph.add_nodes_from(content.nodes(data=True))
    for one, other, data in content.edges(data=True):
        if one != other and not graph.has_edge(one, other):
            # Apart, so that an attribute is used only where the scenario's [links] names it.
            graph.add_edge(one, other, attributes=data)
    return graph


def _gml(path: Path) -> nx.Graph:
    text = path.read_text(encoding="utf-8", errors="replace")
    # Real files have parallel links without declaring a multigraph, and labels that repeat.
    if not re.search(r"^\s*multigraph\s", text, re.MULTILINE):
        text = re.sub(r"graph\s*\[", "graph [\n  multigraph 1", text, count=1)
    return nx.parse_gml(text, label="id")


def _json(path: Path) -> nx.Graph:
    data = json.loads(path.read_text(encoding="utf-8"))
    links = "links" if "links" in data else "edges"
    return nx.node_link_graph(data, edges=links)


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
