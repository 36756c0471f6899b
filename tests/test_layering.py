"""Who may import whom, read from the source."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.importing import MODULES, PACKAGES, ROOT, imported

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
    "models.closed_schema": set(),
    "models.quantisation": set(),
    "models.lora": set(),
    "models.embedding": {"models.errors", "models.request"},
    "models.schedule": TYPES,
    "models.text": {*TYPES, "models.closed_schema"},
    "models.constrain": {
        *TYPES,
        "models.closed_schema",
        "models.text.pipeline",
        "models.schedule.sequence",
    },
    "models.step": {
        "models.schedule.sequence",
        "models.errors",
        "models.lora",
        "models.quantisation",
    },
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
    "models.stepper",
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
    "deployments.batches": {*HEAVY, "ray"},
}


def within(module: str, prefix: str) -> bool:
    return module == prefix or module.startswith(prefix.rstrip(".") + ".")


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
    assert sees == SEE_STEPS


def test_schedule_is_the_standard_library_only() -> None:
    for module in (name for name in MODULES if within(name, "models.schedule")):
        thirds = {name.split(".")[0] for name in imported(module)} - {"models"}
        assert thirds <= sys.stdlib_module_names


def test_no_tests_are_imported() -> None:
    """What several modules of tests need is in a module without tests."""
    for path in (ROOT / "tests").rglob("*.py"):
        names = imported(".".join(path.relative_to(ROOT).with_suffix("").parts))
        assert not [name for name in names if ".test_" in name], path


@pytest.mark.parametrize("module", ["deployments.app", "models.source", "models.text.loading"])
def test_no_torch_without_a_model(module: str) -> None:
    script = f"import sys, {module}; print(*sys.modules.keys() & {HEAVY})"
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, check=True, capture_output=True, text=True
    )
    assert done.stdout.split() == []
