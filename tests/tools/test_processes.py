"""The list of processes: what `up` passes to a service is what the service reads."""

from collections.abc import Callable
from pathlib import Path

import pytest
from pydantic_settings import BaseSettings

from billing.settings import Settings as BillingSettings
from engine.settings import EngineSettings
from gateway.settings import Settings as GatewaySettings
from health.settings import Settings as HealthSettings
from kvtier.settings import Settings as KvtierSettings
from launcher.processes import Shape, port_names, processes
from launcher.runenv import MARK
from observe import ObserveSettings
from router.settings import RouterSettings
from tests.tools.plans import plan_in

SETTINGS: dict[str, type[BaseSettings]] = {
    "billing": BillingSettings,
    "gateway": GatewaySettings,
    "health": HealthSettings,
    "kvtier": KvtierSettings,
    "router": RouterSettings,
    "prefill": EngineSettings,
    "decode": EngineSettings,
}
READ_BY_LIBRARIES = ("DYN_", "VLLM_", "OMP_", "HF_", "MC_", "UCX_", "NATS_SERVER", "PYTHONHASHSEED")
LOCAL = (MARK, "SPT_NOENV")


@pytest.mark.parametrize("service", SETTINGS)
def test_a_service_reads_every_variable_that_up_passes(service: str, tmp_path: Path) -> None:
    process = next(p for p in processes(plan_in(tmp_path)) if p.service == service)

    read = _names(SETTINGS[service]) | _names(ObserveSettings)
    unread = {
        name
        for name in process.env
        if name not in read and name not in LOCAL and not name.startswith(READ_BY_LIBRARIES)
    }
    assert unread == set()


@pytest.mark.parametrize("service", SETTINGS)
def test_a_service_accepts_the_values_that_up_passes(
    service: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = next(p for p in processes(plan_in(tmp_path)) if p.service == service)
    for name, value in process.env.items():
        monkeypatch.setenv(name, value)
    make: Callable[[], BaseSettings] = SETTINGS[service]

    settings = make()

    assert settings.model_dump()["nats_url"] == process.env["NATS_URL"]


def test_every_process_carries_the_mark_of_its_run_folder(tmp_path: Path) -> None:
    plan = plan_in(tmp_path, Shape(prefill=2, decode=3))

    started = processes(plan)

    assert {process.env[MARK] for process in started} == {str(tmp_path.resolve())}
    assert [p.name for p in started if p.service == "prefill"] == ["prefill-1", "prefill-2"]
    assert [p.name for p in started if p.service == "decode"] == [
        "decode-1",
        "decode-2",
        "decode-3",
    ]


def test_no_two_processes_share_a_port(tmp_path: Path) -> None:
    shape = Shape(prefill=2, decode=2)
    plan = plan_in(tmp_path, shape)

    assert len(set(port_names(shape))) == len(port_names(shape))
    own = [p.env["OBSERVE_METRICS_PORT"] for p in processes(plan) if p.probe is None]
    assert len(set(own)) == len(own)


def test_no_secret_stands_in_a_command_line(tmp_path: Path) -> None:
    plan = plan_in(tmp_path)
    marked = {name: f"secret-{name}" for name in plan.secrets}
    plan = type(plan)(plan.run, plan.shape, plan.ports, marked, plan.model_dir)

    for process in processes(plan):
        assert not any("secret-" in word for word in process.command), process.name
    billing = next(p for p in processes(plan) if p.service == "billing")
    assert "secret-ADMIN_KEY" not in str(billing.env), "billing is to know the hash only"


def _names(settings: type[BaseSettings]) -> set[str]:
    prefix = settings.model_config.get("env_prefix", "")
    return {
        str(field.validation_alias or f"{prefix}{name.upper()}")
        for name, field in settings.model_fields.items()
    }
