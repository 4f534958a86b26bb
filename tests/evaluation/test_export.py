"""A checkpoint as a Hugging Face directory with a model card, and its upload to a hub that the test runs."""

import base64
import json
import shutil
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import yaml
from omegaconf import OmegaConf
from transformers import AutoModelForCausalLM, AutoTokenizer

from tests.demos.models import load
from verl_trgrpo.cli.main import main
from verl_trgrpo.common.files import write_json
from verl_trgrpo.demos.puzzles import CHECKPOINT
from verl_trgrpo.evaluation.checkpoint import fingerprint
from verl_trgrpo.evaluation.export import find_checkpoint, model_card

CONFIG = {
    "actor_rollout_ref": {
        "model": {"path": "org/tiny"},
        "actor": {"policy_loss": {"loss_mode": "tr_grpo", "shaping": {"alpha": 2.0}}},
    },
    "data": {"train_files": "/home/me/data/train.parquet", "val_files": "/home/me/data/test.parquet"},
}


def make_run(directory):
    """Write what the single-file trainer, or veRL with hf_model among its contents, leaves behind: two checkpoints."""
    model, tokenizer = load(CHECKPOINT)
    for step in (5, 10):
        model.save_pretrained(directory / f"global_step_{step}")
        tokenizer.save_pretrained(directory / f"global_step_{step}")
    (directory / "global_step_10/optimizer.pt").write_bytes(b"not for others")
    OmegaConf.save(OmegaConf.create(CONFIG), directory / "config.yaml")
    record = {"algorithm": "tr_grpo", "versions": {"verl": "0.9.1"}, "commit": "abc"}
    (directory / "run.json").write_text(json.dumps(record))
    accuracies = {0: 0.25, 10: 0.75}
    steps = [{"step": step, "data": {"val-core/kk/acc/mean@1": value}} for step, value in accuracies.items()]
    (directory / "metrics-1.jsonl").write_text("".join(json.dumps(step) + "\n" for step in steps))
    return directory


@pytest.fixture
def run_dir(tmp_path):
    return make_run(tmp_path / "run")


def card(run_dir, step=10):
    _, head, text = model_card(run_dir / f"global_step_{step}").split("---\n", 2)
    return yaml.safe_load(head), text


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """A run and its export."""
    directory = tmp_path_factory.mktemp("exported")
    run_dir = make_run(directory / "run")
    assert main(["export", str(run_dir), "--out", str(directory / "out")]) == 0
    return run_dir, directory / "out"


def test_the_latest_checkpoint_is_exported_with_its_card(exported):
    run_dir, out = exported
    assert AutoModelForCausalLM.from_pretrained(out).config.vocab_size
    assert AutoTokenizer.from_pretrained(out).chat_template
    assert not (out / "optimizer.pt").exists()
    assert (out / "README.md").read_text() == model_card(run_dir / "global_step_10")


def test_the_card_has_the_run_s_record(exported):
    run_dir, _ = exported
    head, text = card(run_dir)
    assert head["base_model"] == "org/tiny" and "verl-trgrpo" in head["tags"]
    rows = {cells[1].strip(" `"): cells[2].strip() for line in text.splitlines() if len(cells := line.split("|")) > 2}
    loss = "actor_rollout_ref.actor.policy_loss"
    assert rows[f"{loss}.loss_mode"] == "tr_grpo" and rows[f"{loss}.shaping.alpha"] == "2.0"
    assert rows["training data"] == "data/train.parquet" and rows["verl"] == "0.9.1" and rows["commit"] == "abc"
    assert rows["validation accuracy at step 0"] == "0.250" and rows["validation accuracy at step 10"] == "0.750"


def test_an_earlier_checkpoint_has_its_own_figures(exported):
    run_dir, _ = exported
    assert find_checkpoint(run_dir / "global_step_5") == run_dir / "global_step_5"
    text = card(run_dir, 5)[1]
    assert "step 5" in text and "0.250" in text and "0.750" not in text


@pytest.fixture
def small_run(tmp_path):
    """A run without weights."""
    (tmp_path / "run/global_step_10").mkdir(parents=True)
    return tmp_path / "run"


def name_model(run_dir, model):
    OmegaConf.save(OmegaConf.create({"actor_rollout_ref": {"model": {"path": model}}}), run_dir / "config.yaml")


@pytest.mark.parametrize("model", ["runs/small_lm/word_problems/model", "./org/tiny", "~/tiny", "/tiny", "a/b c"])
def test_a_path_is_not_given_as_a_model_of_the_hub(small_run, model):
    name_model(small_run, model)
    head, text = card(small_run)
    assert "base_model" not in head
    assert "runs/small_lm" not in text


@pytest.mark.parametrize("place", [".", "elsewhere"])
def test_nor_is_a_directory_whose_path_is_like_a_name(small_run, tmp_path, monkeypatch, place):
    """A run names its base model relative to the directory where it was started, which is often above its own."""
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    name_model(small_run, "org/tiny")
    assert card(small_run)[0]["base_model"] == "org/tiny"
    (tmp_path / place / "org/tiny").mkdir(parents=True)
    assert "base_model" not in card(small_run)[0]


@pytest.mark.parametrize(("inside", "step"), [("run", 10), ("run/global_step_5", 5)])
def test_the_current_directory_has_its_own_name(small_run, tmp_path, monkeypatch, inside, step):
    (small_run / "global_step_5").mkdir()
    monkeypatch.chdir(tmp_path / inside)
    checkpoint = find_checkpoint(Path())
    assert f"# run, step {step}\n" in model_card(checkpoint)


def test_the_single_file_trainer_is_not_taken_for_verl_nor_a_model_invented(small_run):
    (small_run / "run.json").write_text(json.dumps({"trainer": "minimal", "arm": "tr_grpo", "settings": {"lr": 0.1}}))
    head, text = card(small_run)
    assert "not recorded" in text and "tr_grpo" in text
    assert "veRL" not in text and "verl" not in head["tags"] and "base_model" not in head
    (small_run / "options.json").write_text(json.dumps({"arm": "tr_grpo", "model": "org/tiny"}))
    head, text = card(small_run)
    assert head["base_model"] == "org/tiny" and "not recorded" not in text.split("## Training")[0]


def test_wrong_input(exported, tmp_path, capsys):
    run_dir, _ = exported
    (tmp_path / "full").mkdir()
    (tmp_path / "full/mine").touch()
    out = str(tmp_path / "out")
    wrong = {
        "full has files": [str(run_dir), "--out", str(tmp_path / "full")],
        "has no checkpoint": [str(tmp_path / "full"), "--out", out],
        "OWNER/NAME": [str(run_dir), "--out", out, "--push", "name"],
        "--push": [str(run_dir), "--out", out, "--private"],
    }
    for reason, words in wrong.items():
        assert main(["export", *words]) == 2
        assert reason in capsys.readouterr().err
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
            decided = {"uploadMode": "regular", "shouldIgnore": False}
            answer = {"files": [{"path": file["path"], **decided} for file in files]}
        elif self.path.endswith("/validate-yaml"):
            answer = {"errors": [], "warnings": []}
        else:
            for line in map(json.loads, body.splitlines()):
                if line["key"] == "file":
                    server.uploaded[line["value"]["path"]] = base64.b64decode(line["value"]["content"])
            commit = f"{server.address}/me/model/commit/1"
            answer = {"commitUrl": commit, "commitOid": "1", "hookOutput": "", "success": True}
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
    assert "me/model" in capsys.readouterr().err and (tmp_path / "out/README.md").is_file()


def test_a_merged_checkpoint_of_verl_is_not_merged_again(run_dir, tmp_path):
    checkpoint = run_dir / "global_step_20"
    (checkpoint / "actor").mkdir(parents=True)
    (checkpoint / "actor/fsdp_config.json").write_text("{}")
    (checkpoint / "actor/model_world_size_1_rank_0.pt").write_bytes(b"no merger could read this")
    shutil.copytree(run_dir / "global_step_5", checkpoint / "merged_hf")
    write_json(checkpoint / "merged_hf/merged_from.json", fingerprint(str(checkpoint / "actor")))
    assert main(["export", str(checkpoint), "--out", str(tmp_path / "out")]) == 0
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert {"README.md", "model.safetensors"} <= names and "merged_from.json" not in names
    text = (tmp_path / "out/README.md").read_text()
    assert "step 20" in text and "veRL's merger" in text


def test_a_private_repository_is_made_so_and_a_public_one_gets_nothing(run_dir, tmp_path, hub, capsys):
    command = ["export", str(run_dir), "--push", "me/model", "--private", "--out"]
    assert main([*command, str(tmp_path / "one")]) == 1
    assert "public" in capsys.readouterr().err and hub.uploaded == {}
    hub.private = True
    assert main([*command, str(tmp_path / "other")]) == 0, capsys.readouterr().err
    assert "private" in hub.created.values() or hub.created.get("private") is True
    assert "README.md" in hub.uploaded
