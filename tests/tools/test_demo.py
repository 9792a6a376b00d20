"""The demo account through the real admin API: made once, found again, mended when broken."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from launcher import demo, ports
from tests.fixtures.processes import start_service
from tests.fixtures.servers import NatsServer, PostgresServer

ADMIN_KEY = "the-admin-key-of-this-test"
MODEL = "smollm2"


@dataclass(frozen=True)
class Admin:
    """A billing service and the key of its admin API."""

    url: str

    def get(self, path: str) -> list[dict[str, str]]:
        """The rows of a list."""
        headers = {"Authorization": f"Bearer {ADMIN_KEY}"}
        response = httpx.get(f"{self.url}/admin/v1{path}", headers=headers)
        assert response.status_code == 200, response.text
        rows = response.json()["data"]
        assert isinstance(rows, list)
        return rows

    def ensure(self, known_key: str | None = None) -> str:
        """The function under test."""
        return demo.ensure(self.url, ADMIN_KEY, known_key, MODEL)


@pytest.fixture(scope="module")
def admin(
    nats_server: NatsServer,
    postgres_server: PostgresServer,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Admin]:
    """Billing on an empty database."""
    port = ports.free_port()
    env = {
        "NATS_URL": nats_server.url,
        "BILLING_DATABASE_URL": postgres_server.create_database("demo_account"),
        "BILLING_ADMIN_KEY_SHA256": hashlib.sha256(ADMIN_KEY.encode()).hexdigest(),
        "BILLING_HTTP_PORT": str(port),
    }
    log: Path = tmp_path_factory.mktemp("billing") / "billing.log"
    with start_service("billing", env, log=log) as billing:
        billing.wait_ready()
        yield Admin(f"http://127.0.0.1:{port}")
        billing.stop()


def test_the_account_is_made_once(admin: Admin) -> None:
    first = admin.ensure()

    second = admin.ensure(first)

    assert second == first
    assert [team["name"] for team in admin.get("/teams")] == ["demo"]
    assert [price["model"] for price in admin.get("/prices")] == [MODEL]


def test_a_lost_key_is_replaced(admin: Admin) -> None:
    first = admin.ensure()

    assert admin.ensure(None) != first
    assert admin.ensure("not a key at all") != first
    assert len(admin.get("/teams")) == 1


def test_a_revoked_key_is_replaced(admin: Admin) -> None:
    key = admin.ensure()
    headers = {"Authorization": f"Bearer {ADMIN_KEY}"}
    key_id = key.split("-")[1]
    revoked = httpx.delete(f"{admin.url}/admin/v1/keys/{key_id}", headers=headers)
    assert revoked.status_code == 200, revoked.text

    assert admin.ensure(key) != key


def test_a_wrong_admin_key_is_told(admin: Admin) -> None:
    with pytest.raises(demo.DemoRefused, match="401"):
        demo.ensure(admin.url, "wrong", None, MODEL)


def test_an_absent_billing_is_something_to_wait_for() -> None:
    with pytest.raises(demo.BillingAway):
        demo.ensure(f"http://127.0.0.1:{ports.free_port()}", ADMIN_KEY, None, MODEL)
