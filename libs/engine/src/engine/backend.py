"""The Dynamo backend of a worker: one vLLM engine, tokens in and tokens out.

Invariants: an abort reaches the engine as soon as it is safe; a request on a dead engine ends with
an error that lets the router move it to another worker, one whose grammar failed with an error that
does not; the last chunk carries exact token counts.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any

from dynamo.common.backend import EngineConfig, LLMEngine, LlmRegistration
from dynamo.common.backend.health_check import build_health_check_payload
from dynamo.common.backend.publisher import ComponentSnapshot, ZmqSource
from dynamo.common.utils.engine_response import normalize_finish_reason
from dynamo.llm.exceptions import EngineShutdown, InvalidArgument
from opentelemetry.trace import Span

import observe
from engine.control import WorkerControl
from engine.counters import stat_logger
from engine.engine_args import async_engine_args
from engine.errors import AbortedBeforeItCame, EngineNotStarted, HookMissing, WorkerDraining
from engine.grammars import PREFIX_KEY, missing_hooks
from engine.membership import Membership
from engine.requests import offered_kv, sampling_params, wants_offer
from engine.work import Work

log = observe.get_logger(__name__)

ABORT_AGAIN_S = 0.05


class VllmBackend(LLMEngine):  # type: ignore[misc]  # Dynamo's classes carry no types here
    """One vLLM AsyncLLM behind Dynamo's worker."""

    def __init__(self, work: Work, membership: Membership) -> None:
        self.work = work
        self.membership = membership
        self._llm: Any = None
        self._snapshots: Any = None
        self._defaults: Mapping[str, Any] = {}
        self._kv_events = f"ipc://{work.ipc_folder}/kv-events"

    @classmethod
    async def from_args(cls, argv: list[str] | None = None) -> Any:
        """Not used: `engine.serve` builds the backend from its settings."""
        raise EngineNotStarted(f"start a worker with engine.serve, not with arguments {argv}")

    async def start(self, worker_id: int) -> EngineConfig:
        """Starts vLLM and, once it is up, membership; requests may come as soon as this returns."""
        from vllm.v1.engine.async_llm import AsyncLLM

        # Dynamo's worker has just put its own handlers on the root logger.
        observe.configure_logs(self.work.role, self.work.instance)
        args = async_engine_args(self.work.settings, self.work.role, self._kv_events)
        if missing := missing_hooks():
            raise HookMissing(f"vLLM's plugins did not install {missing}; its log says why")
        self._llm = AsyncLLM.from_engine_args(
            args, stat_loggers=[stat_logger(self.work.counters, self._publish_load)]
        )
        config = self._llm.vllm_config
        self._defaults = config.model_config.get_diff_sampling_param() or {}
        self.work.counters.kv_blocks_total = config.cache_config.num_gpu_blocks or 0
        control = WorkerControl(self.work, self.abort_request, self.membership.state_changed)
        await self.membership.enter(worker_id, control, self.is_engine_dead)
        log.info(
            "engine_ready",
            role=self.work.role,
            worker_id=worker_id,
            kv_blocks=self.work.counters.kv_blocks_total,
            block_tokens=config.cache_config.block_size,
        )
        return EngineConfig(
            model=str(self.work.settings.model_dir),
            served_model_name=self.work.settings.model_name,
            llm=LlmRegistration(
                context_length=config.model_config.max_model_len,
                kv_cache_block_size=config.cache_config.block_size,
                total_kv_blocks=self.work.counters.kv_blocks_total,
                max_num_seqs=config.scheduler_config.max_num_seqs,
                max_num_batched_tokens=config.scheduler_config.max_num_batched_tokens,
            ),
        )

    async def generate(
        self, request: dict[str, Any], context: Any
    ) -> AsyncIterator[dict[str, Any]]:
        """Yields token chunks; an offered prompt ends with `disaggregated_params`."""
        from vllm.exceptions import VLLMClientError
        from vllm.v1.engine.exceptions import EngineDeadError

        if self.work.is_draining:
            raise EngineShutdown(
                "this worker is draining; choose another one"
            ) from WorkerDraining()
        if self._llm is None:
            raise EngineShutdown("the engine of this worker is not up") from EngineNotStarted()
        if self.work.running.was_aborted_early(context.id()):
            log.info("request_aborted", request_id=context.id(), before_it_came=True)
            raise EngineShutdown("this request was aborted before it came") from (
                AbortedBeforeItCame(context.id())
            )
        span = observe.tracer().start_span(
            f"{self.work.role}.generate", context=observe.extract(dict(context.metadata.items()))
        )
        try:
            with self.work.running.entered(context.id(), pulls_kv=offered_kv(request) is not None):
                async for chunk in self._chunks(request, context, span):
                    yield chunk
        except EngineDeadError as error:
            self.membership.engine_died(error)
            raise EngineShutdown(f"the vLLM engine of this worker died: {error}") from error
        except (ValueError, VLLMClientError) as error:
            # vLLM's validation errors are no ValueError (vllm/exceptions.py, 0.32).
            raise InvalidArgument(str(error)) from error
        finally:
            span.end()

    async def _chunks(
        self, request: dict[str, Any], context: Any, span: Span
    ) -> AsyncIterator[dict[str, Any]]:
        from vllm.inputs import TokensPrompt

        prompt: list[int] = list(request["token_ids"])
        params = sampling_params(
            request, self.work.role, self._defaults, self.work.settings.max_model_len
        )
        offers, generated, cached = wants_offer(request, self.work.role), 0, 0
        running = self.work.running.get(context.id())
        assert running is not None
        priority = -int((request.get("routing") or {}).get("priority") or 0)
        async for output in self._llm.generate(
            TokensPrompt(prompt_token_ids=prompt), params, context.id(), priority=priority
        ):
            cached = output.num_cached_tokens if output.num_cached_tokens is not None else cached
            for completion in output.outputs:
                if completion.token_ids and not running.has_first_token.is_set():
                    span.add_event("first_token")
                    running.has_first_token.set()
                generated += len(completion.token_ids)
                chunk: dict[str, Any] = {
                    "token_ids": list(completion.token_ids),
                    "index": completion.index,
                }
                if completion.finish_reason:
                    chunk["finish_reason"] = _finish_reason(completion.finish_reason, params)
                    chunk["completion_usage"] = _usage(len(prompt), generated, cached)
                if offers and output.kv_transfer_params is not None:
                    chunk["disaggregated_params"] = {
                        "kv_transfer_params": output.kv_transfer_params
                    }
                yield chunk
        span.set_attributes(
            {
                "millrace.request_id": context.id(),
                "millrace.instance": self.work.instance,
                "gen_ai.usage.input_tokens": len(prompt),
                "gen_ai.usage.output_tokens": generated,
                "millrace.cached_tokens": cached,
                "millrace.pulls_kv": offered_kv(request) is not None,
                "millrace.offers_kv": offers,
            }
        )

    async def abort(self, context: Any) -> None:
        """Dynamo calls this when the client is gone or the router cancelled."""
        await self.abort_request(context.id())

    async def abort_request(self, request_id: str) -> bool:
        """Stops a request as soon as it is safe; False when it is not running here (yet)."""
        running = self.work.running.get(request_id)
        if running is None or self._llm is None:
            self.work.running.abort_early(request_id)
            return False
        await running.wait_until_abortable()
        # Repeated until the request is gone: vLLM knows a request only once it was handed over, and
        # forgets an abort that comes before (vllm/v1/engine/async_llm.py, abort).
        while self.work.running.get(request_id) is running and self._llm is not None:
            await self._llm.abort(request_id)
            await asyncio.sleep(ABORT_AGAIN_S)
        log.info("request_aborted", request_id=request_id)
        return True

    def is_engine_dead(self) -> bool:
        """True when vLLM's EngineCore is gone although this process lives."""
        return self._llm is not None and bool(self._llm.errored)

    async def is_quiescent(self) -> bool:
        """Polled by Dynamo on prefill while it drains: no request is running."""
        return len(self.work.running) == 0

    async def cleanup(self) -> None:
        """Leaves the registry first, so that nobody is sent here any more, then stops vLLM."""
        await self.membership.leave()
        llm, self._llm = self._llm, None
        if llm is not None:
            llm.shutdown()

    async def kv_event_sources(self) -> list[Any]:
        """vLLM publishes its KV events itself; Dynamo forwards them to the router over NATS."""
        return [ZmqSource(endpoint=self._kv_events, dp_rank=0)]

    def component_metrics_dp_ranks(self) -> list[int]:
        """One data-parallel rank a worker."""
        return [0]

    def attach_snapshot_publisher(self, publisher: Any) -> None:
        """Keeps Dynamo's publisher of load snapshots, which the router's choice reads."""
        self._snapshots = publisher

    async def health_check_payload(self) -> Any:
        """What Dynamo's canary sends through `generate` when it is enabled."""
        return build_health_check_payload(bos_token_id=1)

    def _publish_load(self) -> None:
        if self._snapshots is None or not self.work.counters.kv_blocks_total:
            return
        self._snapshots.publish(
            0,
            ComponentSnapshot(
                kv_used_blocks=self.work.counters.kv_blocks_used,
                kv_total_blocks=self.work.counters.kv_blocks_total,
                gpu_cache_usage=self.work.counters.kv_blocks_used
                / self.work.counters.kv_blocks_total,
                dp_rank=0,
            ),
        )


def _finish_reason(reason: str, params: Any) -> str:
    """vLLM's finish reason as Dynamo takes it; it makes {"error": message} of "error: message".

    vLLM's own "error" says no more. Raises EngineShutdown where another worker may do better.
    """
    if reason != "error":
        return str(normalize_finish_reason(reason))
    if params.structured_outputs is None:
        raise EngineShutdown("the engine of this worker gave the request up")
    behind = params.extra_args[PREFIX_KEY]
    return (
        "error: the engine could not follow the grammar of this answer"
        + (f" behind its first {behind} tokens" if behind else "")
        + "; the worker's log says why"
    )


def _usage(prompt_tokens: int, completion_tokens: int, cached_tokens: int) -> dict[str, Any]:
    return {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": completion_tokens,
        "total_tokens": prompt_tokens + completion_tokens,
        "prompt_tokens_details": {"cached_tokens": cached_tokens},
    }
