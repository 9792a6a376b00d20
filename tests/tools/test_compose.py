"""docker-compose.yml describes the processes that `./tools/up` starts.

The real compose binary reads the file; building images needs a Docker engine and is not tested.
"""

import copy
import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from launcher.processes import LOCAL_ONLY, Process, processes
from tests.tools.plans import plan_in

ROOT = Path(__file__).resolve().parents[2]
COMPOSE_FILE = ROOT / "docker-compose.yml"
SECRETS = {
    "POSTGRES_PASSWORD": "password",
    "BILLING_ADMIN_KEY_SHA256": "0" * 64,
    "MILLRACE_MODEL_DIR": "/models/smollm2",
}
SERVICES = sorted(path.name for path in (ROOT / "services").iterdir() if path.is_dir())

Compose = dict[str, Any]


@pytest.fixture(scope="module")
def compose() -> Compose:
    """The file as the real compose binary understands it."""
    done = _config(COMPOSE_FILE, SECRETS, "--format", "json")
    assert done.returncode == 0, done.stderr
    parsed = json.loads(done.stdout)
    assert isinstance(parsed, dict)
    return parsed


def test_compose_accepts_the_file() -> None:
    done = _config(COMPOSE_FILE, SECRETS, "-q")

    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("secret", SECRETS)
def test_compose_refuses_to_start_without_a_secret(secret: str) -> None:
    done = _config(COMPOSE_FILE, {k: v for k, v in SECRETS.items() if k != secret}, "-q")

    assert done.returncode != 0
    assert secret in done.stderr


def test_compose_refuses_a_misspelt_key(tmp_path: Path) -> None:
    mutant = tmp_path / "docker-compose.yml"
    mutant.write_text(COMPOSE_FILE.read_text().replace("healthcheck:", "healthchek:", 1))

    assert _config(mutant, SECRETS, "-q").returncode != 0


def test_compose_has_the_processes_and_environments_of_up(compose: Compose, tmp_path: Path) -> None:
    assert _differences(compose, processes(plan_in(tmp_path))) == []


def test_the_comparison_sees_a_missing_process(compose: Compose, tmp_path: Path) -> None:
    mutant = copy.deepcopy(compose)
    del mutant["services"]["kvtier"]

    assert _differences(mutant, processes(plan_in(tmp_path))) == ["missing in compose: kvtier"]


def test_the_comparison_sees_a_process_too_many(compose: Compose, tmp_path: Path) -> None:
    fewer = [p for p in processes(plan_in(tmp_path)) if p.service != "decode"]

    assert _differences(compose, fewer) == ["not started by up: decode"]


def test_the_comparison_sees_another_environment(compose: Compose, tmp_path: Path) -> None:
    mutant = copy.deepcopy(compose)
    del mutant["services"]["gateway"]["environment"]["HEALTH_TARGET"]
    mutant["services"]["gateway"]["environment"]["HEALTH_TARGT"] = "health:7300"

    assert _differences(mutant, processes(plan_in(tmp_path))) == [
        "gateway: only in up {'HEALTH_TARGET'}, only in compose {'HEALTH_TARGT'}"
    ]


@pytest.mark.parametrize("service", SERVICES)
def test_every_service_is_built_from_its_own_dockerfile(compose: Compose, service: str) -> None:
    build = compose["services"][service]["build"]

    assert Path(build["context"]) == ROOT
    assert build["dockerfile"] == f"services/{service}/Dockerfile"
    assert compose["services"][service]["healthcheck"]["test"]


@pytest.mark.parametrize("service", SERVICES)
def test_a_dockerfile_copies_what_exists_and_all_that_is_installed(service: str) -> None:
    text = _dockerfile(service)

    sources = {
        source for line in re.findall(r"^COPY (.+) \S+$", text, re.M) for source in line.split()
    }
    assert sources
    assert [source for source in sources if not (ROOT / source).exists()] == []
    installed = set(re.findall(r"(?<=\s)\./(\S+)", text))
    assert installed == _needed_folders(service)
    assert installed <= sources, "installs a folder that it does not copy"


@pytest.mark.parametrize("service", SERVICES)
def test_a_dockerfile_runs_the_module_that_up_runs(service: str) -> None:
    text = _dockerfile(service)

    assert json.loads(re.findall(r"^CMD (.+)$", text, re.M)[-1]) == ["python", "-m", service]
    assert re.search(r"(-c|--constraint) tools/(requirements|constraints)\.txt", text)
    assert re.search(r"^USER (?!root)", text, re.M), "runs as root"


@pytest.mark.parametrize("service", SERVICES)
def test_a_service_may_write_into_its_volumes(compose: Compose, service: str) -> None:
    text = _dockerfile(service)

    mounts = compose["services"][service]["volumes"]
    targets = [mount["target"] for mount in mounts if mount["type"] == "volume"]
    assert targets
    # A new volume takes the owner of the folder in the image; a missing one would belong to root.
    assert [target for target in targets if target not in text] == []
    assert "--uid 10001" in text, "volumes are shared: every image needs the same user"


def _dockerfile(service: str) -> str:
    return (ROOT / "services" / service / "Dockerfile").read_text().replace("\\\n", " ")


def _needed_folders(service: str) -> set[str]:
    """The service's folder and those of the members that it needs, directly or not."""
    waiting, needed = [f"services/{service}"], set[str]()
    while waiting:
        folder = waiting.pop()
        if folder in needed:
            continue
        needed.add(folder)
        project = tomllib.loads((ROOT / folder / "pyproject.toml").read_text())["project"]
        for requirement in project["dependencies"]:
            if requirement.startswith("millrace-"):
                name = requirement.removeprefix("millrace-")
                waiting.append("proto" if name == "proto" else f"libs/{name}")
    return needed


def _differences(compose: Compose, started: list[Process]) -> list[str]:
    described = compose["services"]
    names = {process.service for process in started}
    found = [f"missing in compose: {name}" for name in sorted(names - set(described))]
    found += [f"not started by up: {name}" for name in sorted(set(described) - names)]
    for process in started:
        if process.service not in described or process.probe is not None:
            continue  # the official server images have settings of their own
        in_up = set(process.env) - LOCAL_ONLY
        in_compose = set(described[process.service]["environment"])
        if in_up != in_compose:
            found.append(
                f"{process.service}: only in up {in_up - in_compose or ''},"
                f" only in compose {in_compose - in_up or ''}"
            )
    return found


def _config(file: Path, env: dict[str, str], *options: str) -> subprocess.CompletedProcess[str]:
    binary = Path(sys.executable).parent / "docker-compose"
    return subprocess.run(
        [str(binary), "-f", str(file), "config", *options],
        capture_output=True,
        text=True,
        env={"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/"), **env},
        check=False,
    )
