"""Makes a model that vLLM loads out of a GGUF file of a Llama: safetensors in bfloat16, tokenizer, chat template."""

import json
import sys
from pathlib import Path

import numpy
import torch
from gguf import GGUFReader
from gguf.quants import dequantize
from safetensors.torch import save_file
from transformers import AutoConfig, AutoTokenizer

BLOCK = {
    "attn_norm": "input_layernorm", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj", "ffn_norm": "post_attention_layernorm", "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj",
}
WHOLE = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}


def name_of(tensor: str) -> str:
    parts = tensor.removesuffix(".weight").split(".")
    if parts[0] == "blk":
        return f"model.layers.{parts[1]}.{BLOCK[parts[2]]}.weight"
    return WHOLE[parts[0]] + ".weight"


def unpermuted(weight: numpy.ndarray, heads: int) -> numpy.ndarray:
    """llama.cpp interleaves the two halves of each head's rotary dimensions; this is the inverse."""
    rows, columns = weight.shape
    return weight.reshape(heads, rows // heads // 2, 2, columns).swapaxes(1, 2).reshape(rows, columns)


def main(source: Path, target: Path) -> None:
    config = AutoConfig.from_pretrained(source.parent, gguf_file=source.name)
    heads = {"attn_q": config.num_attention_heads, "attn_k": config.num_key_value_heads}
    tensors = {}
    for t in GGUFReader(source).tensors:
        weight = dequantize(t.data, t.tensor_type)
        for part, count in heads.items():
            if f".{part}." in t.name:
                weight = unpermuted(weight, count)
        tensors[name_of(t.name)] = torch.tensor(weight).to(torch.bfloat16).contiguous()
    config.architectures, config.dtype = ["LlamaForCausalLM"], "bfloat16"
    config.tie_word_embeddings = "lm_head.weight" not in tensors
    tokenizer = AutoTokenizer.from_pretrained(source.parent, gguf_file=source.name)

    target.mkdir(parents=True, exist_ok=True)
    save_file(tensors, target / "model.safetensors", metadata={"format": "pt"})
    tokenizer.save_pretrained(target)
    (target / "config.json").write_text(json.dumps(config.to_dict(), indent=1, default=str))
    print(f"{len(tensors)} tensors, {sum(t.numel() for t in tensors.values()):,} weights, template: {bool(tokenizer.chat_template)}")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
