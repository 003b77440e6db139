"""docs/results.md, written from the results that `make results` left behind."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fogveil.errors import InputError
from testbed.gallery import check_comparable, draw_all, method_of, read_results
from testbed.results import COUNTS, HORIZONS, OTHERS, OUT, PAPER, RATES, SEEDS
from testbed.scenario import load_scenario
from testbed.statistics import Estimate, estimate, number, paired_ratio

PAGE = Path("docs/results.md")
IMAGES = Path("docs/images/results")
LEARNED_ORDER = ("parl", "plrl-edql", "plrl-ql", "plrl-ed", "veil")
METHODS = (
    *("random", "round-robin", "nearest", "fastest", "electre", "electre-queue"),
    *(
        "p2c",
        "jsq",
        "lwl",
        "sed",
        "ci-setr",
        "setr",
        "parl",
        "plrl-edql",
        "plrl-ql",
        "plrl-ed",
        "veil",
    ),
)
NEEDS = {"total": "total", "count": "count", "full": "full", "none": "nothing"}

Key = tuple[str, float | None, float]


class Results:
    """The results of one section: by method, rate and horizon, then training, then seed."""

    def __init__(self, section: str) -> None:
        self.cells: dict[Key, dict[str, dict[int, dict[str, Any]]]] = {}
        self.levels: dict[str, str] = {}
        results = read_results([OUT / section]) if (OUT / section).exists() else []
        check_comparable(results)
        for result in results:
            method = method_of(result["label"])
            scenario = result["scenario"]
            key = (method, scenario["sources"].get("scale"), scenario["horizon"])
            trainings = self.cells.setdefault(key, {})
            trainings.setdefault(result["label"], {})[result["seed"]] = result["summary"]
            self.levels[method] = result["level"]

    def trainings(self, method: str, rate: float | None, horizon: float) -> list[str]:
        """Return the trainings of a method there are results of."""
        return sorted(self.cells.get((method, rate, horizon), {}))

    def values(
        self, method: str, rate: float | None, horizon: float, measure: str, training: str = ""
    ) -> dict[int, float]:
        """Return a measure by evaluation seed, averaged over the trainings (or of one)."""
        trainings = self.cells.get((method, rate, horizon), {})
        chosen = [trainings[training]] if training else list(trainings.values())
        by_seed = defaultdict(list)
        for runs in chosen:
            for seed, summary in sorted(runs.items()):
                if summary[measure] is not None:
                    by_seed[seed].append(float(summary[measure]))
        return {seed: float(np.mean(found)) for seed, found in sorted(by_seed.items())}

    def mean(
        self, method: str, rate: float | None, horizon: float, measure: str
    ) -> Estimate | None:
        """Estimate a measure; for several trainings the interval is over these."""
        names = self.trainings(method, rate, horizon)
        if len(names) > 1:
            per = [self.values(method, rate, horizon, measure, name) for name in names]
            return estimate([float(np.mean(list(found.values()))) for found in per if found])
        values = list(self.values(method, rate, horizon, measure).values())
        return estimate(values) if values else None

    def ratio(
        self, method: str, rate: float | None, horizon: float, training: str = "", to: str = "setr"
    ) -> Estimate | None:
        """Estimate the paired ratio of the mean Fog loop to that of another method."""
        mine = self.values(method, rate, horizon, "fog_loop", training)
        other = self.values(to, rate, horizon, "fog_loop")
        if not mine or mine.keys() != other.keys():
            return None
        return paired_ratio(list(mine.values()), list(other.values()))


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Spell a table in Markdown."""
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def _both(results: Results, method: str, rate: float, measure: str) -> str:
    parts = [results.mean(method, rate, horizon, measure) for horizon in HORIZONS]
    return " \\| ".join("–" if part is None else str(part) for part in parts)


def loops_section(results: Results) -> str:
    """Both loops of every method on the paper's scenario."""
    text = ""
    for measure, title in (("fog_loop", "Fog loop"), ("cloud_loop", "Cloud loop")):
        rows = []
        for method in METHODS:
            if not any(key[0] == method for key in results.cells):
                continue
            cells = [_both(results, method, rate, measure) for rate in RATES]
            count = len(results.trainings(method, RATES[-1], HORIZONS[0]))
            told = NEEDS[results.levels[method]]
            if method in ("plrl-ed", "plrl-edql"):
                told = "trained at full, acts on count"
            trained = f", {count} trainings" if method in LEARNED_ORDER else ""
            rows.append((f"{method} ({told}{trained})", *cells))
        head = (f"{title}, 10K \\| 100K", *(f"β = {rate:g}" for rate in RATES))
        text += table(head, rows) + "\n"
    return text


def trainings_section(results: Results) -> str:
    """PARL, training by training: the interval over trainings does not tell how they scatter."""
    rows = []
    for rate in RATES:
        for horizon in HORIZONS:
            names = results.trainings("parl", rate, horizon)
            found = [results.values("parl", rate, horizon, "fog_loop", name) for name in names]
            means = [number(float(np.mean(list(values.values())))) for values in found]
            rows.append((f"{rate:g}, {horizon:,.0f}", *means))
    seeds = [f"seed {seed}" for seed in range(1, len(rows[0]))]
    return table(("PARL, Fog loop: β, horizon", *seeds), rows)


def _mean(results: Results, method: str, rate: float, measure: str = "fog_loop") -> float:
    found = results.mean(method, rate, HORIZONS[0], measure)
    if found is None:
        raise InputError(f"no results of {method} at β = {rate:g}: run the stage that makes them")
    return found.mean


def claims_section(results: Results) -> str:
    """The paper's claims beside ours."""
    rows = []

    def claim(text: str, paper: str, ours: str, verdict: str) -> None:
        rows.append((text, paper, ours, verdict))

    def holds(condition: bool) -> str:  # noqa: FBT001
        return "holds" if condition else "does not hold"

    for rate, paper in ((100.0, 82), (150.0, 87), (200.0, 90)):
        gain = 1 - _mean(results, "parl", rate) / _mean(results, "electre", rate)
        claim(
            f"PARL below ELECTRE in total execution delay, β = {rate:g}",
            f"{paper} %",
            f"{gain:.0%}",
            holds(gain > paper / 100 - 0.1) + " (our ELECTRE and environment are not the paper's)",
        )
    parl, fastest = (_mean(results, name, 200.0) for name in ("parl", "fastest"))
    claim(
        "PARL about equal to fastest at β = 200",
        "comparable",
        f"{number(parl)} against {number(fastest)}",
        holds(abs(parl / fastest - 1) < 0.2),  # noqa: PLR2004
    )
    static = ("random", "round-robin", "nearest", "fastest", "electre")
    low = min(static, key=lambda name: _mean(results, name, 200.0))
    high = max(static, key=lambda name: _mean(results, name, 100.0))
    claim("fastest is the best traditional method at β = 200", "yes", low, holds(low == "fastest"))
    claim("fastest is the worst method at β = 100", "yes", high, holds(high == "fastest"))
    edql = _mean(results, "plrl-edql", 100.0)
    claim(
        "PARL on par with PLRL(ED+QL), β = 100",
        "on par",
        f"{number(_mean(results, 'parl', 100.0))} against {number(edql)}",
        holds(_mean(results, "parl", 100.0) < 1.2 * edql),
    )
    bad = _mean(results, "plrl-ed", 100.0)
    claim(
        "PLRL(ED) is bad, worse than fastest, β = 100",
        "worst",
        f"{number(bad)} against {number(_mean(results, 'fastest', 100.0))}",
        holds(bad > _mean(results, "fastest", 100.0)),
    )
    cloud = {
        name: _mean(results, name, 100.0, "cloud_loop")
        for name in (*static, "parl", "plrl-edql", "plrl-ql", "plrl-ed")
    }
    best = min(cloud, key=lambda name: cloud[name])
    claim(
        "PARL the best of the paper's methods on the Cloud loop, β = 100",
        "yes",
        f"{best} ({number(cloud[best])}); PARL {number(cloud['parl'])}",
        holds(best == "parl"),
    )
    short, long = (results.mean("parl", 200.0, horizon, "fog_loop") for horizon in HORIZONS)
    assert short is not None
    assert long is not None
    claim(
        "PARL generalises from 10K to 100K, β = 200",
        "yes",
        f"{number(short.mean)} and {number(long.mean)}",
        holds(long.mean < 1.2 * short.mean),
    )
    needs = "privacy: the agent needs no load or resource of a node"
    claim(needs, "yes", "level total: Σq only", "holds at level `total`; at `count` counts leak")
    return table(("claim", "the paper", "here", "verdict"), rows)


def veil_section(count: str) -> str:
    """The boundary-only agent against the oracle, training by training."""
    results = Results(f"veil-{count}")
    trainings = results.trainings("veil", RATES[0], HORIZONS[0])
    rows = []
    worst = 0.0
    for rate in RATES:
        for horizon in HORIZONS:
            ratios = [results.ratio("veil", rate, horizon, name) for name in trainings]
            found = [ratio for ratio in ratios if ratio is not None]
            worst = max([worst, *(r.mean + (r.half_width or 0) for r in found)])
            over_jsq = results.ratio("veil", rate, horizon, to="jsq")
            over_ci = results.ratio("veil", rate, horizon, to="ci-setr")
            ci = results.ratio("ci-setr", rate, horizon)
            rows.append(
                (
                    f"{rate:g}, {horizon:,.0f}",
                    str(results.mean("setr", rate, horizon, "fog_loop")),
                    spell(ci),
                    *(spell(ratio) for ratio in ratios),
                    spell(over_ci),
                    "–" if over_jsq is None else f"{over_jsq.mean - 1:+.1%}",
                )
            )
    head = (
        *("β, horizon", "setr", "ci-setr / setr"),
        *(f"veil {name.rpartition('-')[2]} / setr" for name in trainings),
        *("veil / ci-setr", "against jsq"),
    )
    line = f"The largest upper end of a 95 % interval is {worst:.3f}.\n"
    return table(head, rows) + "\n" + line


def spell(ratio: Estimate | None) -> str:
    """Spell a ratio with three decimals."""
    if ratio is None:
        return "–"
    return f"{ratio.mean:.3f} ± {ratio.half_width or 0:.3f}"


def others_section(count: str) -> str:
    """Scenarios that veil was never trained on."""
    rows, worst = [], 0.0
    for name in (*OTHERS, "geant"):
        results = Results(f"others-{count}/{name}")
        if not results.cells:
            continue
        rate = next(key[1] for key in results.cells)
        trainings = results.trainings("veil", rate, HORIZONS[0])
        ratios = [results.ratio("veil", rate, HORIZONS[0], t) for t in trainings]
        found = [ratio for ratio in ratios if ratio is not None]
        worst = max([worst, *(r.mean + (r.half_width or 0) for r in found)])
        ci = results.ratio("ci-setr", rate, HORIZONS[0])
        jsq = results.ratio("jsq", rate, HORIZONS[0])
        oracle = str(results.mean("setr", rate, HORIZONS[0], "fog_loop"))
        rows.append((name, oracle, spell(jsq), spell(ci), *(spell(ratio) for ratio in ratios)))
    trained = [f"veil {number_} / setr" for number_ in range(1, len(rows[0]) - 3)]
    head = ("scenario", "setr", "jsq / setr", "ci-setr / setr", *trained)
    return table(head, rows) + f"\nThe largest upper end of a 95 % interval is {worst:.3f}.\n"


def stochastic_section(word: str, count: str) -> str:
    """Random service times: who copes."""
    results = Results(f"{word}-{count}")
    rows = []
    for method in ("setr", "sed", "jsq", "ci-setr", "veil"):
        cells = []
        for rate in RATES:
            mean = results.mean(method, rate, HORIZONS[0], "fog_loop")
            ratio = results.ratio(method, rate, HORIZONS[0], to="sed")
            cells.append("–" if mean is None else f"{mean} ({spell(ratio)})")
        rows.append((method, *cells))
    head = (f"{count} counts (ratio to sed)", *(f"β = {rate:g}" for rate in RATES))
    return table(head, rows)


def write_page() -> Path:
    """Write the page and its figures."""
    results = Results("paper")
    folders = [OUT / "paper", OUT / "training"]
    draw_all([folder for folder in folders if folder.exists()], IMAGES)
    seed = load_scenario(PAPER).seed
    parts = [
        HEAD.format(seeds=SEEDS, first=seed, last=seed + SEEDS - 1),
        "## The paper's scenario\n\n" + PAPER_TEXT,
        loops_section(results),
        trainings_section(results),
        "## The paper's claims\n",
        claims_section(results),
        FIGURES,
        "## veil\n\n" + VEIL_TEXT,
        *(f"{_spelled(count)} counts:\n\n{veil_section(count)}" for count in COUNTS),
        "### Scenarios it was never trained on\n\n" + OTHERS_TEXT,
        *(f"{_spelled(count)} counts:\n\n{others_section(count)}" for count in COUNTS),
        "## Random service times\n\n" + STOCHASTIC_TEXT,
    ]
    for word, title in (("exponential", "Exponential"), ("erlang", "Erlang of shape 4")):
        parts += [f"### {title}\n", *(stochastic_section(word, count) for count in COUNTS)]
    PAGE.write_text("\n".join(parts).rstrip() + "\n", encoding="utf-8")
    return PAGE


def _spelled(count: str) -> str:
    return {"in_system": "In-system", "waiting": "Waiting"}[count]


HEAD = """# Results

Everything here is printed by `make results` (resumable; it says first how long it will take) from
runs that `fogveil train` and `fogveil compare` would give as well. The environment is ours,
calibrated to show the behaviour that the paper describes; no number here is the paper's.

Mean delays in simulated time units over {seeds} evaluation seeds ({first} to {last}), with 95 %
intervals; for methods with several trainings the interval is over the trainings. Ratios are
paired: both methods see the same workloads. All jobs count, also those served after the horizon.
"""

PAPER_TEXT = """PARL is the paper's agent to the letter, trained at paper length (100K decisions of
buffer population, 150K training steps, 600K decisions) at each rate with five seeds; PLRL with
three. Waiting counts. What each method is told stands in parentheses.
"""

FIGURES = """## Figures

Traditional methods dashed, learned ones solid.

![Mean delay of both loops](images/results/loops.png)

![The five delays](images/results/delays.png)

![Where workloads go](images/results/distribution.png)

![Training of PARL](images/results/training-parl.png)
"""

VEIL_TEXT = """A double DQN that sees counts at decision instants, public latencies and its own
past. It is trained once per seed and kind of count, at β = 100 (60K decisions), and evaluated
everywhere. `setr` is the clairvoyant greedy oracle; `ci-setr` infers service times and backlogs
from the same counts without learning a value.
"""

OTHERS_TEXT = """The files in `scenarios/other/` were fixed before any training. Horizon 10,000.
"""

STOCHASTIC_TEXT = """Each job carries a service factor. `setr` knows it in advance, `sed` knows
the true means, the others see counts alone. veil is the one trained on deterministic service.
Horizon 10,000.
"""
