import subprocess
from pathlib import Path

import pytest

from models.step.native import build

CHECK = Path(__file__).with_name("team_check.cpp")


@pytest.fixture(scope="module")
def check(tmp_path_factory: pytest.TempPathFactory) -> Path:
    try:
        compiler = build._compiler()
    except build.NoLibrary as error:
        pytest.skip(str(error))
    made = tmp_path_factory.mktemp("team") / "check"
    flags = ["-std=c++20", "-O2", "-pthread", f"-I{build.SOURCE}"]
    subprocess.run([*compiler, *flags, "-o", made, CHECK], check=True, timeout=120)
    return made


@pytest.mark.parametrize("threads", [1, 2, 3, 8])
def test_stages_follow_each_other_and_nobody_waits_for_a_sleeper(check: Path, threads: int) -> None:
    done = subprocess.run([check, str(threads)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout
