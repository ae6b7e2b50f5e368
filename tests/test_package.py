"""The wheel holds the product: installed by itself in an empty environment it runs a scenario."""

from __future__ import annotations

import json
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation",
         "--wheel-dir", str(folder), str(ROOT)],
        check=True,
    )  # fmt: skip
    (built,) = folder.glob("*.whl")
    return built


def test_the_catalogue_and_the_page_travel_in_the_wheel(wheel: Path) -> None:
    inside = set(zipfile.ZipFile(wheel).namelist())
    for folder in ("hw_specs", "workloads"):
        for path in (ROOT / folder).rglob("*.yaml"):
            assert f"simulator/_catalog/{path.relative_to(ROOT).as_posix()}" in inside
    for path in (ROOT / "simulator").rglob("*"):
        if path.suffix in (".txt", ".css", ".j2", ".js", ".typed"):
            assert path.relative_to(ROOT).as_posix() in inside
    assert not any(name.startswith("tests/") for name in inside)


def test_the_installed_command_runs_a_scenario(wheel: Path, tmp_path: Path) -> None:
    home = tmp_path / "venv"
    venv.create(home, with_pip=False)
    (site,) = home.glob("lib/python*/site-packages")
    zipfile.ZipFile(wheel).extractall(site)
    # The dependencies of this environment, after the package itself and without this checkout.
    others = [path for path in sys.path if path.endswith("site-packages")]
    (site / "dependencies.pth").write_text("\n".join(others))
    code = (
        "import sys; sys.argv[1:] = 'run llama-3.1-8b --on h200 --batch 4 --json -'.split(); "
        "import simulator; sys.stderr.write(simulator.__file__); "
        "from simulator.cli import main; main()"
    )
    ran = subprocess.run(
        [home / "bin" / "python", "-I", "-c", code],
        capture_output=True, text=True, check=True, cwd=tmp_path,
    )  # fmt: skip
    assert ran.stderr.startswith(str(site))
    assert json.loads(ran.stdout)["bound_by"] == "memory"


def test_the_package_runs_as_the_command() -> None:
    words = [sys.executable, "-m", "simulator", "list", "--json", "-"]
    told = subprocess.run(words, capture_output=True, text=True, check=True)
    assert "mi455x" in told.stdout
