"""`./tools/up`: starts the whole platform on this machine and says how to talk to it.

In the foreground it stays until Ctrl-C and takes the stack down again; with --detach it returns
when the stack serves, and `./tools/down` ends it. The processes belong to supervisord in both
cases, so a crash of this command leaves a stack that works and that `down` finds.

Invariant: one run folder holds at most one stack; what a crash left there is swept before a new
start.
"""

import argparse
import asyncio
import logging
import shutil
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import structlog

from launcher import bring_up, demo, down, marks, model, supervise
from launcher.bring_up import StackFailed
from launcher.ports import NoFreePorts
from launcher.processes import HOST, Plan, Process, Shape, port_names, processes
from launcher.progress import Progress
from launcher.runenv import ROOT, RunDir, RunDirUnusable, read_env, write_env
from launcher.servers import ServerUnusable
from launcher.supervise import Supervisor, SupervisorGone

STARTS_WITH = """\
URL        {url}/v1
API key    {key}
Logs       {logs}
Addresses  {env}

Paste this:

curl -s {url}/v1/chat/completions -H 'Authorization: Bearer {key}' \\
  -H 'Content-Type: application/json' \\
  -d '{{"model": "{model}", "temperature": 0, "max_tokens": 32,
       "messages": [{{"role": "user", "content": "What is the capital of France?"}}]}}'
"""
STOPPED_BY_CTRL_C = 130
WATCH_EVERY_S = 1.0
EXPECTED_FAILURES = (
    NoFreePorts,
    RunDirUnusable,
    ServerUnusable,
    StackFailed,
    SupervisorGone,
    demo.DemoRefused,
    down.StillThere,
    model.ModelNotBuilt,
)


class AlreadyRunning(RuntimeError):
    """The run folder's stack is up."""


def main() -> int:
    """The command."""
    args = _arguments()
    # The launcher follows streams of processes that are still starting; their absence is no news.
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    progress = Progress()
    run: RunDir | None = None
    try:
        run = RunDir.at(args.run_dir)
        with _signals_as_ctrl_c():
            shape = Shape(model=args.model, prefill=args.prefill, decode=args.decode)
            with run.lock():
                plan, running = start_stack(run, shape, args.ports_from, progress)
                _finish(plan, running, progress)
            if args.detach:
                print("It runs in the background; ./tools/down stops it.")
                return 0
            print("Ctrl-C stops it.", flush=True)
            return _watch(run, progress)
    except AlreadyRunning as error:
        print(f"up: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nstopping", flush=True)
        return _take_down(run, STOPPED_BY_CTRL_C if args.detach else 0)
    except EXPECTED_FAILURES as error:
        print(f"up: {error}", file=sys.stderr)
        return 1 if isinstance(error, RunDirUnusable) else _take_down(run, 1)


def start_stack(
    run: RunDir,
    shape: Shape,
    ports_from: int | None,
    progress: Progress,
    only: Sequence[str] | None = None,
) -> tuple[Plan, list[Process]]:
    """Starts the processes (of these names only, when given) and returns without waiting for them.

    Raises AlreadyRunning, and what `EXPECTED_FAILURES` lists.
    """
    _refuse_second(run)
    if marks.marked_pids(run.root):
        _, swept = down.bring_down(run)
        progress.step(f"swept up {swept} processes that a crash had left")
    plan = Plan(
        run=run,
        shape=shape,
        ports=run.assign_ports(port_names(shape), ports_from),
        secrets=run.known_secrets(),
        model_dir=model.ensure(shape.model, progress=progress.step),
    )
    chosen = [p for p in processes(plan) if only is None or p.name in only]
    _prepare(plan)
    progress.step(f"starting {len(chosen)} processes, logs in {run.root / 'logs'}")
    supervisor_of(plan).start(chosen)
    return plan, chosen


def supervisor_of(plan: Plan) -> Supervisor:
    """The supervisord of a planned or running stack."""
    return Supervisor(plan.run, plan.ports["supervisor"], plan.secrets["SUPERVISOR_PASSWORD"])


def _refuse_second(run: RunDir) -> None:
    pid = supervise.running_pid(run)
    if pid is not None:
        url = f"http://{HOST}:{run.known_ports().get('gateway.http')}"
        raise AlreadyRunning(
            f"a stack is running in {run.root} (supervisord pid {pid}, {url});"
            " ./tools/down stops it, --run-dir starts another one"
        )


def _prepare(plan: Plan) -> None:
    # A worker of the last start that is still listed there would be sent requests.
    shutil.rmtree(plan.discovery, ignore_errors=True)
    plan.discovery.mkdir()
    plan.mooncake_config.parent.mkdir(exist_ok=True)
    plan.nats.prepare()
    plan.postgres.prepare()


def _finish(plan: Plan, running: Sequence[Process], progress: Progress) -> None:
    """Waits until all serves, makes the demo account meanwhile, and says how to use it."""
    key = asyncio.run(_come_up(plan, running, progress))
    url = f"http://{plan.address('gateway.http')}"
    write_env(
        plan.run.env,
        {
            "MILLRACE_URL": url,
            "MILLRACE_API_KEY": key,
            "MILLRACE_ADMIN_KEY": plan.secrets["ADMIN_KEY"],
            "MILLRACE_ADMIN_URL": f"http://{plan.address('billing.http')}",
        },
    )
    print(
        "\n"
        + STARTS_WITH.format(
            url=url, key=key, logs=plan.run.root / "logs", env=plan.run.env, model=plan.shape.model
        ),
        flush=True,
    )


async def _come_up(plan: Plan, running: Sequence[Process], progress: Progress) -> str:
    write_env(plan.run.internal_env, _internal_addresses(plan))
    database = asyncio.create_task(_make_database(plan))
    key = asyncio.create_task(_make_demo(plan))
    try:
        supervisor = supervisor_of(plan)
        await bring_up.until_serving(plan, running, supervisor, progress, beside=[database, key])
        return await key
    finally:
        for task in (database, key):
            task.cancel()
        await asyncio.gather(database, key, return_exceptions=True)


def _internal_addresses(plan: Plan) -> dict[str, str]:
    addresses = {
        "NATS_URL": plan.nats.url,
        "BILLING_DATABASE_URL": plan.postgres.url(),
        "BILLING_TARGET": plan.address("billing.grpc"),
        "HEALTH_TARGET": plan.address("health.grpc"),
        "KVTIER_TARGET": plan.address("kvtier.grpc"),
        "ROUTER_URL": f"http://{plan.address('router.http')}",
        "MODEL_NAME": plan.shape.model,
        "MODEL_DIR": str(plan.model_dir),
        "MOONCAKE_CONFIG_PATH": str(plan.mooncake_config),
        "DYN_FILE_KV": str(plan.discovery),
        "TRACE_DIR": str(plan.run.root / "traces"),
    }
    for name, port in plan.ports.items():
        process, kind = name.partition(".")[::2]
        label = process.upper().replace("-", "_")
        if kind == "metrics":
            addresses[f"{label}_METRICS_URL"] = f"http://{HOST}:{port}/metrics"
        elif kind == "control":
            addresses[f"{label}_TARGET"] = f"{HOST}:{port}"
    return addresses


async def _make_database(plan: Plan) -> None:
    """Before billing can do anything; billing waits for it."""
    while not await asyncio.to_thread(plan.postgres.is_ready):
        await asyncio.sleep(bring_up.POLL_S)
    await asyncio.to_thread(plan.postgres.create_database)


async def _make_demo(plan: Plan) -> str:
    """The demo key; tried until billing answers, `until_serving` sets the deadline."""
    known_key = read_env(plan.run.env).get("MILLRACE_API_KEY")
    admin_url = f"http://{plan.address('billing.http')}"
    while True:
        try:
            return await asyncio.to_thread(
                demo.ensure, admin_url, plan.secrets["ADMIN_KEY"], known_key, plan.shape.model
            )
        except demo.BillingAway:
            await asyncio.sleep(bring_up.POLL_S)


def _watch(run: RunDir, progress: Progress) -> int:
    """Stays while the stack runs; somebody else may take it down."""
    while supervise.running_pid(run) is not None:
        time.sleep(WATCH_EVERY_S)
    if marks.marked_pids(run.root):
        progress.problem("up: supervisord is gone: taking down what it left")
        return _take_down(run, 1)
    print("the stack was stopped")
    return 0


def _take_down(run: RunDir | None, exit_code: int) -> int:
    if run is None:
        return exit_code
    # A second Ctrl-C would leave half of it behind.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        down.bring_down(run)
    except down.StillThere as error:
        print(f"up: {error}", file=sys.stderr)
        return 1
    print("all processes have stopped")
    return exit_code


@contextmanager
def _signals_as_ctrl_c() -> Iterator[None]:
    """SIGTERM and a closed terminal end `up` as Ctrl-C does."""

    def interrupt(number: int, frame: FrameType | None) -> None:  # noqa: ARG001  # signal's shape
        raise KeyboardInterrupt

    numbers = (signal.SIGTERM, signal.SIGHUP)
    before = [signal.signal(number, interrupt) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="./tools/up", description="Starts the local stack.")
    parser.add_argument("--detach", action="store_true", help="return when the stack serves")
    parser.add_argument("--prefill", type=_at_least_one, default=1, metavar="N", help="workers")
    parser.add_argument("--decode", type=_at_least_one, default=1, metavar="N", help="workers")
    parser.add_argument("--model", default="smollm2", choices=sorted(model.MODELS))
    parser.add_argument("--run-dir", type=Path, default=ROOT / ".run", help="default: .run")
    parser.add_argument(
        "--ports-from", type=int, metavar="BASE", help="take ports from here up, the URL's first"
    )
    return parser.parse_args()


def _at_least_one(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"expected at least 1, got {number}")
    return number


if __name__ == "__main__":
    sys.exit(main())
