"""The single-file trainer: it samples the model's distribution, resumes exactly, and has the loss of the veRL path."""

import dataclasses
import importlib.util
import itertools
import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

SCRIPT = Path(__file__).parents[2] / "recipes" / "minimal" / "train.py"


def load_script():
    spec = importlib.util.spec_from_file_location("minimal_trainer", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


trainer = load_script()


def options(directory, **changes):
    small = {"prompts": 4, "samples": 4, "mini_prompts": 2, "max_tokens": 12, "steps": 2, "test_every": 1, "rows": 5}
    files = {"train": str(directory / "train.parquet"), "test": str(directory / "test.parquet")}
    return trainer.Options(model=str(directory / "model"), out="unused", **{**files, **small, **changes})


@pytest.fixture(scope="module")
def model(tiny_run):
    """The tiny random model with its logits spread out, so that some tokens are likely and some are not."""
    model = trainer.load_model(tiny_run / "model", "cpu")
    with torch.no_grad():
        model.model.norm.weight.mul_(6)
    return model


@pytest.fixture(scope="module")
def tokenizer(tiny_run):
    return trainer.AutoTokenizer.from_pretrained(tiny_run / "model")


def sequence_log_probs(model, prompt, response):
    """Log-probabilities of a response's tokens from one pass without padding, cache or batch."""
    logits = model(torch.tensor([[*prompt, *response]])).logits[0].double()
    table = torch.log_softmax(logits, -1)
    return table[torch.arange(len(prompt) - 1, len(prompt) + len(response) - 1), torch.tensor(response)]


def sampled_batch(model, tokenizer, options, n=4):
    rows = trainer.read_rows(options.train, tokenizer)[:4]
    # Frequent tokens end responses early, so that lengths differ.
    ends = [tokenizer.eos_token_id, *range(40)]
    return rows, trainer.sample(model, [row.prompt for row in rows], n, ends, options, "seed"), ends


def test_sampled_log_probs_are_those_of_unpadded_passes(tiny_run, model, tokenizer):
    rows, batch, _ = sampled_batch(model, tokenizer, options(tiny_run))
    assert len({len(row.prompt) for row in rows}) > 1
    assert len(set(batch.mask.sum(-1).tolist())) > 3
    for i in range(16):
        response = batch.responses[i, batch.mask[i]].tolist()
        expected = sequence_log_probs(model, rows[i // 4].prompt, response)
        torch.testing.assert_close(batch.log_probs[i, batch.mask[i]].double(), expected, rtol=0, atol=2e-5)


def test_training_passes_give_the_sampled_log_probs_whatever_the_split(tiny_run, model, tokenizer):
    _, batch, _ = sampled_batch(model, tokenizer, options(tiny_run, temperature=0.7))
    for rows in (1, 5, 100):
        with torch.no_grad():
            log_probs = trainer.response_log_probs(model, batch, 0.7, rows)
        torch.testing.assert_close(log_probs[batch.mask], batch.log_probs[batch.mask], rtol=0, atol=2e-5)


def test_responses_stop_at_the_end_token_or_the_limit(tiny_run, model, tokenizer):
    _, batch, ends = sampled_batch(model, tokenizer, options(tiny_run))
    lengths = batch.mask.sum(-1).tolist()
    assert min(lengths) < 12
    for response, mask, length in zip(batch.responses, batch.mask, lengths, strict=True):
        assert mask[:length].all() and not mask[length:].any()
        assert not any(token in ends for token in response[: length - 1].tolist())
        assert length == 12 or response[length - 1].item() in ends


@torch.no_grad()
def test_sampled_sequences_have_the_models_frequencies(tiny_run, model, tokenizer):
    """Chi-square of the first two tokens' classes, sampled beside a longer prompt, against passes without padding."""
    (longer, *_), n, eos = trainer.read_rows(options(tiny_run).train, tokenizer), 1500, tokenizer.eos_token_id
    short = longer.prompt[-5:]
    batch = trainer.sample(model, [short, longer.prompt], n, [eos], options(tiny_run, max_tokens=2), "seed")
    first = torch.softmax(model(torch.tensor([short])).logits[0, -1].double(), -1)
    tokens = torch.arange(len(first))
    after = torch.cat([torch.tensor(short).repeat(len(first), 1), tokens[:, None]], -1)
    second = torch.softmax(model(after, logits_to_keep=1).logits[:, 0].double(), -1)
    classes = torch.nn.functional.one_hot(tokens % 4, 4).double()
    joint = classes.T @ torch.where(tokens[:, None] == eos, 0.0, first[:, None] * second) @ classes
    expected = n * torch.cat([joint.flatten(), first[eos, None]])
    going = batch.mask[:n, 1]
    pairs = batch.responses[:n][going] % 4
    counts = torch.bincount(4 * pairs[:, 0] + pairs[:, 1], minlength=16)
    counts = torch.cat([counts, (~going).sum()[None]])
    assert expected.sum() == pytest.approx(n)
    assert expected[:16].min() > 20
    # 16 degrees of freedom: mean 16, standard deviation 5.7.
    assert ((counts - expected) ** 2 / expected).sum() < 16 + 5 * 5.7


def run(directory, out, *arguments):
    files = ["--train", str(directory / "train.parquet"), "--test", str(directory / "test.parquet"), "--out", str(out)]
    sizes = {"prompts": 4, "samples": 4, "mini-prompts": 2, "max-tokens": 12, "test-every": 2, "lr": 0.01}
    given = [f"--{name}={value}" for name, value in sizes.items()]
    return trainer.main([*files, "--model", str(directory / "model"), *given, *arguments])


def metrics(path):
    records = [json.loads(line) for line in path.read_text().splitlines()]
    return {r["step"]: {k: v for k, v in r["data"].items() if not k.startswith("timing_s/")} for r in records}


def weights(path):
    return trainer.load_model(path, "cpu").state_dict()


def give_random_rewards(monkeypatch):
    """A random model earns the same reward everywhere; one that depends on the text makes advantages, and an update."""
    score = lambda source, text, truth: {"score": float(len(text) % 7), "acc": float(len(text) % 2)}  # noqa: E731
    monkeypatch.setattr(trainer, "compute_score", score)


def test_a_resumed_run_takes_the_same_steps(tiny_run, tmp_path, monkeypatch):
    give_random_rewards(monkeypatch)
    assert run(tiny_run, tmp_path / "whole", "--steps", "4") == 0
    assert run(tiny_run, tmp_path / "parts", "--steps", "2") == 0
    assert run(tiny_run, tmp_path / "parts", "--steps", "4", "--resume") == 0
    whole = metrics(tmp_path / "whole" / "metrics-1.jsonl")
    parts = metrics(tmp_path / "parts" / "metrics-1.jsonl") | metrics(tmp_path / "parts" / "metrics-2.jsonl")
    assert whole == parts
    assert sorted(whole) == [0, 1, 2, 3, 4]
    assert all(whole[step]["actor/grad_norm"] > 0 for step in (1, 2, 3, 4))
    expected, found = weights(tmp_path / "whole" / "global_step_4"), weights(tmp_path / "parts" / "global_step_4")
    assert all(torch.equal(expected[name], found[name]) for name in expected)


def test_a_run_is_not_overwritten_and_not_resumed_as_another(tiny_run, tmp_path, monkeypatch, capsys):
    give_random_rewards(monkeypatch)
    assert run(tiny_run, tmp_path, "--steps", "1") == 0
    assert run(tiny_run, tmp_path, "--steps", "1") == 2
    assert "--resume" in capsys.readouterr().err
    assert run(tiny_run, tmp_path, "--steps", "2", "--resume", "--arm", "grpo", "--seed", "1") == 2
    assert "arm, seed" in capsys.readouterr().err


def test_every_batch_of_an_epoch_has_new_prompts_and_epochs_differ():
    rows = list(range(12))
    first, second = ([trainer.batch_rows(rows, 4, 0, step) for step in steps] for steps in ((1, 2, 3), (4, 5, 6)))
    assert sorted(itertools.chain(*first)) == sorted(itertools.chain(*second)) == rows
    assert first != second
    assert first[0] != trainer.batch_rows(rows, 4, 1, 1)


class Recorder:
    """An optimizer that keeps the gradients instead of applying them."""

    def __init__(self, model):
        self.model, self.param_groups, self.gradients = model, [{"lr": 0.0}], []

    def zero_grad(self):
        self.model.zero_grad()

    def step(self):
        self.gradients = [p.grad.clone() for p in self.model.parameters()]


@pytest.fixture(scope="module")
def saved_batch(tiny_run, model, tokenizer):
    """Responses, and advantages; the old policy is moved away from the current one, so that some tokens are clipped."""
    rows, batch, _ = sampled_batch(model, tokenizer, options(tiny_run))
    noise = torch.randn(batch.log_probs.shape, generator=torch.Generator().manual_seed(0))
    batch = batch._replace(log_probs=batch.log_probs + 0.3 * noise)
    advantages = torch.randn(16, 1, generator=torch.Generator().manual_seed(1)) * batch.mask
    return rows, batch, advantages


def own_gradients(model, saved_batch, options, ref=None):
    recorder = Recorder(model)
    _, batch, advantages = saved_batch
    found = trainer.update(model, recorder, batch, advantages, ref, options)
    model.zero_grad()
    return found, recorder


@pytest.mark.parametrize("scaled", ["loss", "lr"])
def test_scale_controls_multiply_by_the_mean_published_weight(tiny_run, model, saved_batch, scaled):
    big = {"grad_clip": 1e9}
    plain, plain_recorder = own_gradients(model, saved_batch, options(tiny_run, arm="grpo", **big))
    regulated, _ = own_gradients(model, saved_batch, options(tiny_run, arm="tr_grpo", **big))
    control, recorder = own_gradients(model, saved_batch, options(tiny_run, arm=f"grpo_scaled_{scaled}", **big))
    mean_weight = float(regulated["actor/tr_weight_mean"])
    assert 1.0 < mean_weight < 1.4
    in_loss, in_lr = (mean_weight, 1.0) if scaled == "loss" else (1.0, mean_weight)
    assert control["actor/grad_norm"] == pytest.approx(in_loss * plain["actor/grad_norm"], rel=1e-4)
    assert recorder.param_groups[0]["lr"] == pytest.approx(in_lr * plain_recorder.param_groups[0]["lr"], rel=1e-6)


def verl_config(options):
    """veRL's actor configuration with the arm's meaning; the sigmoid's constants are written out, not taken over."""
    from verl.workers.config import FSDPActorConfig

    from verl_trgrpo.shaping import make_shaping
    from verl_trgrpo.verl_plugin.config import TRGRPOPolicyLossConfig

    sigmoid = {"name": "sigmoid", "alpha": 2.0, "tau": 9.0, "mu": 0.25, "lower": 1.0, "upper": 1.4}
    shaping = {
        "tr_grpo_reverse": {**sigmoid, "reverse": True},
        "advantage_reweighting": {"name": "linear", "alpha": 0.2},
        "grpo": {"name": "uniform"},
        "dapo_clip": {"name": "uniform"},
    }.get(options.arm, sigmoid)
    normalize = "token_mean" if options.arm == "tr_grpo_token_mean" else "none"
    policy_loss = TRGRPOPolicyLossConfig(shaping=make_shaping(**shaping), normalize=normalize, kl=options.kl)
    return FSDPActorConfig(
        rollout_n=4, ppo_micro_batch_size_per_gpu=16, strategy="fsdp2", policy_loss=policy_loss, clip_ratio_low=0.2,
        clip_ratio_high=0.28 if options.arm == "dapo_clip" else 0.2, loss_agg_mode="token-mean",
        use_kl_loss=options.kl_coef > 0, kl_loss_coef=options.kl_coef, kl_loss_type="low_var_kl",
    )  # fmt: skip


def verl_gradients(model, saved_batch, config, ref):
    """Loss and gradients through veRL's ppo_loss, each sequence in a pass of its own."""
    from tensordict import TensorDict
    from verl.utils import tensordict_utils as tu
    from verl.workers.utils import losses

    def nested(rows):
        return torch.nested.as_nested_tensor(list(rows), layout=torch.jagged)

    def whole(model, prompt, response):
        """veRL's engine gives the loss one value per position: the last has no token to predict and is ignored."""
        ids = torch.tensor([*prompt, *response])
        logits = model(ids[None]).logits[0]
        return torch.log_softmax(logits, -1)[torch.arange(len(ids)), ids.roll(-1)]

    rows, batch, advantages = saved_batch
    prompts = [rows[i // 4].prompt for i in range(16)]
    responses = [batch.responses[i, batch.mask[i]].tolist() for i in range(16)]
    sequences = list(zip(prompts, responses, strict=True))
    fields = {
        "prompts": nested(torch.tensor(prompt) for prompt in prompts),
        "responses": nested(torch.tensor(response) for response in responses),
        "response_mask": nested(torch.ones(len(response)) for response in responses),
        "old_log_probs": nested(x[keep] for x, keep in zip(batch.log_probs, batch.mask, strict=True)),
        "advantages": nested(x[keep] for x, keep in zip(advantages, batch.mask, strict=True)),
    }
    if ref is not None:
        with torch.no_grad():
            fields["ref_log_prob"] = nested(whole(ref, p, r)[len(p) - 1 : -1] for p, r in sequences)
    data = TensorDict(fields, batch_size=16)
    counts = {"dp_size": 1, "batch_num_tokens": int(batch.mask.sum()), "global_batch_size": 16}
    tu.assign_non_tensor(data, max_response_len=max(map(len, responses)), **counts)
    values = torch.cat([whole(model, *sequence) for sequence in sequences])
    loss, _ = losses.ppo_loss(config, {"log_probs": values}, data)
    return loss.item(), torch.autograd.grad(loss, list(model.parameters()))


PLAIN_ARMS = [arm for arm, (*_, scaled) in trainer.ARMS.items() if not scaled]


@pytest.mark.parametrize(
    ("arm", "kl"), [*((arm, "") for arm in PLAIN_ARMS), *(("tr_grpo", kl) for kl in ("plain", "scaled", "literal"))]
)
def test_loss_and_gradients_are_those_of_the_verl_path(tiny_run, model, saved_batch, arm, kl):
    chosen = options(tiny_run, arm=arm, grad_clip=1e9, kl=kl or "plain", kl_coef=0.1 if kl else 0.0)
    ref = trainer.load_model(tiny_run / "model", "cpu").requires_grad_(False) if kl else None
    found, recorder = own_gradients(model, saved_batch, chosen, ref)
    loss, gradients = verl_gradients(model, saved_batch, verl_config(chosen), ref)
    assert found["actor/loss"] == pytest.approx(loss, rel=1e-4, abs=1e-6)
    assert 0 < found["actor/pg_clipfrac"] < 0.9
    own, expected = (torch.cat([g.flatten() for g in grads]) for grads in (recorder.gradients, gradients))
    # Float32 sums in another order; an arm mistaken for another would differ by percents.
    assert (own - expected).norm() < 1e-4 * expected.norm()
    assert expected.norm() > 0


def test_arms_have_different_gradients(tiny_run, model, saved_batch):
    """Else the comparison with veRL could not tell them apart."""
    found = {
        arm: torch.cat(
            [
                g.flatten()
                for g in own_gradients(model, saved_batch, options(tiny_run, arm=arm, grad_clip=1e9))[1].gradients
            ]
        )
        for arm in PLAIN_ARMS
    }
    for one, other in itertools.combinations(PLAIN_ARMS, 2):
        assert (found[one] - found[other]).norm() > 1e-3 * found[one].norm(), (one, other)


def test_all_problems_of_the_options_are_reported_at_once(tiny_run):
    with pytest.raises(ValueError, match=r"lr=0.*no\.parquet does not exist.*arm='x' is unknown.*samples=1") as error:
        options(tiny_run, lr=0.0, train="no.parquet", arm="x", samples=1, prompts=3)
    assert "multiple of mini_prompts" in str(error.value)
    with pytest.raises(ValueError, match=r"lr=0.*kl='x' is unknown"):
        options(tiny_run, lr=0.0, kl="x")
    for kl in ("scaled", "literal"):
        with pytest.raises(ValueError, match=f"^kl='{kl}' has no effect without a KL loss; give kl_coef > 0$"):
            options(tiny_run, kl=kl)
        options(tiny_run, kl=kl, kl_coef=0.1)
    with pytest.raises(ValueError, match="clip_ratio_low="):
        options(tiny_run, clip_low=2.0)


def test_help_shows_every_option_with_an_example():
    result = subprocess.run([sys.executable, SCRIPT, "--help"], capture_output=True, text=True, timeout=120)
    assert result.returncode == 0
    assert "python recipes/minimal/train.py --train" in result.stdout
    for field in dataclasses.fields(trainer.Options):
        assert f"--{field.name.replace('_', '-')}" in result.stdout


def test_wrong_input_ends_with_one_line_and_exit_code_2(tiny_run, tmp_path, capsys):
    assert trainer.main(["--train", str(tmp_path / "none.parquet"), "--out", str(tmp_path)]) == 2
    assert capsys.readouterr().err.startswith("error: ")


def test_importing_the_trainer_imports_neither_verl_nor_ray():
    code = (
        f"import runpy, sys; runpy.run_path({str(SCRIPT)!r}); "
        "print(sorted({name.split('.')[0] for name in sys.modules} & {'verl', 'ray', 'vllm', 'hydra', 'pandas'}))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert result.stdout.strip() == "[]", result.stderr
