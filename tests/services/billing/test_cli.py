"""The command line against the real admin API, as an operator types it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.services.billing.world import Billing, World, usage_event

pytestmark = pytest.mark.engine  # a Python process for every command is slow

MILLRACE = Path(sys.executable).parent / "millrace"


def _millrace(
    *arguments: str, env: dict[str, str], cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(MILLRACE), *arguments],
        env={"PATH": os.environ["PATH"], "COLUMNS": "120", **env},
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def _env(world: World, billing: Billing) -> dict[str, str]:
    return {"MILLRACE_ADMIN_URL": billing.http_url, "MILLRACE_ADMIN_KEY": world.admin_key}


async def test_an_operator_sets_a_team_up_and_reads_its_usage(world: World) -> None:
    billing = await world.start()
    env = _env(world, billing)

    team = json.loads(_millrace("teams", "create", "acme", "--json", env=env).stdout)
    made = _millrace("keys", "create", "acme", "--name", "ci", env=env)
    priced = _millrace(
        *("prices", "set", "org/model"),
        *("--input", "0.15", "--cached-input", "0.05", "--output", "0.6"),
        env=env,
    )
    await world.publish([usage_event(team["team_id"], model="org/model")])
    await world.until_settled()
    used = _millrace("usage", "acme", env=env)
    used_json = json.loads(_millrace("usage", team["team_id"], "--json", env=env).stdout)
    keys = json.loads(_millrace("keys", "list", "acme", "--json", env=env).stdout)["data"]
    revoked = _millrace("keys", "revoke", keys[0]["key_id"], env=env)
    listed = _millrace("keys", "list", "acme", env=env)

    key = made.stdout.splitlines()[0]
    assert key.startswith(f"mr-{keys[0]['key_id']}-")
    assert "cannot be shown again" in made.stdout
    assert "org/model costs this from" in priced.stdout
    assert "0.0000152" in used.stdout
    assert used_json["total_cost_usd"] == "0.0000152"
    assert "Revoked key" in revoked.stdout
    assert listed.stdout.splitlines()[1].split()[:3] == [keys[0]["key_id"], "ci", "yes"]
    assert key not in listed.stdout
    for command in (("teams", "list"), ("prices", "list")):
        assert _millrace(*command, env=env).returncode == 0
        assert json.loads(_millrace(*command, "--json", env=env).stdout)["data"]


async def test_the_nearest_run_env_names_the_platform(world: World, tmp_path: Path) -> None:
    billing = await world.start()
    below = tmp_path / "a" / "b"
    below.mkdir(parents=True)
    (tmp_path / ".run").mkdir()
    lines = [f"export {name}='{value}'" for name, value in _env(world, billing).items()]
    (tmp_path / ".run" / "env").write_text("# made by up\n" + "\n".join(lines) + "\n")

    created = _millrace("teams", "create", "acme", env={}, cwd=below)

    assert created.returncode == 0, created.stderr
    assert "acme" in created.stdout


async def test_mistakes_are_explained_on_standard_error(world: World, tmp_path: Path) -> None:
    billing = await world.start()
    env = _env(world, billing)
    _millrace("teams", "create", "acme", env=env)
    wrong_key = {**env, "MILLRACE_ADMIN_KEY": "wrong"}
    nobody = {**env, "MILLRACE_ADMIN_URL": "http://127.0.0.1:1"}
    price = ("prices", "set", "m", "--input", "x", "--cached-input", "0", "--output", "0")
    cases = [
        (("teams", "create", "acme"), env, "exists already"),
        (("keys", "create", "globex"), env, "no team has the id or name 'globex'"),
        (("keys", "revoke", "ffffffff"), env, "No key has the id"),
        (price, env, "input_usd_per_mtok"),
        (("teams", "list"), wrong_key, "needs the admin key"),
        (("teams", "list"), nobody, "does not answer at http://127.0.0.1:1"),
        (("teams", "list"), {}, "MILLRACE_ADMIN_URL and MILLRACE_ADMIN_KEY not set"),
    ]

    for arguments, environment, words in cases:
        done = _millrace(*arguments, env=environment, cwd=tmp_path)
        assert done.returncode == 1, arguments
        assert done.stdout == ""
        assert words in done.stderr
        assert "Traceback" not in done.stderr
