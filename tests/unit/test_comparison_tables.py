"""Tables of comparisons: honest intervals, nothing cut, and the same numbers in every file."""

from __future__ import annotations

from io import StringIO

import numpy as np
import pyarrow.csv
import pyarrow.parquet
import pytest
from rich.console import Console
from scipy.signal import lfilter
from support import SCENARIOS

from fogveil.testbed.engine.run import run_embedded
from fogveil.testbed.records.block_bootstrap import (
    BLOCKS,
    cells_of,
    mean_half_width,
    percentile_half_widths,
)
from fogveil.testbed.report import figures
from fogveil.testbed.report.averages import MEASURES, PolicyAverage, average_runs
from fogveil.testbed.report.statistics import Estimate, estimate
from fogveil.testbed.report.table_files import latex_text, markdown_text, write_tables
from fogveil.testbed.report.tables import compare_tables, print_table, write_comparison
from fogveil.testbed.scenario import load_scenario

LONG = "FewestThenNearestOfAllNodes"


def run(policy, seed=1, **overrides):
    overrides = {"disclosure": "full", "seed": seed, **overrides}
    return run_embedded(load_scenario(SCENARIOS / "tiny.toml", overrides), policy)


@pytest.fixture(scope="module")
def trace(tmp_path_factory):
    """A trace of 600 workloads whose density rises and falls."""
    random = np.random.default_rng(3)
    gaps = random.exponential(30, 600) * np.where(np.sin(np.arange(600) / 30) > 0, 0.5, 1.5)
    path = tmp_path_factory.mktemp("trace") / "t.csv"
    path.write_text("t\n" + "\n".join(f"{time:.3f}" for time in gaps.cumsum()))
    return {"kind": "trace", "file": str(path), "columns": {"time": "t"}}


def test_seeds_of_a_trace_are_one_sample_and_its_blocks_are_not(trace):
    runs = {
        name: [run(name, seed, sources=trace, horizon=30_000.0) for seed in (1, 2, 3)]
        for name in ("round-robin", "setr")
    }
    delays = {result["summary"]["fog_loop"] for result in runs["setr"]}
    assert len(delays) == 1, "this is why there is no interval over seeds"
    average = average_runs("x", None, 30_000.0, runs["round-robin"], runs["setr"])
    assert (average.interval, average.seeds) == ("blocks", 3)
    for name in ("fog_loop", "fog_loop_p50", "fog_loop_p95", "waiting"):
        assert 0 < average.measures[name].half_width < average.measures[name].mean
    assert average.measures["unserved"].half_width is None
    assert 0 < average.ratio.half_width < average.ratio.mean
    assert average_runs("x", None, 0.0, runs["setr"], runs["setr"]).ratio == Estimate(1.0, 0.0)
    (table,) = compare_tables([average], "setr")
    assert "block bootstrap" in table.caption


def test_a_short_trace_and_runs_without_chance_have_no_interval(trace):
    short = [run("random", seed, sources=trace, horizon=900.0) for seed in (1, 2)]
    deterministic = {"kind": "deterministic", "scale": 50.0}
    equal = [run("setr", seed, sources=deterministic, horizon=2000.0) for seed in (1, 2)]
    for runs in (short, equal):
        average = average_runs("x", None, 0.0, runs, runs)
        assert average.interval == "none"
        assert average.measures["fog_loop"].half_width is None
        (table,) = compare_tables([average], "x")
        assert "one sample" in table.caption
        assert "±" not in "".join(cell for column in table.columns for cell in column.cells)
    poisson = [run("setr", seed, horizon=2000.0) for seed in (1, 2)]
    assert average_runs("x", None, 0.0, poisson, None).interval == "seeds"
    assert average_runs("x", None, 0.0, poisson[:1], None).interval == "none"


def test_intervals_over_blocks_cover_the_truth_of_dependent_delays():
    random = np.random.default_rng(1)
    covered = np.zeros(2)
    times = np.sort(random.uniform(0, 1000, 4000))
    cells = cells_of(times)
    assert len(set(cells)) == 10 * BLOCKS
    for _ in range(40):
        values = lfilter([1], [1, -0.9], random.normal(size=4500))[500:]
        truth = 1.6448536 / np.sqrt(1 - 0.9**2)
        covered += [
            abs(values.mean()) <= mean_half_width(values, cells),
            abs(np.percentile(values, 95) - truth)
            <= percentile_half_widths(values, cells, [95])[0],
        ]
        # Intervals that took the delays for independent would be four times too short.
        assert mean_half_width(values, cells) > 2 * estimate(values.tolist()).half_width
    assert (covered / 40 > 0.85).all()


def averages(*, deadlines=True):
    names = [name for name in MEASURES if deadlines or name != "deadline_met"]
    measures = dict.fromkeys(names, Estimate(1234.5, 67.8))
    measures |= {"deadline_met": Estimate(0.971, 0.004)} if deadlines else {}
    ratio = Estimate(24.338, 1.343)
    return [
        PolicyAverage(name, "count", rate, 10_000.0, measures, ratio, "seeds", 5)
        for rate in (200.0, 100.0)
        for name in (LONG[:20], "jsq")
    ]


def printed(table, width):
    console = Console(file=StringIO(), width=width)
    print_table(table, console)
    return console.file.getvalue()


@pytest.mark.parametrize("deadlines", [True, False])
def test_a_comparison_fits_80_columns_and_cuts_nothing(deadlines):
    for table in compare_tables(averages(deadlines=deadlines), "setr"):
        text = printed(table, 80)
        assert max(len(line.rstrip()) for line in text.splitlines()) <= 80
        for word in (LONG[:20], "1234", "±68", "24.3", "±1.3"):
            assert word in text
        assert ("97.1" in text) is deadlines
        assert "…" not in text


def test_a_narrow_console_cuts_no_name():
    (table, _) = compare_tables(averages(), "setr")
    text = printed(table, 30)
    assert LONG[:20] in text
    assert "±68" in text
    assert "…" not in text


def test_every_file_of_a_comparison_has_its_numbers(tmp_path):
    origin = {"commit": "abc"}
    paths = write_comparison(averages(), "setr", tmp_path, origin)
    assert [path.name for path in paths] == [
        f"compare.{k}" for k in ("csv", "parquet", "md", "tex")
    ]
    rows = pyarrow.csv.read_csv(paths[0]).to_pylist()
    table = pyarrow.parquet.read_table(paths[1])
    assert table.to_pylist() == rows
    assert len(rows) == 4
    assert (rows[0]["fog_loop_p95"], rows[0]["fog_loop_p95_ci95"]) == (1234.5, 67.8)
    assert (rows[0]["interval"], rows[0]["seeds"], rows[0]["rate"]) == ("seeds", 5, 200)
    assert b"abc" in table.schema.metadata[b"provenance"]
    markdown, latex = (path.read_text(encoding="utf-8") for path in paths[2:])
    assert "| 200 | jsq | count | 1234 ±68 |" in markdown
    assert r"200 & jsq & count & 1234 $\pm$68 &" in latex
    assert "95 % over 5 seeds" in markdown


def test_texts_are_escaped_in_markdown_and_latex():
    rows = [{"a_b": r"50% & $x\y {z} ~^#", "c|d": "1|2"}]
    assert r"| a_b | c\|d |" in markdown_text(rows)
    assert r"1\|2" in markdown_text(rows)
    text = latex_text(rows, "β × 2")
    assert r"a\_b & c|d \\" in text
    escaped = r"50\% \& \$x\textbackslash{}y \{z\} \textasciitilde{}\textasciicircum{}\#"
    assert escaped in text
    assert r"\caption{$\beta$ $\times$ 2}" in text
    assert text.index(r"\toprule") < text.index(r"\midrule") < text.index(r"\bottomrule")


def test_a_table_of_plain_rows_is_written_as_it_is(tmp_path):
    rows = [{"x": 1, "y": 0.123456789}, {"x": 2, "y": None}]
    paths = write_tables(rows, tmp_path / "new" / "my.table")
    assert [path.name for path in paths][:2] == ["my.table.csv", "my.table.parquet"]
    assert pyarrow.parquet.read_table(paths[1]).to_pylist() == rows
    assert "| 2 | – |" in paths[2].read_text(encoding="utf-8")


def test_loops_without_rates_have_no_axis_of_rates(tmp_path):
    without = [average._replace(rate=None, interval="blocks") for average in averages()[:2]]
    figures.plot_loops(without, tmp_path / "loops")
    text = (tmp_path / "loops.svg").read_text(encoding="utf-8")
    assert "β" not in text
    assert "block bootstrap over the trace" in text
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"loops.png", "loops.svg", "loops.pdf"}
    with figures.figures_for_pages():
        figures.plot_loops(averages(), tmp_path / "page")
    assert not (tmp_path / "page.pdf").exists()
    assert "β: mean time between workloads" in (tmp_path / "page.svg").read_text(encoding="utf-8")
