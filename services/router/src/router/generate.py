"""One request over the cluster: choose, prefill, decode, and carry on when a worker is lost.

Invariants: the tokens that come out are one unbroken greedy-equal sequence whatever happens on the
way (after a loss the prompt plus the tokens so far are computed again elsewhere); each KV offer is
used at most once; usage is counted from the original request, so nothing is counted twice.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import ExitStack, aclosing
from dataclasses import dataclass, replace
from typing import Any

from dynamo._core import Context
from opentelemetry import context as otel_context
from opentelemetry import trace

import observe
from router.domain import FinishReason, Generation, Path, Tokens, Usage
from router.errors import (
    DeadlineExceeded,
    GenerationFailed,
    InvalidRequest,
    NoWorkers,
    RequestCancelled,
    WorkerFailed,
)
from router.metrics import ATTEMPTS, MIGRATIONS
from router.pick import is_prefill_local, pick_decode
from router.sessions import Sessions
from router.settings import RouterSettings
from router.workers import Kind, Workers

log = observe.get_logger(__name__)

NO_WORKER_POLL_S = 0.1
FINISH_REASONS: dict[str, FinishReason] = {"stop": "stop", "eos": "stop", "length": "length"}


@dataclass(frozen=True)
class Call:
    """One call to a worker that is not over."""

    worker_id: int
    call_id: str
    context: Any


class Run:
    """One request while it is served; `cancel` may be called at any moment."""

    def __init__(
        self, generation: Generation, workers: Workers, sessions: Sessions, settings: RouterSettings
    ) -> None:
        self.generation = generation
        self.usage = Usage(prompt_tokens=len(generation.prompt))
        self.path = Path()
        self._workers = workers
        self._sessions = sessions
        self._settings = settings
        self._emitted: list[int] = []
        self._call: Call | None = None
        self._cancelled = asyncio.Event()
        self.on_first_token: Callable[[], None] = lambda: None
        self._attempt = 0
        self._failures = 0
        self._has_begun = False
        # Kept by hand: an async generator runs in the context of whoever asks for its next item.
        self._trace_parent = otel_context.get_current()

    def cancel(self) -> None:
        """Stops the request on whichever worker it is."""
        self._cancelled.set()
        self._stop_call()

    @property
    def emitted(self) -> tuple[int, ...]:
        """The tokens of the answer so far."""
        return tuple(self._emitted)

    def retry(self, keep: int, least_temperature: float) -> None:
        """Goes back to the first `keep` tokens; `tokens()` then generates the rest anew.

        What is thrown away was computed but is not part of the answer: it is not billed. A greedy
        request gets `least_temperature`, a seeded one its next seed: else the same would come.
        """
        del self._emitted[keep:]
        self.usage.completion_tokens = keep
        sampling = dict(self.generation.sampling)
        if sampling.get("temperature") == 0:
            sampling["temperature"] = least_temperature
        if sampling.get("seed") is not None:
            sampling["seed"] += 1
        self.generation = replace(self.generation, sampling=sampling)

    async def tokens(self) -> AsyncGenerator[Tokens, None]:
        """All tokens of the answer, the last with its finish reason.

        Whoever closes it early may retry at once: the worker then counts as free again.
        Raises DeadlineExceeded, GenerationFailed, NoWorkers, InvalidRequest or RequestCancelled.
        """
        timer = asyncio.get_running_loop().call_later(
            self.generation.deadline.left_s(), self._stop_call
        )
        async with aclosing(self._over_attempts()) as all_tokens:
            try:
                async for tokens in all_tokens:
                    if tokens.token_ids and not self._has_begun:
                        self._has_begun = True
                        self.on_first_token()
                    self._emitted.extend(tokens.token_ids)
                    self.usage.completion_tokens = len(self._emitted)
                    yield tokens
            finally:
                timer.cancel()
                self._stop_call()

    async def _over_attempts(self) -> AsyncGenerator[Tokens, None]:
        while True:
            try:
                async with aclosing(self._one_attempt()) as attempt:
                    async for tokens in attempt:
                        yield tokens
                        if tokens.finish_reason is not None:
                            return
                self._raise_if_over()
                raise NoWorkers("The worker ended the answer without a finish reason.")
            except WorkerFailed as failure:
                self._note_failure(failure)
                self._raise_if_over()
                self._failures += 1
                if self._failures >= self._settings.max_attempts:
                    raise NoWorkers(
                        f"{self._failures} workers failed one after the other; the last said:"
                        f" {failure}"
                    ) from failure

    async def _one_attempt(self) -> AsyncGenerator[Tokens, None]:
        self._attempt += 1
        remaining = self._remaining()
        if remaining.max_tokens <= 0:
            # The worker was lost between its last token and the word that it was the last.
            yield Tokens((), "length")
            return
        with ExitStack() as occupied:
            kind, worker_id, offer = await self._place(remaining, occupied)
            self.path.decode_worker = worker_id
            if kind == "decode":
                self._sessions.remember(self.generation.session_id, worker_id)
            request = worker_request(remaining, self._settings.model_name)
            if offer is not None:
                request["prefill_result"] = {"disaggregated_params": {"kv_transfer_params": offer}}
            is_first = self._attempt == 1
            async with aclosing(self._stream(kind, worker_id, request, "decode")) as chunks:
                async for chunk in chunks:
                    if is_first and offer is None and (cached := cached_tokens(chunk)) is not None:
                        self.usage.cached_tokens = cached
                    finish = finish_of(chunk)
                    token_ids = tuple(chunk.get("token_ids") or ())
                    if token_ids or finish is not None:
                        yield Tokens(token_ids, finish)

    async def _place(
        self, generation: Generation, occupied: ExitStack
    ) -> tuple[Kind, int, dict[str, Any] | None]:
        """Where the answer is generated, and the offered KV of its prompt if prefill computed it.

        The decode worker counts as occupied from the moment of the choice, until `occupied` closes.
        """
        decode = await self._choose_decode(generation, occupied)
        if decode is None:
            # Without any decode worker a prefill worker answers the whole request.
            self.path.is_prefill_local = True
            return "prefill", self._workers.alive("prefill")[0], None
        worker_id, overlap_blocks = decode
        self.path.is_prefill_local = not self._workers.alive("prefill") or is_prefill_local(
            len(generation.prompt),
            overlap_blocks,
            self._settings.block_tokens,
            self._settings.local_prefill_max_tokens,
        )
        if self.path.is_prefill_local:
            return "decode", worker_id, None
        return "decode", worker_id, await self._prefill(generation)

    async def _choose_decode(
        self, generation: Generation, occupied: ExitStack
    ) -> tuple[int, int] | None:
        """The decode worker and its cached blocks; None when only prefill workers are left."""
        give_up = min(self._settings.no_worker_wait_s, generation.deadline.left_s())
        until = time.monotonic() + give_up
        while True:
            candidates = await self._workers.decode_candidates(generation.prompt)
            chosen = pick_decode(candidates, self._sessions.worker_of(generation.session_id))
            if chosen is not None:
                occupied.enter_context(self._workers.occupied(chosen.worker_id))
                return chosen.worker_id, chosen.overlap_blocks
            if self._workers.alive("prefill"):
                return None
            self._raise_if_over()
            if time.monotonic() >= until:
                raise NoWorkers(
                    f"No worker for {self._settings.model_name} came up within {give_up:.0f} s."
                )
            await asyncio.sleep(NO_WORKER_POLL_S)

    async def _prefill(self, generation: Generation) -> dict[str, Any] | None:
        """Computes the prompt on a prefill worker; None (decode prefills) when none could."""
        request_id = f"{generation.request_id}-{self._attempt}"
        tries = max(1, len(self._workers.alive("prefill")))
        for _ in range(tries):
            self._raise_if_over()
            worker_id = await self._workers.choose_prefill(generation.prompt, request_id)
            if worker_id is None:
                break
            self.path.prefill_worker = worker_id
            # Only the prompt's KV is wanted: the token that comes with it is thrown away.
            bare = replace(generation, max_tokens=1, grammar=None)
            request = worker_request(bare, self._settings.model_name)
            request["extra_args"] = {"kv_handoff": "offer"}
            try:
                offer: dict[str, Any] | None = None
                async for chunk in self._stream("prefill", worker_id, request, "prefill"):
                    result = chunk.get("disaggregated_params") or {}
                    offer = result.get("kv_transfer_params") or offer
                    if self._attempt == 1 and (cached := cached_tokens(chunk)) is not None:
                        self.usage.cached_tokens = cached
                self._raise_if_over()
                if offer is not None:
                    return offer
            except WorkerFailed as failure:
                self._note_failure(failure)
            finally:
                await self._workers.release_prefill(request_id)
        self.path.is_prefill_local = True
        return None

    async def _stream(
        self, kind: Kind, worker_id: int, request: dict[str, Any], step: str
    ) -> AsyncGenerator[dict[str, Any], None]:
        """One call to one worker, inside its own span, stopped by `cancel` and by the deadline."""
        span = observe.tracer().start_span(f"router.{step}", context=self._trace_parent)
        span.set_attributes({"millrace.worker_id": str(worker_id), "millrace.kind": kind})
        metadata: dict[str, str] = {}
        with trace.use_span(span):
            observe.inject(metadata)
        ATTEMPTS.labels(step).inc()
        # Each call has an id of its own: one engine must never see the same id twice.
        call_id = f"{self.generation.request_id}-{step}-{self._attempt}"
        call = Call(worker_id, call_id, Context(call_id, metadata))
        try:
            self._raise_if_over()
            self._call = call
            stream = self._workers.stream(kind, worker_id, request, call.context)
            async with aclosing(stream) as chunks:
                async for chunk in chunks:
                    if chunk.get("finish_reason") is not None:
                        self._call = None
                    yield chunk
            self._call = None
        except (InvalidRequest, WorkerFailed):
            self._call = None
            raise
        finally:
            span.end()

    def _remaining(self) -> Generation:
        """What is still to generate: after a loss the tokens so far are part of the prompt."""
        done = len(self._emitted)
        return replace(
            self.generation,
            prompt=(*self.generation.prompt, *self._emitted),
            max_tokens=self.generation.max_tokens - done,
            min_tokens=max(0, self.generation.min_tokens - done),
            grammar_prefix_tokens=done,
        )

    def _note_failure(self, failure: WorkerFailed) -> None:
        self._workers.note_failure(failure)
        if self._emitted:
            self.path.migrations += 1
            MIGRATIONS.inc()
        log.warning(
            "worker_failed",
            request_id=self.generation.request_id,
            worker_id=failure.worker_id,
            attempt=self._attempt,
            tokens_so_far=len(self._emitted),
            error=str(failure),
        )

    def _raise_if_over(self) -> None:
        if self._cancelled.is_set():
            raise RequestCancelled("The request was cancelled.")
        if self.generation.deadline.has_passed():
            raise DeadlineExceeded("The request's time is over before its answer was complete.")

    def _stop_call(self) -> None:
        """Tells the worker to end the call that is not over, both ways (see `control`)."""
        call, self._call = self._call, None
        if call is not None:
            call.context.stop_generating()
            self._workers.controls.abort(call.worker_id, call.call_id)


def worker_request(generation: Generation, model_name: str) -> dict[str, Any]:
    """Dynamo's PreprocessedRequest (dynamo/common/backend/engine.py, GenerateRequest)."""
    sampling, extra_args = dict(generation.sampling), {}
    if generation.grammar is not None:
        sampling["guided_decoding"] = {"grammar": generation.grammar}
        extra_args["grammar_prefix_tokens"] = generation.grammar_prefix_tokens
    return {
        "token_ids": list(generation.prompt),
        "model": model_name,
        "sampling_options": sampling,
        "stop_conditions": {
            "max_tokens": generation.max_tokens,
            "min_tokens": generation.min_tokens,
            "ignore_eos": generation.ignore_eos,
            "stop_token_ids_hidden": list(generation.stop_token_ids),
        },
        "output_options": {},
        "eos_token_ids": list(generation.stop_token_ids),
        "annotations": [],
        "routing": {"priority": generation.priority},
        "extra_args": extra_args,
    }


def finish_of(chunk: dict[str, Any]) -> FinishReason | None:
    """Why the engine ended, None when it has not. Raises GenerationFailed.

    A request that the engine gave up has {"error": message} in place of a reason; another worker
    would do the same.
    """
    reason = chunk.get("finish_reason")
    if isinstance(reason, dict):
        raise GenerationFailed(str(reason.get("error") or reason))
    return FINISH_REASONS.get(reason or "")


def cached_tokens(chunk: dict[str, Any]) -> int | None:
    """Prompt tokens that a worker took from a cache, when this chunk says so."""
    details = (chunk.get("completion_usage") or {}).get("prompt_tokens_details") or {}
    cached = details.get("cached_tokens")
    return None if cached is None else int(cached)
