import subprocess
from pathlib import Path

import pytest

from models.step.native import build

STAGES = Path(__file__).with_name("stages.cpp")


@pytest.fixture(scope="module")
def stages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    try:
        compiler = build._compiler()
    except build.NoLibrary as error:
        pytest.skip(str(error))
    program = tmp_path_factory.mktemp("stages") / "stages"
    flags = ["-std=c++20", "-O2", "-pthread", f"-I{build.SOURCE}"]
    subprocess.run([*compiler, *flags, "-o", program, STAGES], check=True, timeout=120)
    return program


@pytest.mark.parametrize("threads", [1, 2, 3, 8])
def test_stages_follow_and_wait_for_no_sleeper(stages: Path, threads: int) -> None:
    done = subprocess.run([stages, str(threads)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout
