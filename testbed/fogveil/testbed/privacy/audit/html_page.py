"""The audit's findings as an HTML page to hand to a provider."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

from fogveil.testbed.privacy.audit.findings import Finding, Verdict

COLOURS = {
    Verdict.PASS: "#1a7f37",
    Verdict.FAIL: "#cf222e",
    Verdict.NOT_SHOWN: "#9a6700",
    Verdict.MEASURED: "#57606a",
}

STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem;
       color: #1f2328; background: #fff; }
h1 { font-size: 1.5rem; } table { border-collapse: collapse; width: 100%; }
td { border-top: 1px solid #d1d9e0; padding: .6rem .5rem; vertical-align: top; }
.verdict { font-weight: 700; white-space: nowrap; } .evidence { color: #59636e; }
.about { width: auto; } .about td { border: 0; padding: .1rem 1rem .1rem 0; }
details { margin-top: .3rem; } pre { overflow-x: auto; font-size: .8rem; background: #f6f8fa;
       padding: .5rem; }
"""


LEAKS = {
    "count": (
        "The counts themselves leak speeds. An agent that is told each provider's count ranks the "
        "providers by speed after about a hundred decisions, and knows their service times to "
        "within a percent after some hundred. This audit shows that nothing else crosses; what the "
        "counts reveal is measured by fogveil leakage."
    ),
    "total": (
        "The total itself leaks speeds. An agent that is told the sum of all counts ranks the "
        "providers by speed after about two hundred decisions. This audit shows that nothing else "
        "crosses; what the total reveals is measured by fogveil leakage --level total."
    ),
    "full": "At level full the providers disclose speed, memory and backlog by themselves.",
    "none": "At level none the agent is told nothing about a provider's load.",
}
"""What the permitted numbers give away by themselves, by level."""


def html_page(findings: list[Finding], facts: Mapping[str, str], levels: Sequence[str]) -> str:
    """Return the findings as one self-contained HTML page.

    `facts` say what was audited, when and with what; `levels` are the audited disclosure levels.
    """
    about = "\n".join(
        f"<tr><td>{escape(key)}</td><td>{escape(value)}</td></tr>" for key, value in facts.items()
    )
    leaks = "\n".join(f"<p>{escape(LEAKS[level])}</p>" for level in levels)
    rows = "\n".join(_row(finding) for finding in findings)
    failed = sum(finding.verdict is Verdict.FAIL for finding in findings)
    summary = "No promise is broken." if not failed else f"{failed} promises are broken."
    unshown = sum(finding.verdict is Verdict.NOT_SHOWN for finding in findings)
    summary += f" Not shown: {unshown}, which is not a pass." if unshown else ""
    return f"""<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>fogveil audit</title><style>{STYLE}</style></head>
<body>
<h1>What a provider gives away</h1>
<table class="about">
{about}
</table>
<p><strong>{summary}</strong></p>
{leaks}
<table>
{rows}
</table>
</body>
</html>
"""


def _row(finding: Finding) -> str:
    more = ""
    if finding.details:
        lines = escape("\n".join(finding.details))
        more = (
            f"<details><summary>{len(finding.details)} lines</summary><pre>{lines}</pre></details>"
        )
    colour = COLOURS[finding.verdict]
    return (
        f'<tr><td class="verdict" style="color:{colour}">{finding.verdict.value}</td>'
        f"<td>{escape(finding.promise)}"
        f'<div class="evidence">{escape(finding.evidence)}</div>{more}</td></tr>'
    )
