"""What is imported is declared, and the lock file holds versions that pyproject.toml allows."""

from __future__ import annotations

import sys
import tomllib
from importlib.metadata import packages_distributions
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.importing import MODULES, PACKAGES, ROOT, imported

PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
NEEDED = [Requirement(line) for line in PROJECT["dependencies"]]
DEVELOPING = [Requirement(line) for line in PROJECT["optional-dependencies"]["dev"]]


def locked() -> dict[str, str]:
    """Versions by the canonical names of their packages."""
    lines = (ROOT / "requirements.lock").read_text().splitlines()
    pins = (line.split("==") for line in lines if not line.startswith("#"))
    return {canonicalize_name(name): version for name, version in pins}


def test_all_that_is_imported_is_declared() -> None:
    tops = {name.split(".")[0] for module in MODULES for name in imported(module)}
    thirds = tops - sys.stdlib_module_names - {*PACKAGES}
    providers = packages_distributions()
    declared = {canonicalize_name(requirement.name) for requirement in NEEDED}
    missing = {
        top for top in thirds if declared.isdisjoint(map(canonicalize_name, providers.get(top, [])))
    }
    assert missing == set()


@pytest.mark.parametrize("requirement", [*NEEDED, *DEVELOPING], ids=str)
def test_the_lock_holds_what_is_declared(requirement: Requirement) -> None:
    assert locked()[canonicalize_name(requirement.name)] in requirement.specifier
