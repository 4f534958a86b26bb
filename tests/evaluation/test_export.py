"""A checkpoint as a Hugging Face directory with a model card, and its upload to a hub that is a process of the test's."""

import base64
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
import yaml
from omegaconf import OmegaConf
from transformers import AutoModelForCausalLM, AutoTokenizer

from verl_trgrpo.cli.main import main
from verl_trgrpo.runs.compose import compose
from verl_trgrpo.tiny.model import load
from verl_trgrpo.tiny.puzzles import CHECKPOINT


@pytest.fixture
def run_dir(tmp_path):
    """What the single-file trainer, or veRL with hf_model among its contents, leaves behind: two checkpoints."""
    directory = tmp_path / "run"
    model, tokenizer = load(CHECKPOINT)
    for step in (5, 10):
        model.save_pretrained(directory / f"global_step_{step}")
        tokenizer.save_pretrained(directory / f"global_step_{step}")
    (directory / "global_step_10/optimizer.pt").write_bytes(b"not for others")
    config = compose(
        "kk_quickstart", ["actor_rollout_ref.model.path=org/tiny", "data.train_files=/home/me/data/train.parquet"]
    )
    OmegaConf.save(config.config, directory / "config.yaml")
    (directory / "run.json").write_text(
        json.dumps({"algorithm": "tr_grpo", "versions": {"verl": "0.9.1"}, "commit": "abc"})
    )
    steps = [
        {"step": 0, "data": {"val-core/kk/acc/mean@1": 0.25}},
        {"step": 10, "data": {"val-core/kk/acc/mean@1": 0.75}},
    ]
    (directory / "metrics-1.jsonl").write_text("".join(json.dumps(step) + "\n" for step in steps))
    return directory


def card_of(directory):
    _, head, text = (directory / "README.md").read_text().split("---\n", 2)
    return yaml.safe_load(head), text


def test_the_latest_checkpoint_and_a_card_from_the_run_s_record(run_dir, tmp_path):
    out = tmp_path / "out"
    assert main(["export", str(run_dir), "--out", str(out)]) == 0
    assert (
        AutoModelForCausalLM.from_pretrained(out).config.vocab_size and AutoTokenizer.from_pretrained(out).chat_template
    )
    assert not (out / "optimizer.pt").exists()
    head, text = card_of(out)
    assert head["base_model"] == "org/tiny" and "verl-trgrpo" in head["tags"]
    rows = {cells[1].strip(" `"): cells[2].strip() for line in text.splitlines() if len(cells := line.split("|")) > 2}
    loss = "actor_rollout_ref.actor.policy_loss"
    assert rows[f"{loss}.loss_mode"] == "tr_grpo" and rows[f"{loss}.shaping.alpha"] == "2.0"
    assert rows["training data"] == "data/train.parquet" and rows["verl"] == "0.9.1" and rows["commit"] == "abc"
    assert rows["validation accuracy at step 0"] == "0.250" and rows["validation accuracy at step 10"] == "0.750"


def test_an_earlier_checkpoint_has_its_own_figures(run_dir, tmp_path):
    assert main(["export", str(run_dir / "global_step_5"), "--out", str(tmp_path / "out")]) == 0
    text = card_of(tmp_path / "out")[1]
    assert "step 5" in text and "0.250" in text and "0.750" not in text


def test_wrong_input(run_dir, tmp_path, capsys):
    (tmp_path / "full").mkdir()
    (tmp_path / "full/mine").touch()
    assert main(["export", str(run_dir), "--out", str(tmp_path / "full")]) == 2
    assert main(["export", str(tmp_path / "full"), "--out", str(tmp_path / "out")]) == 2
    assert main(["export", str(run_dir), "--out", str(tmp_path / "out"), "--push", "name"]) == 2
    said = capsys.readouterr().err
    assert "has files" in said and "has no checkpoint" in said and "OWNER/NAME" in said
    assert not (tmp_path / "out").exists()


class Hub(BaseHTTPRequestHandler):
    """The part of the hub's interface that an upload of small files takes."""

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        server = self.server
        if self.path.endswith("/repos/create"):
            answer = {"url": f"{server.address}/{json.loads(body)['organization']}/{json.loads(body)['name']}"}
        elif "/preupload/" in self.path:
            files = json.loads(body)["files"]
            answer = {
                "files": [{"path": file["path"], "uploadMode": "regular", "shouldIgnore": False} for file in files]
            }
        elif self.path.endswith("/validate-yaml"):
            answer = {"errors": [], "warnings": []}
        else:
            for line in map(json.loads, body.splitlines()):
                if line["key"] == "file":
                    server.uploaded[line["value"]["path"]] = base64.b64decode(line["value"]["content"])
            answer = {
                "commitUrl": f"{server.address}/me/model/commit/1",
                "commitOid": "1",
                "hookOutput": "",
                "success": True,
            }
        self._send(answer)

    def do_GET(self):
        self._send({"id": "me/model", "sha": "0", "siblings": []})

    def _send(self, answer):
        content = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_):
        pass


@pytest.fixture
def hub(monkeypatch):
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    server.uploaded, server.address = {}, f"http://127.0.0.1:{server.server_port}"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setattr("huggingface_hub.hf_api.ENDPOINT", server.address, raising=False)
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", server.address)
    monkeypatch.setenv("HF_TOKEN", "hf_test")
    yield server
    server.shutdown()


def test_everything_is_uploaded(run_dir, tmp_path, hub, capsys):
    out = tmp_path / "out"
    assert main(["export", str(run_dir), "--out", str(out), "--push", "me/model"]) == 0, capsys.readouterr().err
    assert hub.uploaded == {path.name: path.read_bytes() for path in out.iterdir()}
    assert f"{hub.address}/me/model" in capsys.readouterr().out


def test_a_hub_that_does_not_answer_leaves_the_model(run_dir, tmp_path, hub, capsys):
    hub.shutdown()
    hub.server_close()
    assert main(["export", str(run_dir), "--out", str(tmp_path / "out"), "--push", "me/model"]) == 1
    assert "could not be uploaded" in capsys.readouterr().err and (tmp_path / "out/README.md").is_file()
