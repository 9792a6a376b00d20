"""A real router over scripted engines, for one wire format.

The model folder is smollm2-glm's tokenizer (with every family's tokens where the cases want them)
and its chat template, which here also says where the answer starts: `answer_start` in
`chat_template_kwargs` is fresh, in_reasoning or after_reasoning.
"""

import json
import shutil
import sys
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from launcher import model, ports
from tests.fixtures import dynamo
from tests.fixtures.processes import ROOT, ServiceProcess, start_service
from tests.fixtures.wait import until_sync
from tests.toolcall.vocabulary import vocabulary

MODEL_NAME = "scripted"
GENERATION_PROMPT = "{%- if add_generation_prompt %}"
ANSWER_START = """{%- if add_generation_prompt %}
{{- '<|assistant|>' }}
{%- if answer_start == 'in_reasoning' %}{{- '<think>' }}
{%- elif answer_start == 'after_reasoning' %}{{- '<think></think>\\n' }}
{%- else %}{{- '\\n' }}{%- endif %}
{%- endif %}
"""
STARTS_WITHIN_S = 60.0


@dataclass
class ScriptedCluster:
    """One router and its scripted workers."""

    format: str
    folder: Path
    nats_url: str
    has_family_tokens: bool
    decode_workers: int = 1
    url: str = ""
    processes: list[ServiceProcess] = field(default_factory=list)

    def start(self) -> None:
        """Starts everything and returns when the router sees its workers."""
        self.folder.mkdir(parents=True, exist_ok=True)
        model_dir = write_model_folder(self.folder / "model", self.has_family_tokens)
        port = ports.free_port()
        self.url = f"http://127.0.0.1:{port}"
        env = {
            **dynamo.environment(self.nats_url, self.folder, f"test-{port}"),
            "PYTHONPATH": str(ROOT / "tools"),
            "ROUTER_HTTP_PORT": str(port),
            "ROUTER_MODEL_DIR": str(model_dir),
            "ROUTER_MODEL_NAME": MODEL_NAME,
            "ROUTER_TOOL_FORMAT": self.format,
        }
        module = "tests.toolcall.scripted_engine"
        command = [sys.executable, "-m", module, "decode", str(self.folder)]
        self.processes = [
            ServiceProcess(f"decode-{index}", command, env, self.folder / f"decode-{index}.log")
            for index in range(self.decode_workers)
        ]
        self.processes.append(start_service("router", env, log=self.folder / "router.log"))
        try:
            until_sync(self._is_ready, within_s=STARTS_WITHIN_S, what=f"router of {self.format}")
        except BaseException:
            self.stop()
            raise

    def requests(self, run: str) -> list[dict]:
        """What the engines were sent for this run."""
        lines = (self.folder / f"run.{run}").read_text().splitlines()
        return [json.loads(line) for line in lines if line != "died"]

    def stop(self) -> None:
        """Ends every process."""
        for process in reversed(self.processes):
            process.kill()

    def _is_ready(self) -> bool:
        for process in self.processes:
            assert process.exit_code is None, f"{process.name} ended:\n{process.tail()}"
        try:
            body = httpx.get(f"{self.url}/healthz", trust_env=False).json()
        except httpx.HTTPError:
            return False
        return body["decode_workers"] == self.decode_workers


def write_model_folder(folder: Path, has_family_tokens: bool) -> Path:
    """A model folder without weights."""
    source = model.ensure("smollm2-glm")
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("tokenizer_config.json", "generation_config.json", "config.json"):
        shutil.copy(source / name, folder / name)
    content = vocabulary(has_family_tokens=has_family_tokens).content
    (folder / "tokenizer.json").write_text(json.dumps(content, ensure_ascii=False))
    template = (source / "chat_template.jinja").read_text()
    before, found, _ = template.partition(GENERATION_PROMPT)
    assert found, "the template has no generation prompt"
    (folder / "chat_template.jinja").write_text(before + ANSWER_START)
    return folder
