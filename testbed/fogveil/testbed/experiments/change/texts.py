"""What docs/change.md says beside its numbers."""

from __future__ import annotations

HEAD = """# When the world changes

Printed by `fogveil change` (resumable; it says first how long it will take), at commit {commit}.

Scenario `paper` at β = {rate}, horizon {horizon}, {seeds} seeds. At {at} something changes: its
fastest node `{node}`, unless the table says otherwise. Everybody goes on with what was known, and
only those concerned are told. The measure is the oracle `setr`, which is told every change at once
and sees the same workloads, so that seeds are paired. Intervals are 95 % over seeds.

A method is *back* when its mean delay over {window} consecutive workloads is within {percent} of
the oracle's on the same ones; the time is that of the first of them. Until then it *pays*: the sum
of what workloads took longer than under the oracle, those included that were under way at the
change.
"""

KNOWS_HEAD = ("change", "the provider", "the clusters", "the clock", "the agent")
KNOWS_ROWS = (
    ("`speed`", "its own new speed", "–", "–", "nothing; it can infer it from counts (below)"),
    (
        "`leave`, `join`",
        "nothing that it needs: it serves what arrives",
        "–",
        "who is a member, and until when",
        "when it happens, that the node takes jobs or not",
    ),
    (
        "`crash`",
        "when it ends and is back",
        "which of their jobs were lost, at the notice",
        "who is a member, and until when",
        "when it happens, that the node takes jobs or not; lost jobs once more, so what it held",
    ),
    ("`rate`, `mix`", "–", "the new pace, the new shares", "–", "nothing; it sees workloads come"),
    ("`demand`", "all: the new work", "–", "–", "nothing; it can infer it from counts"),
    ("`link`, `move`", "all: their way to the Cloud", "–", "–", "all latencies, as they change"),
)

KNOWS = """## Who knows what

Nobody receives what is not in its column: `fogveil scenario show NAME --as PARTICIPANT` prints what
each receives of a scenario.
"""

KNOWS_END = """At level `total` lost jobs are refused, since they would tell what one node held;
what leaving and crashing give away there is in [secure_totals.md](secure_totals.md).
"""

BARS = """## What was to be reached

{met} of {bars} bars are met. A bar on decisions is met if all runs are back, and the upper end of
the interval is not above it (where no node changes, all runs have to be back); one against `jsq` if
the whole interval is not above 1; one of a transfer if the whole interval is not above 1.05.
"""

WHY = """### Why they are missed

- **Upgrades are noticed late, or not at all, by counts of waiting jobs.** A job that nobody waits
  behind shows nothing of how long it is served, and at this load few wait. After a downgrade jobs
  begin to wait, which contradicts what was known; after an upgrade even fewer wait, which
  contradicts nothing. With counts of the jobs in the system, which tell whether a node is idle, the
  same rules are back at once: [below](#changes-of-speed-with-counts-in-system).
- **5 % is little more than the distance in calm times,** the column *before* in the tables below.
  After the move of a cluster nothing has to be learned: the run that is not back was outside
  before, too.
- **Transfers after a change of speed** go on as before: they send the changed node about as many
  workloads as the shipped agent does, where agents from scratch send it few. The two trainings
  differ much (the last column of [trained again](#trained-again)).
- **veil-total has no bar.** From one number it finds changes of speed late or wrongly: where its
  interval is wide, one run goes on to send a slower or busier node more than it can serve.
- **PARL has no bar, and is behind before and after:** its state holds no queue. Going on to learn
  costs it more than it gains within such a run, for it places at random now and then, and on the
  slowest node a single job takes hundreds of time units. Its detector of drift follows the sum of
  queued jobs, in which only the surge shows.
"""

INFERRING = """## Those that infer

![Delay over time of jsq, ci-setr, veil and veil-total](images/change/inference.png)

Delay in the oracle's, moving mean over {width} time units that lie all before or all after the
change, seeds together. Dashed: the change; dotted: the return after a crash; green: within 5 %.
"""

LEARNING = """## Those that learn

![Delay over time of PARL](images/change/learning.png)

PARL as it ships; {adapting}, which go on learning at
work (the second from a drift on); and PARL trained again in the changed environment, as if that
agent had been there at the change. Level `total` excludes lost jobs, so there is no panel of them.
"""

TABLES = """## Every kind of change

Ratios are to the oracle's mean delay: in the {last} time units before the change, in the first
{first} after it, and in the last {last} of the run. `never`: in no run. ≥: some runs were not back
at the end, and count to the end. The last column is the mean delay from the change on, in that of
`jsq`.
"""

KINDS = {
    "other-upgrade": """The node is `fog-5`, one of eight in the middle, which at this load get few
workloads.
""",
    "return": """The node has left at a quarter of the run, and comes back in the middle.
""",
    "crash-recovered": """Back after {back}. What the node held is served then, and what it held is
a matter of luck: so delay paid can be negative.
""",
    "crash-lost": """Back after {back}; lost jobs are emitted again {notice} after the crash.
""",
    "move": """`cluster-8` moves from `fog-10` to `fog-3`. The network of `paper` is fast: latencies
change by a few tenths of a time unit.
""",
}

IN_SYSTEM = """## Changes of speed with counts in system

The key `count = "in_system"` of the scenario: counts have the job in service, too. Everything else
is as above; the oracle's delays are the same.
"""

RETRAINING = """## Trained again

From scratch: a quarter of the paper's training, in the environment as it is after the change.
Transferred: `--from` of `fogveil train` with the shipped agent, and a fifth of these steps. Two
trainings each (seeds {seeds}). At work a training would take so much simulated time; here it takes
none.
"""

LEAKAGE = """## Adaptation and leakage are the same information

What lets `ci-setr` adapt is what tells an agent the secret: here the upgrade of the first table,
watched for {decisions} decisions. Each attacker follows the inference of the policies: from counts
that of `ci-setr` and `veil`, from totals that of `ti-setr` and `veil-total`. It is known when it
stays so for 50 decisions. Medians over the seeds in which it was; in parentheses how many they
are. `fogveil leakage` measures this on any scenario that changes a speed.

![Error and rank correlation over decisions](images/change/leakage.png)
"""

LEAKAGE_END = """Who probes, placing in order to learn and not to serve, knows soon. Who places
well knows as late as it adapts, and what it does not use it does not learn of. A rank that the
upgrade does not change needs no learning.
"""
