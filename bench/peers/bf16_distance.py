#!/usr/bin/env python3
"""How far the bf16 forward pass of Hugging Face transformers is from its own float32 one, for each checkpoint given.

The tolerance of a backend with bf16 operands is twice this distance (docs/perf.md). Ids come from reference.safetensors
beside the checkpoint, or from the prompts of a file (a list of {"name", "ids"}) for each of them; ties in the index
scores go to the lower block, as everywhere here.

usage: bf16_distance.py [--device cuda] [--prompts FILE] CHECKPOINT...
Needs: torch, transformers >= 5.17, safetensors.
"""
import argparse
import json
import pathlib

import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM


def stable_topk(self, k, dim=-1, largest=True, sorted=True):
    values, indices = torch.sort(self, dim=dim, descending=largest, stable=True)
    return torch.return_types.topk((values.narrow(dim, 0, k), indices.narrow(dim, 0, k)))


torch.Tensor.topk = stable_topk


def logits_of(folder, ids, dtype, device):
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, attn_implementation="eager").to(device).eval()
    with torch.no_grad():
        return model(ids.to(device), use_cache=False).logits[0].double().cpu()


def prompts_of(folder, prompts):
    """(name, ids [1, T], logits [T, V] of the file or None) of each prompt."""
    if prompts:
        return [(entry["name"], torch.tensor(entry["ids"]).view(1, -1), None) for entry in prompts]
    reference = load_file(str(folder / "reference.safetensors"))
    return [(folder.name, reference["input_ids"].long().view(1, -1), reference["logits"].double())]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--prompts", type=pathlib.Path)
    parser.add_argument("checkpoint", nargs="+", type=pathlib.Path)
    arguments = parser.parse_args()
    prompts = json.loads(arguments.prompts.read_text()) if arguments.prompts else None
    print(f"torch {torch.__version__}, {arguments.device}")
    print(f"{'prompt':24s} {'rows':>5s} {'max |logit|':>12s} {'f32 to file':>12s} {'bf16, max':>10s} "
          f"{'bf16, KL mean':>14s} {'same top':>9s}")
    for folder in arguments.checkpoint:
        for name, ids, rows in prompts_of(folder, prompts):
            exact = logits_of(folder, ids, torch.float32, arguments.device)
            rounded = logits_of(folder, ids, torch.bfloat16, arguments.device)
            log_p, log_q = exact.log_softmax(-1), rounded.log_softmax(-1)
            divergence = (log_p.exp() * (log_p - log_q)).sum(-1).mean().item()
            same = (exact.argmax(-1) == rounded.argmax(-1)).double().mean().item()
            to_file = f"{(exact - rows).abs().max().item():12.2e}" if rows is not None else f"{'-':>12s}"
            print(f"{name:24s} {ids.shape[1]:5d} {exact.abs().max().item():12.2f} {to_file} "
                  f"{(exact - rounded).abs().max().item():10.4f} {divergence:14.3e} {100 * same:8.1f}%", flush=True)


if __name__ == "__main__":
    main()
