"""`make demo`: a short comparison on the paper's scenario, and what it shows."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from testbed.compare import Plan, Row, evaluate, execute, prepare, write_tables
from testbed.figures import plot_delays, plot_loops
from testbed.tables import compare_tables

SCENARIO = Path("scenarios/paper.toml")
OUT = Path("runs/demo")
POLICIES = (
    *("random", "round-robin", "nearest", "fastest", "electre"),
    *("p2c", "jsq", "ci-setr", "veil", "setr"),
)


def main() -> None:
    """Compare ten policies at three rates and say what came out."""
    console = Console()
    plan = Plan(SCENARIO, {}, POLICIES, (200.0, 150.0, 100.0), (10_000.0,), 5, OUT)
    console.print("fogveil: ten policies, three workload rates, five seeds, all cores")
    _, to_do = prepare(plan)
    for _ in execute(plan, to_do):
        pass
    rows = evaluate(plan, "setr")
    for table in compare_tables(rows, "setr"):
        console.print(table)
    write_tables(rows, OUT)
    plot_loops(rows, OUT / "loops")
    plot_delays(rows, OUT / "delays")
    console.print(what_it_shows(rows), highlight=False)
    console.print(f"picture: {OUT}/loops.png   numbers: {OUT}/compare.csv   runs: {OUT}/runs/")


def what_it_shows(rows: list[Row]) -> str:
    """Say in a few sentences what the numbers say, whatever they are."""
    loop = {(row.policy, row.rate): row.measures["fog_loop"].mean for row in rows}
    static = ("random", "round-robin", "nearest", "fastest", "electre")
    best_low = min(static, key=lambda policy: loop[policy, 200.0])
    worst_high = max(static, key=lambda policy: loop[policy, 100.0])
    over_jsq = 1 - loop["ci-setr", 100.0] / loop["jsq", 100.0]
    over_oracle = loop["ci-setr", 100.0] / loop["setr", 100.0] - 1
    learned = loop["veil", 100.0] / loop["setr", 100.0] - 1
    return (
        f"Of the methods that never look at queues, {best_low} is the best under light load "
        f"(β = 200) and {worst_high} the worst under heavy load (β = 100).\n"
        f"Seeing nothing but each provider's queued-job count, jsq brings the mean Fog loop at "
        f"β = 100 down to {loop['jsq', 100.0]:.0f}.\n"
        f"ci-setr sees the same counts and infers speeds and backlogs from them: "
        f"{loop['ci-setr', 100.0]:.0f}, {over_jsq:.0%} less than jsq and {over_oracle:+.1%} "
        f"against setr, the greedy oracle that is told everything.\n"
        f"veil has learned from such counts what a decision costs the jobs behind it: "
        f"{loop['veil', 100.0]:.0f}, {learned:+.1%} against the oracle.\n"
        f"So counts alone are enough to place well, and they tell more than they seem to."
    )


if __name__ == "__main__":
    main()
