"""Results as a picture: throughput of every scenario, and how long clients wait."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

from tests.bench.figures import Figures
from tests.bench.results import Results

Metric = Callable[[Figures], float | None]
COLOURS = {"ours": "#d1495b", "peer": "#8d99ae"}


def can_draw() -> bool:
    """Whether matplotlib is there: ``pip install -e '.[bench]'``."""
    return find_spec("matplotlib") is not None


def draw(results: Results, path: Path) -> None:
    """Writes an image, in the format that the name of the file says."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    servers = [name for name, shown in results.servers.items() if shown.role in COLOURS]
    panels: list[tuple[str, str, Metric]] = [
        (f"{name}: tokens/s", name, _speed) for name in results.scenarios()
    ]
    if "E" in results.scenarios():
        panels.append(("E: worst gap, ms", "E", _worst_gap))
    figure, _ = pyplot.subplots(
        1, len(panels), figsize=(3 * len(panels) + 1.5, 1 + 0.35 * len(servers)), sharey=True
    )
    for (title, scenario, metric), axis in zip(panels, figure.axes, strict=True):
        found = [results.figures(server, scenario) for server in servers]
        values = [metric(one) or 0.0 if one else 0.0 for one in found]
        colours = [COLOURS[results.servers[server].role] for server in servers]
        labels = [results.servers[server].label for server in servers]
        bars = axis.barh(labels, values, color=colours)
        axis.bar_label(bars, [f"{value:.0f}" if value else "" for value in values], padding=2)
        axis.set_title(title, fontsize=10)
        axis.margins(x=0.2)
        axis.spines[["top", "right"]].set_visible(False)
    figure.axes[0].invert_yaxis()
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)
    pyplot.close(figure)


def _speed(found: Figures) -> float | None:
    return found.tokens_per_s


def _worst_gap(found: Figures) -> float | None:
    return found.worst_gap_ms
