#!/usr/bin/env python3
"""Write reference fixtures for the forward pass, computed by Hugging Face transformers.

Each fixture is a small random model saved in the Hugging Face layout, plus what
transformers computes from it:

  <name>/config.json, model*.safetensors   the checkpoint, exactly as save_pretrained writes it
  <name>/reference.safetensors
      input_ids        [T]            int64
      logits           [T, V]         float32, one uncached pass over all T tokens
      hidden.<l>       [T, H_l]       float32, input of decoder layer l (l = 0..L-1); for qwen4_exp H_l is
                                      hc_count * hidden_size; hidden.<L> is the model's last hidden state
      logits_cached    [T, V]         float32, the same tokens through the cache in the pieces given in
                                      reference.json: prefill pieces, then one token at a time
      greedy           [G]            int64, G tokens generated greedily after input_ids
  <name>/reference.json               pieces, seed, versions, max |logits - logits_cached|

All arithmetic is float32 on the CPU (eager attention), whatever dtype the checkpoint is stored in.
Ties in the index scores (ReLU makes exact zeros common) are broken in favour of the lower block index:
torch.topk leaves their order open, so the indexer's topk is replaced by a stable sort here.
Weights are drawn larger than a training init would be, so that every mechanism moves the logits.

usage: make_golden.py OUT_DIR [--only NAME] [--seed-offset N]
Needs: torch, transformers >= 5.17, safetensors.
"""
import argparse
import json
import math
import pathlib

import torch
import transformers
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM
from transformers.models.qwen3_5.configuration_qwen3_5 import Qwen3_5TextConfig
from transformers.models.qwen3_5_moe.configuration_qwen3_5_moe import Qwen3_5MoeTextConfig
from transformers.models.qwen3_next.configuration_qwen3_next import Qwen3NextConfig
from transformers.models.qwen4_exp.configuration_qwen4_exp import Qwen4ExpTextConfig



def stable_topk(self, k, dim=-1, largest=True, sorted=True):
    """topk whose ties go to the lower index."""
    values, indices = torch.sort(self, dim=dim, descending=largest, stable=True)
    return torch.return_types.topk((values.narrow(dim, 0, k), indices.narrow(dim, 0, k)))


torch.Tensor.topk = stable_topk          # the indexer calls the method; the router calls torch.topk and has no ties

ROPE = {"rope_type": "default", "rope_theta": 10_000_000.0, "partial_rotary_factor": 0.25,
        "mrope_section": [11, 11, 10], "mrope_interleaved": True}


def rope(rotary_dim):
    """Rope parameters whose three mrope sections fill rotary_dim // 2 frequencies."""
    half = rotary_dim // 2
    a = half // 3
    return dict(ROPE, mrope_section=[half - 2 * a, a, a])


def qwen4(**kw):
    base = dict(vocab_size=320, hidden_size=64, num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=2,
                head_dim=32, linear_num_key_heads=2, linear_num_value_heads=6, linear_key_head_dim=16,
                linear_value_head_dim=16, moe_intermediate_size=32, shared_expert_intermediate_size=48,
                num_experts=8, num_experts_per_tok=3, hc_count=4, hc_lowrank=8, ple_layer_ids=[2], ple_embed_dim=64,
                ple_conv_kernel_size=4, ngram_size=3, heads_per_ngram=4, ngram_vocab_size_base=500,
                make_ngram_vocab_size_divisible_by=128, seed=1234, split_ngram_parts=4, indexer_n_heads=2,
                indexer_kv_heads=1, indexer_head_dim=16, indexer_budget=32, indexer_compress_ratio=4,
                output_gate_type="sigmoid", eos_token_id=7, bos_token_id=None, max_position_embeddings=4096,
                rope_parameters=rope(8))
    base.update(kw)
    return Qwen4ExpTextConfig(**base)


def fixtures():
    real_heads = dict(head_dim=256, num_attention_heads=6, num_key_value_heads=1, linear_key_head_dim=128,
                      linear_value_head_dim=128, indexer_head_dim=128, indexer_n_heads=4, rope_parameters=rope(64))
    q35 = dict(vocab_size=320, hidden_size=64, num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=2,
               head_dim=32, linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=16,
               linear_value_head_dim=16, max_position_embeddings=4096, rope_parameters=rope(8), eos_token_id=7)
    return [
        # name, config, tokens, pieces of the cached pass (then single tokens), generated tokens, stored dtype
        ("qwen4-tiny", qwen4(), 150, [70, 1, 37], 24, torch.float32),
        ("qwen4-tiny-bf16", qwen4(vocab_size=300), 150, [64, 64], 24, torch.bfloat16),
        ("qwen4-two-ple", qwen4(num_hidden_layers=8, ple_layer_ids=[1, 6], ngram_size=4, heads_per_ngram=2,
                                ple_embed_dim=48, hc_count=2, split_ngram_parts=2), 120, [3, 90], 16, torch.float32),
        ("qwen4-no-ple-silu", qwen4(ple_layer_ids=None, output_gate_type=None, norm_topk_prob=True,
                                    num_experts_per_tok=1), 120, [100], 16, torch.float32),
        ("qwen4-real-heads", qwen4(num_hidden_layers=4, linear_num_key_heads=1, linear_num_value_heads=3,
                                   indexer_budget=64, **real_heads), 200, [129, 33], 16, torch.bfloat16),
        ("qwen4-eos-inside", qwen4(), 90, [2, 1, 1, 40], 8, torch.float32),
        ("qwen35-dense", Qwen3_5TextConfig(intermediate_size=96, **q35), 150, [65, 40], 24, torch.float32),
        ("qwen35-moe", Qwen3_5MoeTextConfig(moe_intermediate_size=32, shared_expert_intermediate_size=32,
                                            num_experts=8, num_experts_per_tok=2, **q35), 150, [64, 64], 24,
         torch.bfloat16),
        ("qwen3-next", Qwen3NextConfig(vocab_size=320, hidden_size=64, num_hidden_layers=4, num_attention_heads=4,
                                       num_key_value_heads=2, head_dim=32, intermediate_size=96,
                                       linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=16,
                                       linear_value_head_dim=16, moe_intermediate_size=32,
                                       shared_expert_intermediate_size=32, num_experts=8, num_experts_per_tok=2,
                                       max_position_embeddings=4096, eos_token_id=7,
                                       rope_parameters={"rope_type": "default", "rope_theta": 10000.0,
                                                        "partial_rotary_factor": 0.25}), 150, [70, 1, 37], 24,
         torch.float32),
    ]


def randomise(model, generator):
    """Draw every parameter so that no mechanism is inert: unit-gain projections, norms off their centre."""
    with torch.no_grad():
        for name, p in model.named_parameters():
            r = torch.randn(p.shape, generator=generator)
            if name.endswith("A_log"):
                p.copy_(torch.empty(p.shape).uniform_(0.02, 4.0, generator=generator).log())
            elif name.endswith("dt_bias"):
                p.copy_(r * 0.5)
            elif "conv1d" in name:
                p.copy_(r * 0.5)
            elif p.ndim == 1:                      # norm weights: around 0 for (1 + w) norms, around 1 for plain ones
                p.copy_(r * 0.2 + (1.0 if p.mean() > 0.5 else 0.0))
            elif "embed" in name:
                p.copy_(r * 0.8)
            else:
                p.copy_(r * (1.3 / math.sqrt(p.shape[-1])))


def build(name, config, tokens, pieces, n_greedy, dtype, out, seed):
    g = torch.Generator().manual_seed(seed)
    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager")
    randomise(model, g)
    model = model.to(dtype)
    folder = out / name
    folder.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()

    vocab = config.vocab_size
    ids = torch.randint(10, vocab, (1, tokens), generator=g)
    rep = torch.randint(0, tokens - 40, (1,), generator=g).item()
    ids[0, -20:] = ids[0, rep:rep + 20]            # some n-grams come back
    if "eos" in name:
        ids[0, [0, 17, 18, 44, 60]] = 7
    hidden = {}
    hooks = []
    for i, layer in enumerate(model.model.layers):
        def grab(module, args, kwargs, i=i):
            x = args[0] if args else kwargs["hidden_states"]
            hidden[f"hidden.{i}"] = x[0].float().clone()
        hooks.append(layer.register_forward_pre_hook(grab, with_kwargs=True))
    with torch.no_grad():
        full = model(ids, use_cache=False, output_hidden_states=False)
        last = model.model(ids, use_cache=False).last_hidden_state[0]
    for h in hooks:
        h.remove()
    hidden[f"hidden.{len(model.model.layers)}"] = last.float().clone()

    cached, cache, at = [], None, 0
    plan = list(pieces) + [1] * (tokens - sum(pieces))
    with torch.no_grad():
        for n in plan:
            o = model(ids[:, at:at + n], past_key_values=cache, use_cache=True)
            cache, at = o.past_key_values, at + n
            cached.append(o.logits[0].float())
        cached = torch.cat(cached)
        cur, greedy = ids, []
        for _ in range(n_greedy):                  # uncached: the plainest definition of greedy decoding
            nxt = model(cur, use_cache=False).logits[0, -1].argmax().view(1, 1)
            greedy.append(nxt.item())
            cur = torch.cat([cur, nxt], dim=1)
    logits = full.logits[0].float()
    diff = (logits - cached).abs().max().item()
    tensors = {"input_ids": ids[0], "logits": logits, "logits_cached": cached,
               "greedy": torch.tensor(greedy, dtype=torch.int64), **hidden}
    save_file({k: v.contiguous() for k, v in tensors.items()}, str(folder / "reference.safetensors"))
    info = {"pieces": plan, "seed": seed, "stored_dtype": str(dtype).removeprefix("torch."),
            "max_abs_logit": logits.abs().max().item(), "max_abs_diff_cached": diff,
            "versions": {"torch": torch.__version__, "transformers": transformers.__version__}}
    (folder / "reference.json").write_text(json.dumps(info, indent=1) + "\n")
    size = sum(f.stat().st_size for f in folder.iterdir())
    print(f"{name:22s} T={tokens} max|logit|={info['max_abs_logit']:.2f} cached diff={diff:.2e} {size/1e6:.2f} MB")


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("out", type=pathlib.Path)
    ap.add_argument("--only")
    ap.add_argument("--seed-offset", type=int, default=0)
    a = ap.parse_args()
    torch.set_num_threads(8)
    for i, (name, config, tokens, pieces, n_greedy, dtype) in enumerate(fixtures()):
        if a.only and a.only != name:
            continue
        try:
            build(name, config, tokens, pieces, n_greedy, dtype, a.out, 100 + i + a.seed_offset)
        except Exception as e:                      # report and go on: one failing family must not hide the rest
            print(f"{name:22s} FAILED {type(e).__name__}: {e}")


if __name__ == "__main__":
    main()
