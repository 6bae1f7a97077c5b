#!/usr/bin/env bash
# Builds the cuda backend, checks it and times it on one H200: what bench/results/h200.csv is made from.
#   bench/h200.sh [PROGRAMS]   needs nvcc 13 and the packages of `./do setup`, or PROGRAMS: a folder with the programs of
#                              tools/bundle.sh (warmpath, ops_test, model_test); PyTorch for the ceilings
# The sections stand in the order of cost; each prints what it ran.
set -euo pipefail
cd "$(dirname "$0")/.."
programs=${1:-build/cuda}
if [ $# -eq 0 ]; then
  mkdir -p build
  cmake -S . -B build/cuda -G Ninja -DCMAKE_BUILD_TYPE=Release -DWP_CUDA=ON
  ninja -C build/cuda warmpath ops_test model_test
fi
readonly warmpath="$programs/warmpath" mini=models/flash-next-mini out=${OUT:-build/h200}
readonly flagship=configs/qwen3.8-flash-next.json dense=configs/qwen3.8-27b.json
mkdir -p "$out"
run() { printf '\n$ %s\n' "$*" >&2; "$@"; }
gpu() { run "$warmpath" "$@" --device cuda; }

# Ceilings, through PyTorch.
run python3 bench/peers/ceilings.py | tee "$out/ceilings.txt"
peak=$(awk '/bf16 product/ { print $4 }' "$out/ceilings.txt")

# Checks: operations, numerics by equal bits, fixtures, the bundled model, the cache on and off.
run "$programs/ops_test" --gtest_brief=1
run "$programs/model_test" --gtest_brief=1 --gtest_filter='*cuda*:Synthetic*'
for reference in testdata/*/*/reference.safetensors; do
  gpu kl "$(dirname "$reference")" --reference "$reference" | tail -1
done
gpu kl "$mini" --reference "$mini/reference/logits.safetensors" | tail -2
gpu replay "$mini" "$mini/replay/agentic-200.jsonl" --no-turns --json "$out/on.json" | head -5
gpu replay "$mini" "$mini/replay/agentic-200.jsonl" --no-turns --json "$out/off.json" --no-cache | head -5
run "$warmpath" replay --compare "$out/on.json" "$out/off.json"

# The flagship's geometry with random NVFP4 weights.
gpu synth "$flagship" --in-memory
gpu bench --synth "$flagship" -p 2048,8192,32768 -n 64 -d 0 -r 5 -ub 8192 --peak-tflops "$peak"
gpu bench --synth "$flagship" -p 0 -n 64 -d 8192,131072 --batch 1,8,32 -r 5 -ub 8192 --peak-tflops "$peak"
gpu profile --synth "$flagship" -p 8192 --peak-tflops "$peak" | tee "$out/profile-8192.txt"
# Time to the first token through the engine: 2,048 tokens, and 300 new ones behind 27,000.
gpu replay "$mini" --synth "$flagship" --synthetic turns=1,start=2048,new=1 --sequences 2 --context-tokens 32768
gpu replay "$mini" --synth "$flagship" --synthetic turns=6,start=27000,new=300 --sequences 2 --context-tokens 40960
gpu replay "$mini" --synth "$flagship" --synthetic turns=60,start=8000,new=330 --sequences 2 --context-tokens 40960

# The dense hybrid of 27 billion.
for quant in nvfp4 bf16; do
  gpu bench --synth "$dense" --quant "$quant" -p 8192 -n 64 -d 0 -r 5 -ub 8192 --peak-tflops "$peak"
done

# Loading: a checkpoint of as many layers as the disk holds, from page cache.
if [ -n "${LOAD_CONFIG:-}" ]; then
  run "$warmpath" synth "$LOAD_CONFIG" "$out/checkpoint"
  for _ in 1 2 3; do gpu bench "$out/checkpoint" -p 64 -n 1 -r 1 2>&1 | grep load; done
  rm -rf "$out/checkpoint"
fi

if [ $# -eq 0 ] && command -v compute-sanitizer >/dev/null; then
  for tool in memcheck racecheck; do
    run compute-sanitizer --tool "$tool" --error-exitcode 1 \
      "$programs/model_test" --gtest_filter='*WholePrompt*tiny_nvfp4_cuda'
  done
fi
