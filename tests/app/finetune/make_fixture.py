#!/usr/bin/env python3
"""A tiny model of transformers with a tokenizer, and what PyTorch makes of it in 20 steps on chats: tests/app/finetune_test.cpp.

Usage: make_fixture.py [--plait PATH]        (Python with torch, transformers, safetensors and pyyaml)

Writes base/ (the model, with random weights) and, by scripts/compare-with-transformers, training.json (loss and gradient norm of every
step), tokens.safetensors and logits.safetensors (some tokens, and the logits of PyTorch's model after the last step).
"""
import shutil
import subprocess
import sys
from pathlib import Path

import torch
import transformers

SETTINGS = ["data.chat_template=chatml", "data.documents=separate", "data.sequence_length=64", "train.global_batch=8",
            "train.micro_batch=4", "train.optimizer.lr=1e-2"]
FOLDER = Path(__file__).resolve().parent
ROOT = FOLDER.parents[2]


def main():
    torch.manual_seed(17)
    config = transformers.Qwen2Config(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
                                      intermediate_size=48, vocab_size=1024, max_position_embeddings=128, tie_word_embeddings=True)
    base = FOLDER / "base"
    shutil.rmtree(base, ignore_errors=True)
    transformers.AutoModelForCausalLM.from_config(config).save_pretrained(base)
    (base / "generation_config.json").unlink(missing_ok=True)
    shutil.copy(ROOT / "tests/data/huggingface/qwen2.json", base / "tokenizer.json")
    chats = ROOT / "tests/data/chat/sums.jsonl"
    overrides = [part for value in [f"data.train=[{chats}]", *SETTINGS] for part in ("--set", value)]
    subprocess.run([sys.executable, ROOT / "scripts/compare-with-transformers", base, *sys.argv[1:], *overrides,
                    "--json", FOLDER / "training.json", "--trained", FOLDER], check=True)
    training = FOLDER / "training.json"
    training.write_text(training.read_text().replace(f"{ROOT}/", ""))


if __name__ == "__main__":
    main()
