#!/usr/bin/env python3
"""Tiny random models of transformers, with the logits that it gives: what plait import, eval and export are held to.

Usage: make_fixtures.py FOLDER [NAME...]      (all, or these; Python with torch, transformers and safetensors)

Each model is a directory as save_pretrained() writes it, with tokens.safetensors (`tokens`, int32 [batch, sequence]) and
logits.safetensors (`logits`, float32 [batch, sequence, vocabulary], computed in fp32) beside it.
"""
import json
import sys
from pathlib import Path

import torch
import transformers
from safetensors.torch import save_file

SIZES = dict(hidden_size=16, num_hidden_layers=2, num_attention_heads=4, intermediate_size=24, vocab_size=61,
             max_position_embeddings=32)


def models():
    t = transformers
    yield "gpt2", t.GPT2Config(n_embd=16, n_layer=2, n_head=4, vocab_size=61, n_positions=32, layer_norm_epsilon=1e-4), {}
    yield "gpt2-untied", t.GPT2Config(n_embd=16, n_layer=1, n_head=2, n_inner=40, vocab_size=61, n_positions=16,
                                      activation_function="gelu_pytorch_tanh", tie_word_embeddings=False), {}
    yield "llama", t.LlamaConfig(**SIZES, num_key_value_heads=2, rope_theta=5e5, rms_norm_eps=1e-5), {}
    yield "llama3", t.LlamaConfig(**SIZES | dict(num_attention_heads=2), num_key_value_heads=2, rope_parameters=dict(
        rope_type="llama3", rope_theta=100.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
        original_max_position_embeddings=16)), {}
    yield "llama-bf16", t.LlamaConfig(**SIZES, num_key_value_heads=4, tie_word_embeddings=True), dict(dtype=torch.bfloat16)
    yield "llama-biases", t.LlamaConfig(**SIZES, head_dim=6, attention_bias=True, mlp_bias=True), {}
    yield "mistral", t.MistralConfig(**SIZES, num_key_value_heads=1, sliding_window=None), dict(max_shard_size=6000)
    yield "qwen2", t.Qwen2Config(**SIZES, num_key_value_heads=2, tie_word_embeddings=True, rope_theta=1e6), {}
    yield "llama-f16", t.LlamaConfig(**SIZES, num_key_value_heads=2), dict(dtype=torch.float16)
    # Windows shorter than the sequence of tokens below.
    yield "mistral-window", t.MistralConfig(**SIZES, num_key_value_heads=2, sliding_window=5), {}
    yield "qwen2-window", t.Qwen2Config(**SIZES | dict(num_hidden_layers=3), num_key_value_heads=2, use_sliding_window=True,
                                        sliding_window=4, max_window_layers=1), {}
    yield "qwen3", t.Qwen3Config(**SIZES, num_key_value_heads=2, head_dim=8, rope_theta=1e6, rms_norm_eps=1e-3), {}


def main():
    folder = Path(sys.argv[1])
    for number, (name, config, how) in enumerate(models()):
        if len(sys.argv) > 2 and name not in sys.argv[2:]:
            continue
        torch.manual_seed(number)
        model = transformers.AutoModelForCausalLM.from_config(config).float().eval()
        with torch.no_grad():  # norms and biases too, which would be ones and zeros
            for parameter in model.parameters():
                parameter.copy_(torch.randn_like(parameter) * 0.2 + (parameter.dim() == 1 and parameter.min() == 1))
        model = model.to(how.pop("dtype", torch.float32))
        directory = folder / name
        model.save_pretrained(directory, **how)
        (directory / "generation_config.json").unlink(missing_ok=True)
        tokens = torch.randint(0, 61, (3, 12), dtype=torch.int32)
        # Read again: to(bfloat16) rounds the rotary frequencies too, which nobody computes with.
        model = transformers.AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32).eval()
        with torch.no_grad():
            logits = model(tokens.long()).logits
        save_file({"tokens": tokens}, directory / "tokens.safetensors")
        save_file({"logits": logits.float().contiguous()}, directory / "logits.safetensors")
        print(name, json.loads((directory / "config.json").read_text())["model_type"], float(logits.abs().max()))


if __name__ == "__main__":
    main()
