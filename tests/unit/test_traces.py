"""Traces from CSV and Parquet: columns mapped, time and demand scaled, faults named."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support import Run, make_world

from fogveil.core.errors import InputError
from fogveil.provider_node.provider import Provider

GOOD = "t,size,app,place\n0,1,light,cluster-2\n5,2,demanding,cluster-1\n5,3,light,cluster-1\n"
COLUMNS = {"time": "t", "demand": "size", "category": "app", "cluster": "place"}


def world_of(path, columns=COLUMNS, **scales):
    sources = {"kind": "trace", "file": str(path), "columns": columns, **scales}
    return make_world(sources=sources)


@pytest.fixture
def csv(tmp_path):
    def write(text):
        path = tmp_path / "trace.csv"
        path.write_text(text)
        return path

    return write


def test_columns_are_mapped_and_scaled(csv):
    world = world_of(csv(GOOD), time_scale=10.0, demand_scale=1000.0)
    run = Run(world, "round-robin")
    jobs = run.jobs
    assert jobs["emitted"].tolist() == [0, 50, 50]
    assert jobs["category"].tolist() == [0, 1, 0]
    assert jobs["cluster"].tolist() == [1, 0, 0]
    ipt = [world.fogs[int(node)].ipt for node in jobs["node"]]
    work = (jobs["finished"] - jobs["started"]) * ipt
    assert work.tolist() == pytest.approx([1000, 2000, 3000])


def test_a_provider_need_not_know_a_demand_before_the_job_comes(csv):
    world = world_of(csv(GOOD), demand_scale=1000.0)
    demands = {}
    provider = Provider(world.fogs[0], demands)
    with pytest.raises(KeyError):
        provider.accept(1, 1, 10.0)
    demands[1] = world.demands[1]
    provider.accept(1, 1, 10.0)
    ((*_, started, finished),) = provider.advance(1e9)
    assert (finished - started) * world.fogs[0].ipt == pytest.approx(2000)


def test_parquet_gives_the_same_run_as_csv(csv, tmp_path):
    table = {"t": [0.0, 5.0, 5.0], "size": [1, 2, 3]}
    table |= {"app": ["light", "demanding", "light"]}
    table |= {"place": ["cluster-2", "cluster-1", "cluster-1"]}
    pq.write_table(pa.table(table), tmp_path / "trace.parquet")
    hashes = {Run(world_of(path), "jsq").hash for path in (csv(GOOD), tmp_path / "trace.parquet")}
    assert len(hashes) == 1


def test_only_the_time_is_needed(csv):
    world = world_of(csv("t\n0\n1\n2\n3\n"), {"time": "t"})
    jobs = Run(world, "jsq").jobs
    assert jobs["cluster"].tolist() == [0, 1, 0, 1]
    assert jobs["category"].tolist() == [0, 1, 0, 1]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("t,size,app,place\n5,1,light,cluster-1\n4,1,light,cluster-1\n", "'t' goes back .* row 2"),
        ("t,size,app,place\n", "has no rows"),
        ("t,size,app,place\n0,1,heavy,cluster-1\n", "row 1: expected one of light, demanding"),
        ("t,size,app,place\n0,1,light,mars\n", "'place', row 1: .*got 'mars'"),
        ("t,size,app,place\n0,-1,light,cluster-1\n", "positive demand in row 1"),
        ("t,size,app,place\n0,,light,cluster-1\n", "'size' has 1 empty cells"),
        ("t,size,app,place\nsoon,1,light,cluster-1\n", "'t': expected numbers or time stamps"),
        ("t,size,app,place\n-1,1,light,cluster-1\n", "expected times from 0 on"),
        ("t,size,place\n0,1,cluster-1\n", "no column is called 'app'"),
        ("", "not a readable trace"),
    ],
)
def test_faults_are_named(csv, text, sentence):
    with pytest.raises(InputError, match=f"trace.csv: .*{sentence}"):
        world_of(csv(text))


def test_a_missing_trace_is_named(tmp_path):
    with pytest.raises(InputError, match="the trace does not exist"):
        world_of(tmp_path / "no.csv")
    with pytest.raises(InputError, match=r"expected a trace ending in \.csv or \.parquet"):
        world_of(tmp_path / "no.txt")
