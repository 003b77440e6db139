"""The tables of docs/results.md about veil, in Markdown."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from fogveil.testbed.experiments.reproduce.plan import HORIZONS, OTHERS, RATES
from fogveil.testbed.experiments.reproduce.section_results import SectionResults
from fogveil.testbed.experiments.reproduce.tables import format_ratio
from fogveil.testbed.report.markdown import markdown_table
from fogveil.testbed.report.statistics import Estimate, format_number

SHORT = HORIZONS[0]


def veil_table(results: SectionResults) -> str:
    """Return the ratio of veil, which observes counts alone, to the oracle, by training."""
    trainings = results.trainings("veil", RATES[0], SHORT)
    rows = []
    worst = 0.0
    for rate in RATES:
        for horizon in HORIZONS:
            ratios = [results.ratio("veil", rate, horizon, name) for name in trainings]
            worst = max(worst, _upper_end(ratios))
            over_jsq = results.ratio("veil", rate, horizon, to="jsq")
            rows.append(
                (
                    f"{rate:g}, {horizon:,.0f}",
                    str(results.mean("setr", rate, horizon)),
                    format_ratio(results.ratio("ci-setr", rate, horizon)),
                    *(format_ratio(ratio) for ratio in ratios),
                    format_ratio(results.ratio("veil", rate, horizon, to="ci-setr")),
                    "–" if over_jsq is None else f"{over_jsq.mean - 1:+.1%}",
                )
            )
    head = (
        *("β, horizon", "setr", "ci-setr / setr"),
        *_veil_columns(trainings),
        *("veil / ci-setr", "against jsq"),
    )
    return markdown_table(head, rows) + "\n" + _worst_line(worst)


def total_table(by_horizon: Mapping[float, SectionResults]) -> str:
    """Return the methods that are told the total, each training by itself, against jsq and setr."""
    rows = []
    short = by_horizon[SHORT]
    for method in ("jsq", "ti-setr", "veil-total own-delay", "veil-total"):
        for training in short.trainings(method, RATES[0], SHORT):
            cells = []
            for rate in RATES:
                values = [
                    results.by_training(method, rate, horizon).get(training)
                    for horizon, results in by_horizon.items()
                ]
                delays = " \\| ".join("–" if v is None else format_number(v) for v in values)
                cells.append(
                    f"{delays} ({format_ratio(short.ratio(method, rate, SHORT, training))})"
                )
            seed = training.rpartition("-")[2]
            rows.append((f"{method}, training {seed}" if training else method, *cells))
    oracle = [
        " \\| ".join(str(results.mean("setr", rate, at)) for at, results in by_horizon.items())
        for rate in RATES
    ]
    rows.append(("setr", *oracle))
    head = ("Fog loop, 10K \\| 100K (10K / setr)", *(f"β = {rate:g}" for rate in RATES))
    return markdown_table(head, rows)


def others_table(read: Callable[[str], SectionResults]) -> str:
    """Return veil's results on scenarios that it was never trained on; `read` reads one."""
    rows, worst, trainings = [], 0.0, []
    for name in (*OTHERS, "geant"):
        results = read(name)
        if not results.levels:
            continue
        trainings = results.trainings("veil", None, SHORT)
        ratios = [results.ratio("veil", None, SHORT, t) for t in trainings]
        worst = max(worst, _upper_end(ratios))
        rivals = [results.ratio(rival, None, SHORT) for rival in ("jsq", "ci-setr")]
        oracle = str(results.mean("setr", None, SHORT))
        rows.append((name, oracle, *map(format_ratio, (*rivals, *ratios))))
    head = ("scenario", "setr", "jsq / setr", "ci-setr / setr", *_veil_columns(trainings))
    return markdown_table(head, rows) + "\n" + _worst_line(worst)


def random_service_table(results: SectionResults, count: str) -> str:
    """Return the results with random service times."""
    rows = []
    for method in ("setr", "sed", "jsq", "ci-setr", "veil"):
        cells = []
        for rate in RATES:
            mean = results.mean(method, rate, SHORT)
            ratio = results.ratio(method, rate, SHORT, to="sed")
            cells.append("–" if mean is None else f"{mean} ({format_ratio(ratio)})")
        rows.append((method, *cells))
    head = (f"{count} counts (ratio to sed)", *(f"β = {rate:g}" for rate in RATES))
    return markdown_table(head, rows)


def _veil_columns(trainings: Iterable[str]) -> list[str]:
    return [f"veil {name.rpartition('-')[2]} / setr" for name in trainings]


def _upper_end(ratios: Iterable[Estimate | None]) -> float:
    """The largest upper end of the intervals."""
    known = (ratio for ratio in ratios if ratio is not None)
    return max((ratio.mean + (ratio.half_width or 0) for ratio in known), default=0.0)


def _worst_line(worst: float) -> str:
    return f"The largest upper end of a 95 % interval is {worst:.3f}.\n"
