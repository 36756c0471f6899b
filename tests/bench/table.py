"""Results as Markdown: servers against each other, the graph against the engine, CPU a token.

``python -m tests.bench.table results.json ...`` merges runs, so that a long one may be split.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from tests.bench.figures import Figures
from tests.bench.plot import draw
from tests.bench.results import Results, Role, load, merged
from tests.bench.scenarios import SCENARIOS

Metric = Callable[[Figures], float | None]
KINDS = ("client", "proxy", "ingress", "tokenizer", "model", "ray", "server", "process")
FIRST: dict[str, list[tuple[str, Metric]]] = {
    "A": [("ttft", lambda of: of.first_ms), ("itl", lambda of: of.gap_ms)],
    "E": [
        ("itl p99", lambda of: of.gap_p99_ms),
        ("worst gap", lambda of: of.worst_gap_ms),
        ("long ttft", lambda of: of.long_first_ms),
    ],
}
OTHERS: list[tuple[str, Metric]] = [
    ("ttft", lambda of: of.first_ms),
    ("itl p99", lambda of: of.gap_p99_ms),
]


def report(results: Results) -> str:
    """All tables there is something to tell in."""
    parts = [_about(results), _comparison(results), _graph(results), _cost(results)]
    return "\n\n".join(part for part in [*parts, _problems(results)] if part) + "\n"


def _about(results: Results) -> str:
    lines = [f"On {results.machine}. Medians; times in ms; tokens by the servers' own usage.", ""]
    lines += [f"- {name}: {SCENARIOS[name].about}" for name in results.scenarios()]
    return "\n".join(lines)


def _comparison(results: Results) -> str:
    names = results.scenarios()
    heads = [f"{name} tok/s ({', '.join(what for what, _ in _metrics(name))})" for name in names]
    rows = [
        _row(
            results.servers[server].label,
            *(_cell(name, results.figures(server, name)) for name in names),
            _seconds(results.start_s(server)),
        )
        for server in _servers(results, "ours", "peer")
    ]
    return _table(["server", *heads, "start"], [*rows, *_ratios(results)])


def _ratios(results: Results) -> Iterator[str]:
    """Each of ours against the best peer of its precision, and of any, figure by figure."""
    peers = _servers(results, "peer")
    for server in _servers(results, "ours") if peers else []:
        ours = results.servers[server]
        same = [peer for peer in peers if results.servers[peer].precision == ours.precision]
        for title, rivals in ((f"best {ours.precision} peer", same), ("best peer", peers)):
            cells = [_ratio_cell(results, name, server, rivals) for name in results.scenarios()]
            if any(cells):
                yield _row(f"{ours.label} / {title}", *cells, _start_ratio(results, server, rivals))


def _ratio_cell(results: Results, scenario: str, server: str, rivals: Sequence[str]) -> str:
    ours = results.figures(server, scenario)
    others = [found for rival in rivals if (found := results.figures(rival, scenario))]
    if ours is None or not others:
        return ""
    speed = _share(ours.tokens_per_s, max(other.tokens_per_s for other in others))
    shares = [
        _share(metric(ours), min(_known(metric(other) for other in others), default=None))
        for _, metric in _metrics(scenario)
    ]
    return f"**{speed}** ({', '.join(shares)})"


def _start_ratio(results: Results, server: str, rivals: Sequence[str]) -> str:
    starts = _known(results.start_s(rival) for rival in rivals)
    return _share(results.start_s(server), min(starts, default=None))


def _graph(results: Results) -> str:
    """What proxy, ingress and the way between them cost: our server against its engine alone."""
    rows = [
        line
        for engine in _servers(results, "engine")
        for name in results.scenarios()
        for line in _graph_rows(results, name, results.servers[engine].of, engine)
    ]
    heads = ["graph against engine", "tok/s", "ttft p50", "itl p50", "itl p99"]
    return _table(heads, rows) if rows else ""


def _graph_rows(results: Results, scenario: str, server: str, engine: str) -> Iterator[str]:
    graph, bare = results.figures(server, scenario), results.figures(engine, scenario)
    if graph is None or bare is None:
        return
    label = f"{results.servers[server].label}, {scenario}"
    for path, found in ((f"{label}: graph", graph), (f"{label}: engine", bare)):
        times = (found.first_ms, found.gap_ms, found.gap_p99_ms)
        yield _row(path, f"{found.tokens_per_s:.1f}", *map(_number, times))
    later = (graph.first_ms or 0.0) - (bare.first_ms or 0.0)
    yield _row(
        f"{label}: share",
        f"**{graph.tokens_per_s / bare.tokens_per_s:.1%}**",
        f"**{later:+.1f} ms**",
        _share(graph.gap_ms, bare.gap_ms),
        f"**{_share(graph.gap_p99_ms, bare.gap_p99_ms)}**",
    )


def _cost(results: Results) -> str:
    """CPU time a token of each kind of process."""
    rows = [
        (results.servers[server].label, name, found.cost_us)
        for server in results.servers
        for name in results.scenarios()
        if (found := results.figures(server, name))
    ]
    known = {kind for *_, cost in rows for kind in cost}
    kinds = [kind for kind in KINDS if kind in known]
    heads = ["CPU a token, µs", "scenario", *kinds]
    return _table(
        heads,
        [
            _row(label, name, *(_number(cost.get(kind)) for kind in kinds))
            for label, name, cost in rows
        ],
    )


def _problems(results: Results) -> str:
    lines = [
        f"- {results.servers[server].label if server in results.servers else server}: {first}"
        for server, problems in results.problems.items()
        for first in dict.fromkeys(problem.strip().replace("\n", "\n  ") for problem in problems)
    ]
    return "\n".join(["What did not work:", "", *lines]) if lines else ""


def _metrics(scenario: str) -> list[tuple[str, Metric]]:
    return FIRST.get(scenario, OTHERS)


def _cell(scenario: str, found: Figures | None) -> str:
    if found is None:
        return "–"
    times = ", ".join(_number(metric(found)) for _, metric in _metrics(scenario))
    failed = f", {found.failed} failed" if found.failed else ""
    return f"{found.tokens_per_s:.1f} ({times}){failed}"


def _servers(results: Results, *roles: Role) -> list[str]:
    return [name for name, shown in results.servers.items() if shown.role in roles]


def _known(values: Iterator[float | None]) -> list[float]:
    return [value for value in values if value is not None]


def _number(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}"


def _seconds(value: float | None) -> str:
    return "–" if value is None else f"{value:.1f} s"


def _share(ours: float | None, other: float | None) -> str:
    return "–" if ours is None or not other else f"{ours / other:.2f}×"


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def _table(heads: list[str], rows: list[str]) -> str:
    return "\n".join([_row(*heads), "|" + "---|" * len(heads), *rows])


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.table", description=__doc__)
    parser.add_argument("files", type=Path, nargs="+", help="results.json of one run or of several")
    parser.add_argument("--plot", type=Path, help="also draw them to this file (.svg or .png)")
    arguments = parser.parse_args()
    results = merged(map(load, arguments.files))
    print(report(results))
    if arguments.plot:
        draw(results, arguments.plot)


if __name__ == "__main__":
    main()
