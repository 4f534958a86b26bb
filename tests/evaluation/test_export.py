"""A checkpoint as a Hugging Face directory with a model card, and its upload to a hub that is a process of the test's."""

import base64
import json
import shutil
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
import yaml
from omegaconf import OmegaConf
from transformers import AutoModelForCausalLM, AutoTokenizer

from verl_trgrpo.cli.main import main
from verl_trgrpo.common.files import write_json
from verl_trgrpo.evaluation.checkpoint import fingerprint
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


def name_model(run_dir, model):
    """Write another base model into the run's configuration."""
    config = OmegaConf.load(run_dir / "config.yaml")
    config.actor_rollout_ref.model.path = model
    OmegaConf.save(config, run_dir / "config.yaml")


@pytest.mark.parametrize("model", ["runs/small_lm/word_problems/model", "./org/tiny", "~/tiny", "/tiny", "a/b c"])
def test_a_path_is_not_named_as_a_model_of_the_hub(run_dir, tmp_path, model):
    name_model(run_dir, model)
    assert main(["export", str(run_dir), "--out", str(tmp_path / "out")]) == 0
    head, text = card_of(tmp_path / "out")
    assert "base_model" not in head
    assert "runs/small_lm" not in text


@pytest.mark.parametrize("place", ["started", "elsewhere"])
def test_nor_is_a_directory_whose_path_looks_like_a_name(run_dir, tmp_path, monkeypatch, place):
    """A run names what it trains from the directory where it was started, which is often above its own."""
    model = {"started": tmp_path, "elsewhere": tmp_path / "elsewhere"}[place] / "org/tiny"
    model.mkdir(parents=True)
    (tmp_path / "elsewhere").mkdir(exist_ok=True)
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert main(["export", str(run_dir), "--out", str(tmp_path / "out")]) == 0
    assert "base_model" not in card_of(tmp_path / "out")[0]


@pytest.mark.parametrize(("inside", "step"), [("run", 10), ("run/global_step_5", 5)])
def test_the_current_directory_has_its_own_name(run_dir, tmp_path, monkeypatch, inside, step):
    monkeypatch.chdir(tmp_path / inside)
    assert main(["export", ".", "--out", str(tmp_path / "out")]) == 0
    assert f"# run, step {step}\n" in card_of(tmp_path / "out")[1]


def test_the_single_file_trainer_is_not_taken_for_verl_nor_a_model_made_up(run_dir, tmp_path):
    (run_dir / "config.yaml").unlink()
    (run_dir / "run.json").write_text(json.dumps({"trainer": "minimal", "arm": "tr_grpo", "settings": {"lr": 0.1}}))
    assert main(["export", str(run_dir), "--out", str(tmp_path / "unknown")]) == 0
    head, text = card_of(tmp_path / "unknown")
    assert "Base model not recorded" in text and "tr_grpo" in text
    assert "veRL" not in text and "verl" not in head["tags"] and "base_model" not in head
    (run_dir / "options.json").write_text(json.dumps({"arm": "tr_grpo", "model": "org/tiny"}))
    assert main(["export", str(run_dir), "--out", str(tmp_path / "known")]) == 0
    head, text = card_of(tmp_path / "known")
    assert head["base_model"] == "org/tiny" and "not recorded" not in text.split("## Training")[0]


def test_wrong_input(run_dir, tmp_path, capsys):
    (tmp_path / "full").mkdir()
    (tmp_path / "full/mine").touch()
    assert main(["export", str(run_dir), "--out", str(tmp_path / "full")]) == 2
    assert main(["export", str(tmp_path / "full"), "--out", str(tmp_path / "out")]) == 2
    assert main(["export", str(run_dir), "--out", str(tmp_path / "out"), "--push", "name"]) == 2
    assert main(["export", str(run_dir), "--out", str(tmp_path / "out"), "--private"]) == 2
    said = capsys.readouterr().err
    assert "has files" in said and "has no checkpoint" in said and "OWNER/NAME" in said
    assert "--private" in said and "--push" in said
    assert not (tmp_path / "out").exists()


class Hub(BaseHTTPRequestHandler):
    """The part of the hub's interface that an upload of small files takes."""

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        server = self.server
        if self.path.endswith("/repos/create"):
            server.created = json.loads(body)
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
        self._send({"id": "me/model", "sha": "0", "siblings": [], "private": self.server.private})

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
    server.uploaded, server.created, server.private = {}, {}, False
    server.address = f"http://127.0.0.1:{server.server_port}"
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


def test_the_same_command_uploads_what_is_there_with_the_card_as_it_was_edited(run_dir, tmp_path, hub, capsys):
    out = tmp_path / "out"
    assert main(["export", str(run_dir), "--out", str(out)]) == 0
    (out / "README.md").write_text("edited")
    (run_dir / "global_step_10/config.json").touch()
    assert main(["export", str(run_dir), "--out", str(out)]) == 2, "without --push nothing is to be done"
    assert main(["export", str(run_dir), "--out", str(out), "--push", "me/model"]) == 0, capsys.readouterr().err
    assert hub.uploaded == {path.name: path.read_bytes() for path in out.iterdir()}
    assert hub.uploaded["README.md"] == b"edited"


def test_a_merged_checkpoint_of_verl_is_uploaded_again_and_not_merged_again(run_dir, tmp_path, hub, capsys):
    checkpoint = run_dir / "global_step_20"
    (checkpoint / "actor").mkdir(parents=True)
    (checkpoint / "actor/fsdp_config.json").write_text("{}")
    (checkpoint / "actor/model_world_size_1_rank_0.pt").write_bytes(b"no merger could read this")
    shutil.copytree(run_dir / "global_step_5", checkpoint / "merged_hf")
    write_json(checkpoint / "merged_hf/merged_from.json", fingerprint(str(checkpoint / "actor")))
    command = ["export", str(checkpoint), "--out", str(tmp_path / "out"), "--push", "me/model"]
    for _ in range(2):
        hub.uploaded.clear()
        assert main(command) == 0, capsys.readouterr().err
        assert {"README.md", "model.safetensors"} <= {*hub.uploaded} and "merged_from.json" not in hub.uploaded
    text = card_of(tmp_path / "out")[1]
    assert "step 20" in text and "veRL's merger" in text


@pytest.mark.parametrize("change", ["a weight", "no card"])
def test_what_is_no_export_of_the_checkpoint_is_not_uploaded(run_dir, tmp_path, hub, capsys, change):
    out = tmp_path / "out"
    assert main(["export", str(run_dir), "--out", str(out)]) == 0
    if change == "no card":
        (out / "README.md").unlink()
    else:
        weights = run_dir / "global_step_10/model.safetensors"
        content = bytearray(weights.read_bytes())
        content[-1] ^= 1
        weights.write_bytes(content)
    assert main(["export", str(run_dir), "--out", str(out), "--push", "me/model"]) == 2
    assert "no export of" in capsys.readouterr().err and hub.uploaded == {} == hub.created


def test_a_private_repository_is_made_so_and_a_public_one_gets_nothing(run_dir, tmp_path, hub, capsys):
    command = ["export", str(run_dir), "--out", str(tmp_path / "out"), "--push", "me/model", "--private"]
    assert main(command) == 1
    assert "public" in capsys.readouterr().err and hub.uploaded == {}
    hub.private = True
    assert main(command) == 0, capsys.readouterr().err
    assert "private" in hub.created.values() or hub.created.get("private") is True
    assert "README.md" in hub.uploaded
