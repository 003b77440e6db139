"""What docs/change.md says beside its numbers."""

from __future__ import annotations

HEAD = """# When the world changes

Printed by `fogveil change` (resumable; it says first how long it will take), at commit {commit}.

Scenario `paper` at β = {rate}, horizon {horizon}, {seeds} seeds. At {at} something changes: its fastest
node `{node}`, unless the table says otherwise. Everybody goes on with what was known; nobody but those
concerned is told. The measure is the oracle `setr`, which is told every change at once and sees the
same workloads: common random numbers, so that seeds are paired. Intervals are 95 % over seeds.

A method is *back* when its mean delay over {window} consecutive workloads is within {percent} of the
oracle's on the same ones; the time is that of the first of them. Until then it pays *delay*, the sum of
what workloads took longer than under the oracle, those included that were under way at the change.
"""

KNOWS = """## Who knows what

`fogveil scenario show NAME --as PARTICIPANT` prints what each receives of a scenario's events. Nobody
receives what is not in its row.

| change | the provider | the clusters | the clock | the agent |
|---|---|---|---|---|
| `speed` | its own new speed | – | – | nothing: it can infer it from counts (below) |
| `leave`, `join` | it, and when | – | who is a member | from then on that the node takes jobs or not |
| `crash` | it ends, and begins again | of lost jobs: which ones are theirs, at the notice | who is a member | from then on that the node takes jobs or not; a lost job again, with its number and attempt: so how many of its own jobs were there |
| `rate`, `mix` | – | the new pace, the new shares | – | nothing: it sees the workloads come |
| `demand` | all: the new work of the application | – | – | nothing: it can infer it from counts |
| `link`, `move` | all: its way to the Cloud | – | – | all latencies and paths, when they change |

At level `total` lost jobs are refused, since they would tell what one node held; what leaving and
crashing give away there is in [secure_totals.md](secure_totals.md).
"""

BARS = """## What was to be reached

{met} of {bars} bars are met. A bar on decisions is met if all runs are back and the upper end of the
interval is not above it; one against `jsq` if the whole interval is not above 1; one of a transfer if its
interval reaches down to 1. Where no node changes, only that all runs are back is asked.
"""

WHY = """### Why where it is missed

- **An upgrade of a node little used is not noticed.** Whoever was slow is not tried again: the rules
  place by expected response, and what nobody sends there tells nothing. Only trials would tell, and they
  cost delay in all the time in which nothing changes.
- **An upgrade of the fastest node is noticed late.** With counts of waiting jobs, a job that does not
  wait shows nothing of how long it is served; at this load few wait. The old bounds still explain an
  empty queue, so that a contradiction takes many decisions. A downgrade contradicts them at once.
- **PARL is never within 5 %,** for it is not before the change either: its state holds no queue.
"""

INFERRING = """## Those that infer

![Delay over time of jsq, ci-setr, veil and veil-total](images/change/inference.png)

Delay in the oracle's, moving mean over {width} time units, all seeds together; the dashed line is the
change, a dotted one the return after a crash, the green band is within 5 %.
"""

LEARNING = """## Those that learn

![Delay over time of PARL](images/change/learning.png)

PARL as it ships; {adapting}, which go on learning at work (the second from a drift on); and PARL trained
again in the changed environment, as if that agent had been there at the change. Level `total` excludes
lost jobs, so they are not measured there.
"""

TABLES = """## Every kind of change

Ratios are to the oracle's mean delay: in the {last} time units before the change, in the first {first}
after it, and in the last {last} of the run. `never`: in no run. ≥: some runs were not back at the end,
whose time then counts to the end. The last column is the mean delay from the change on, by that of `jsq`.
"""

KINDS = {
    "other-upgrade": """The node `fog-5`, one of eight in the middle, which at this load get few workloads.
""",
    "return": """The node has left at a quarter of the run, and comes back in the middle.
""",
    "crash-recovered": """Back after {back}. What the node holds is served then; that is paid by all alike.
""",
    "crash-lost": """Back after {back}; lost jobs are emitted again {notice} after the crash.
""",
    "move": """`cluster-8` moves from `fog-10` to `fog-3`. The network of `paper` is fast: this changes
latencies by a few tenths of a time unit.
""",
}

RETRAINING = """## Trained again

From scratch: a quarter of the paper's training, in the environment as it is after the change. Transferred:
`fogveil train --from` with the shipped agent and a fifth of these steps. Two trainings each (seeds {seeds}).
Training takes the time of so many decisions: a multiple of the run that is measured.
"""

LEAKAGE = """## Adaptation and leakage are the same information

What lets `ci-setr` adapt is what tells the agent a secret: here the upgrade of the first table. Who sees
the same counts and follows the same inference knows the new speed after as many decisions. Medians over the
seeds in which it was known within {decisions:} decisions, and how many those are; it counts as known when
it stays so for 50 decisions. `fogveil leakage` measures it on any scenario that changes a speed.

![Error and rank correlation over decisions](images/change/leakage.png)
"""

LEAKAGE_END = """Probing, which places in order to learn, finds out soon, and pays for it with delay. Who places well
learns of the node what it needs to place well, as late as the tables above show.
"""
