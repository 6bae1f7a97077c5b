#!/usr/bin/env bash
# Builds the cuda backend, checks it and times it on one H200: what bench/results/h200.csv is made from.
#   bench/h200.sh        needs nvcc 13, the packages of `./do setup`, and PyTorch for the ceilings
set -euo pipefail
cd "$(dirname "$0")/.."
mkdir -p build
cmake -S . -B build/cuda -G Ninja -DCMAKE_BUILD_TYPE=Release -DWP_CUDA=ON
ninja -C build/cuda ops_test model_test model_bench
build/cuda/ops_test
# Fixtures, the bundled model's reference, and equal bits whatever the pieces, neighbours and batch.
build/cuda/model_test --gtest_filter='*cuda*' --gtest_output=xml:build/cuda/model.xml
grep -oE '(testcase|property) name="[^"]*"( value="[^"]*")?' build/cuda/model.xml
for _ in 1 2 3; do build/cuda/model_bench --device=cuda --repeat=5; done
build/cuda/model_bench --device=cuda --repeat=5 --prefill=512 --context=64
for tool in memcheck racecheck; do
  compute-sanitizer --tool "$tool" --error-exitcode 1 \
    build/cuda/model_test --gtest_filter='*WholePrompt*tiny_nvfp4_cuda'
done
python3 bench/peers/ceilings.py
