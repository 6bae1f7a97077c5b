#!/usr/bin/env python3
"""Rewrite a BF16 qwen4_exp checkpoint the way the NVFP4 releases of the flagship are stored, or back.

usage: quantise.py IN_DIR OUT_DIR                  BF16 -> NVFP4 experts, FP8 n-gram table, the rest BF16
       quantise.py --dequantise IN_DIR OUT_DIR     the same weights as plain BF16, exactly

  routed experts   NVFP4, modelopt naming: weight U8 [out, in/2], weight_scale F8_E4M3 [out, in/16],
                   weight_scale_2 F32 [], input_scale F32 [] (1.0: weight-only use ignores it)
  n-gram table     F8_E4M3 with one BF16 scale for the whole table
  everything else  BF16, byte for byte (the MTP head too)

Round to nearest, ties to even. Block scale = the E4M3 value nearest amax / 6 in units of the per-tensor scale. Per-tensor
scales are powers of two, so that every dequantised weight is a BF16 number: a BF16 engine and an NVFP4 engine then hold
the very same weights. Needs numpy only.
"""
import json
import pathlib
import struct
import sys

import numpy as np

E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], dtype=np.float64)
GROUP = 16


def e4m3_values():
    """All finite non-negative E4M3 (fn) values, by code 0x00..0x7e."""
    codes = np.arange(0x7F)
    exponent, mantissa = codes >> 3, codes & 7
    return np.where(exponent == 0, mantissa * 2.0 ** -9, (8 + mantissa) * 2.0 ** (exponent - 10.0))


E4M3 = e4m3_values()


def power_of_two(x):
    """The smallest power of two >= x."""
    return 2.0 ** np.ceil(np.log2(max(x, 2.0 ** -60)))


def nearest_code(x, table):
    """Index of the entry of an ascending table nearest to each x >= 0; ties go to the even index."""
    hi = np.searchsorted(table, x).clip(1, len(table) - 1)
    lo = hi - 1
    d_lo, d_hi = x - table[lo], table[hi] - x
    pick_hi = (d_hi < d_lo) | ((d_hi == d_lo) & (hi % 2 == 0))
    return np.where(pick_hi, hi, lo)


def to_e4m3(x):
    code = nearest_code(np.abs(x).clip(max=448.0), E4M3).astype(np.uint8)
    return code | (np.signbit(x) & (code > 0)).astype(np.uint8) << 7


def to_nvfp4(w):
    """w [out, in] float -> packed U8 [out, in/2], scales E4M3 codes [out, in/16], scale_2 float32."""
    out, width = w.shape
    scale_2 = np.float32(power_of_two(np.abs(w).max() / (6 * 448.0)))
    groups = w.reshape(out, width // GROUP, GROUP)
    scale_code = nearest_code((np.abs(groups).max(-1) / 6 / scale_2).clip(max=448.0), E4M3).astype(np.uint8)
    step = (E4M3[scale_code] * scale_2)[..., None]
    scaled = np.divide(groups, step, out=np.zeros_like(groups), where=step > 0)
    code = nearest_code(np.abs(scaled).clip(max=6.0), E2M1).astype(np.uint8)
    nibble = (code | (np.signbit(scaled) & (code > 0)).astype(np.uint8) << 3).reshape(out, width)
    return nibble[:, 0::2] | nibble[:, 1::2] << 4, scale_code, scale_2


def read(folder):
    for path in sorted(folder.glob("model*.safetensors")):
        raw = path.read_bytes()
        size = struct.unpack("<Q", raw[:8])[0]
        for name, entry in json.loads(raw[8:8 + size]).items():
            if name != "__metadata__":
                begin, end = entry["data_offsets"]
                yield name, entry["dtype"], entry["shape"], raw[8 + size + begin:8 + size + end]


def bf16(data, shape):
    return (np.frombuffer(data, "<u2").astype(np.uint32) << 16).view(np.float32).reshape(shape).astype(np.float64)


def bf16_bytes(value):
    bits = np.float32(value).view(np.uint32)
    return struct.pack("<H", int((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16))


def from_nvfp4(packed, scale_code, scale_2):
    """The inverse of to_nvfp4, exact: float64 [out, in]."""
    nibble = np.empty((packed.shape[0], packed.shape[1] * 2), np.uint8)
    nibble[:, 0::2], nibble[:, 1::2] = packed & 15, packed >> 4
    value = E2M1[nibble & 7] * np.where(nibble & 8, -1.0, 1.0)
    step = E4M3[scale_code] * float(scale_2)
    return (value.reshape(*scale_code.shape, GROUP) * step[..., None]).reshape(nibble.shape)


def from_e4m3(code):
    return E4M3[code & 0x7F] * np.where(code & 0x80, -1.0, 1.0)


def exact_bf16(w):
    bits = w.astype(np.float32).view(np.uint32)
    assert not (bits & 0xFFFF).any() and (w.astype(np.float32) == w).all(), "not a BF16 number"
    return (bits >> 16).astype("<u2").tobytes()


def quantise(tensors):
    """tensors: name -> (dtype, shape, bytes). Returns the same with experts and n-gram tables re-encoded."""
    out, tables = {}, {}
    for name, (dtype, shape, data) in tensors.items():
        if name.startswith("model.") and ".mlp.experts." in name and name.endswith(".weight"):
            packed, scale, scale_2 = to_nvfp4(bf16(data, shape))
            out[name] = ("U8", list(packed.shape), packed.tobytes())
            out[name + "_scale"] = ("F8_E4M3", list(scale.shape), scale.tobytes())
            out[name + "_scale_2"] = ("F32", [], scale_2.tobytes())
            out[name.removesuffix("weight") + "input_scale"] = ("F32", [], np.float32(1).tobytes())
        elif ".ngram_embedding.shard_" in name:
            tables.setdefault(name.split(".shard_")[0], {})[name] = (shape, bf16(data, shape))
        else:
            out[name] = (dtype, shape, data)
    for prefix, shards in tables.items():
        step = power_of_two(max(np.abs(w).max() for _, w in shards.values()) / 448.0)
        for name, (shape, w) in shards.items():
            out[name] = ("F8_E4M3", shape, to_e4m3(w / step).tobytes())
        out[prefix + ".weight_scale"] = ("BF16", [1], exact_bf16(np.array([step])))
    return out


def dequantise(tensors):
    out = {}
    for name, (dtype, shape, data) in tensors.items():
        if name.endswith(("_scale", "_scale_2")):
            continue
        if dtype == "U8":
            scale = np.frombuffer(tensors[name + "_scale"][2], np.uint8).reshape(tensors[name + "_scale"][1])
            w = from_nvfp4(np.frombuffer(data, np.uint8).reshape(shape), scale,
                           np.frombuffer(tensors[name + "_scale_2"][2], "<f4")[0])
            out[name] = ("BF16", list(w.shape), exact_bf16(w))
        elif dtype == "F8_E4M3":
            step = bf16(tensors[name.split(".shard_")[0] + ".weight_scale"][2], [1])[0]
            out[name] = ("BF16", shape, exact_bf16(from_e4m3(np.frombuffer(data, np.uint8)) * step))
        else:
            out[name] = (dtype, shape, data)
    return out


def write(folder, tensors, groups):
    """One file per group, in the manner of the releases, and the index. groups: [(file stem, predicate)]."""
    folder.mkdir(parents=True, exist_ok=True)
    weight_map = {}
    for stem, belongs in groups:
        names = sorted(n for n in tensors if n not in weight_map and belongs(n))
        if not names:
            continue
        header, at = {"__metadata__": {"format": "pt"}}, 0
        for n in names:
            dtype, shape, data = tensors[n]
            header[n] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(data)]}
            at += len(data)
        text = json.dumps(header, separators=(",", ":")).encode()
        text += b" " * (-len(text) % 8)
        with open(folder / f"{stem}.safetensors", "wb") as f:
            f.write(struct.pack("<Q", len(text)) + text)
            for n in names:
                f.write(tensors[n][2])
        weight_map.update({n: f"{stem}.safetensors" for n in names})
    total = sum(len(d) for _, _, d in tensors.values())
    index = {"metadata": {"total_size": total}, "weight_map": dict(sorted(weight_map.items()))}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=1) + "\n")
    print(f"{folder.name}: {len(weight_map)} tensors, {total / 1e6:.1f} MB")


def main(source, target, back):
    tensors = {name: (dtype, shape, data) for name, dtype, shape, data in read(source)}
    config = json.loads((source / "config.json").read_text())
    if back:
        tensors = dequantise(tensors)
        config.pop("quantization_config")
    else:
        tensors = quantise(tensors)
        config["quantization_config"] = {
            "quant_method": "modelopt", "quant_algo": "NVFP4", "group_size": GROUP,
            "ignore": ["*embed_tokens*", "lm_head", "mtp.*", "*self_attn*", "*linear_attn*", "*mlp.gate*",
                       "*shared_expert*", "*hyper_connection*", "*.ple.*"]}
    write(target, tensors, [("model-experts", lambda n: ".mlp.experts." in n and n.startswith("model.")),
                            ("model-ple", lambda n: ".ngram_embedding" in n),
                            ("model-mtp", lambda n: n.startswith("mtp.")),
                            ("model-dense", lambda n: True)])
    (target / "config.json").write_text(json.dumps(config, indent=1) + "\n")


if __name__ == "__main__":
    arguments = [a for a in sys.argv[1:] if a != "--dequantise"]
    main(pathlib.Path(arguments[0]), pathlib.Path(arguments[1]), "--dequantise" in sys.argv)
