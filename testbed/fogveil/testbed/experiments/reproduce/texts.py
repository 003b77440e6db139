"""What docs/results.md says beside its numbers."""

from __future__ import annotations

HEAD = """# Results

Written by `fogveil reproduce` (resumable; it says first how long it will take) from trainings and
runs that `fogveil train` and `fogveil compare` would give as well. Evaluated at commit {commit};
trained at commits {commits}.
The paper does not give its parameters, so the environments are ours: no number here is the
paper's, but in the column `the paper`.

Mean delays in simulated time units over {seeds} evaluation seeds ({first} to {last}), with 95 %
intervals; for methods with several trainings the interval is over the trainings. Ratios are
paired: both methods see the same workloads. All jobs count, also those served after the horizon.
The paper's agents are trained at each rate and evaluated at that rate; the length of a full
training is the paper's: 100K decisions of buffer population, then 150K training steps, 600K
decisions.
"""

QUICK = """
**This page is from `fogveil reproduce --quick`: short trainings and few seeds. It shows what the
whole evaluation looks like; its numbers and verdicts are not those of docs/results.md.**
"""

CLAIMS = """In the environment `paper`, Fog loop at 10K unless stated.
"""

ENVIRONMENTS = {
    "paper": """The environment in which the paper's agent works: a network that is fast beside the
gaps between decisions, and capacity that is ample but for one very slow, central node, which
overloads whoever spreads evenly. It was fixed before these trainings. Waiting counts. What
each method observes is in parentheses. `electre with veto` is ELECTRE with a veto of 0.6 on the
criterion `service`, which a careful expert would set here.
""",
    "stress": """A heavily loaded environment on a slow network, in which the paper's agent does not
work: a placement shows in the total after five to ten further decisions, when the agent's
distribution d has forgotten it. ELECTRE has its veto. Waiting counts.
""",
}

OURS = """`setr`, the oracle, is told everything and is greedy. The interval of a ratio is over the
evaluation seeds.
"""

TOTAL = """PARL and veil-total are given the same: cluster, category, own placements, public
latencies and the sum Σq. Environment `stress`, 10K | 100K; each training (at β = 100) has a row of
its own. What veil-total does otherwise, one step at a time:

- PARL's state d forgets a placement within a few decisions, and its reward mixes the effects of
  many: its trainings are in the tables of `stress` above.
- `ti-setr` learns no network. It infers service times from the totals, follows the nodes' queues
  by its own placements, jobs in transit included, and chooses the shortest expected response.
- `veil-total own-delay` is a double DQN on top of that, rewarded by the delay of its own job alone.
- `veil-total` is rewarded by the delay that the decision caused to all jobs.

All of them start without knowledge of any node in every run; PARL was trained at each rate.
The constants of the inference were chosen among about fifteen variants, tried on `stress` and
`paper` with seeds 1 to 24: the evaluation seeds here are among them.
"""

VEIL = """A double DQN that sees counts at decision instants, public latencies and its own
past. It is trained once per seed and kind of count, in `stress` at β = 100 (60K decisions), and
evaluated everywhere. `setr` is the clairvoyant greedy oracle; `ci-setr` infers service times and
backlogs from the same counts without learning a value. Environment `stress`.
"""

OTHERS = """The files in `scenarios/other/` were fixed before any training. Horizon 10,000.
"""

RANDOM_SERVICE = """Each job carries a service factor. `setr` knows it in advance, `sed` knows
the true means, the others see counts alone. veil is the one trained on deterministic service.
Environment `stress`, horizon 10,000.
"""

COUNT_NAMES = {"in_system": "In-system", "waiting": "Waiting"}
SERVICE_NAMES = {"exponential": "Exponential", "erlang": "Erlang of shape 4"}
