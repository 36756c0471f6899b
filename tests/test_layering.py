"""Who may import whom, read from the source."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("configs", "models", "deployments")
HEAVY = {"torch", "transformers"}
TYPES = {"models.errors", "models.request", "models.events", "models.engine", "models.embedding"}

# What the modules of a package may import of ours, beside their own package; the longest prefix
# of a module's name decides. A name ends in a dot where all below it is meant.
ALLOWED: dict[str, set[str]] = {
    "configs": set(),
    "models.errors": set(),
    "models.request": {"models.errors"},
    "models.events": {"models.errors", "models.request"},
    "models.engine": TYPES,
    "models.embedding": {"models.errors", "models.request"},
    "models.schedule": TYPES,
    "models.text": TYPES,
    "models.constrain": {*TYPES, "models.text.pipeline", "models.schedule.sequence"},
    "models.step": {"models.schedule.sequence", "models.errors"},
    "models": {"configs.", "models."},
    "deployments.openai": {"models.errors", "models.request", "models.events", "models.embedding"},
    "deployments.responses": {
        "models.errors",
        "models.request",
        "models.events",
        "deployments.openai",
    },
    "deployments.anthropic": {
        "models.errors",
        "models.request",
        "models.events",
        "deployments.openai",
    },
    "deployments": {"configs.", "models.", "deployments."},
}
SEE_STEPS = {
    "models.build",
    "models.landing",
    "models.quality",
    "models.scheduled",
    "models.stepper",
    "models.token_engine",
}
# Third parties that a package must do without.
FORBIDDEN: dict[str, set[str]] = {
    "configs": {*HEAVY, "ray", "starlette"},
    "models": {"ray", "starlette", "fastapi"},
    "models.schedule": {*HEAVY, "ray", "pydantic", "tokenizers", "numpy"},
    "models.text": {*HEAVY, "ray", "pydantic"},
    "models.constrain": {*HEAVY, "ray", "pydantic"},
    "deployments": HEAVY,
    "deployments.openai": {*HEAVY, "ray"},
    "deployments.anthropic": {*HEAVY, "ray"},
    "deployments.responses": {*HEAVY, "ray"},
}


def modules() -> Iterator[str]:
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            yield ".".join(parts).removesuffix(".__init__")


def path_of(module: str) -> Path:
    path = ROOT / module.replace(".", "/")
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def imported(module: str) -> set[str]:
    """All modules that it names in imports, those inside functions too."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path_of(module).read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module}: relative imports hide what is imported"
            found.add(node.module or "")
            below = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= {name for name in below if name in MODULES}
    return found - {package for package in MODULES if (ROOT / package.replace(".", "/")).is_dir()}


def within(module: str, prefix: str) -> bool:
    return module == prefix or module.startswith(prefix.rstrip(".") + ".")


MODULES = set(modules())


@pytest.mark.parametrize("module", sorted(MODULES))
def test_imports_point_down(module: str) -> None:
    package = max((prefix for prefix in ALLOWED if within(module, prefix)), key=len)
    ours = {name for name in imported(module) if name.split(".")[0] in PACKAGES}
    allowed = {package, *ALLOWED[package]}
    assert {n for n in ours if not any(within(n, a) for a in allowed)} == set()


@pytest.mark.parametrize("module", sorted(MODULES))
def test_what_a_package_does_without(module: str) -> None:
    packages = {name.split(".")[0] for name in imported(module)}
    for prefix, forbidden in FORBIDDEN.items():
        if within(module, prefix):
            assert packages & forbidden == set()


def test_only_a_few_see_the_step_models() -> None:
    outside = (name for name in MODULES if not within(name, "models.step"))
    sees = {n for n in outside if any(within(i, "models.step") for i in imported(n))}
    assert sees <= SEE_STEPS


def test_schedule_is_the_standard_library_only() -> None:
    for module in (name for name in MODULES if within(name, "models.schedule")):
        thirds = {name.split(".")[0] for name in imported(module)} - {"models"}
        assert thirds <= sys.stdlib_module_names


@pytest.mark.parametrize("module", ["deployments.app", "models.source", "models.text.loading"])
def test_no_torch_without_a_model(module: str) -> None:
    script = f"import sys, {module}; print(*sys.modules.keys() & {HEAVY})"
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, check=True, capture_output=True, text=True
    )
    assert done.stdout.split() == []
