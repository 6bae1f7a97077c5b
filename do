#!/usr/bin/env bash
# Everything a developer or a user does with this repository. `./do help` lists it.
set -euo pipefail
cd "$(dirname "$0")"

readonly packages=(
  g++ cmake ninja-build pkg-config git ca-certificates python3 python3-venv
  libboost1.81-dev libsimdjson-dev nlohmann-json3-dev libpcre2-dev libicu-dev libcli11-dev libspdlog-dev libfmt-dev
  prometheus-cpp-dev libxxhash-dev libzstd-dev libhwy-dev zlib1g-dev libcurl4-openssl-dev
)
readonly test_packages=(
  libgtest-dev libgmock-dev librapidcheck-dev libbenchmark-dev clang-format lld
  chromium-headless-shell fonts-dejavu-core
)
readonly ci_packages=(clang libclang-rt-14-dev g++-aarch64-linux-gnu qemu-user-static)
readonly python_packages=(openai==3.57.0 anthropic==2.17.0)
# What compiles the cuda backend where no nvcc 13 is installed.
readonly cuda_packages=(nvidia-cuda-{nvcc,crt,runtime,cccl}==13.0.* nvidia-nvvm==13.0.*)
readonly cores=$(nproc)
readonly model=models/flash-next-mini

say() { printf '%s\n' "$*" >&2; }

# install NAME...: Debian packages that are missing, by name; with sudo where not root.
install() {
  local missing=()
  for package in "$@"; do
    dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'install ok installed' || missing+=("$package")
  done
  [ ${#missing[@]} -eq 0 ] && return
  command -v apt-get >/dev/null || { say "do: expected Debian or Ubuntu with apt-get, found neither; install by hand: ${missing[*]}"; exit 1; }
  local root=()
  if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null || { say "do: expected root or sudo to install: ${missing[*]}"; exit 1; }
    root=(sudo)
  fi
  say "installing ${missing[*]}"
  "${root[@]}" apt-get update -qq
  "${root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
}

# configure DIR ARGS...: once; CMake finds new files by itself afterwards.
configure() {
  local dir=$1
  shift
  [ -f "$dir/build.ninja" ] || cmake -S . -B "$dir" -G Ninja "$@" >"$dir.log" 2>&1 ||
    { cat "$dir.log" >&2; rm -rf "$dir"; exit 1; }
}

# compile DIR TARGET...: quiet when all is well. Where the last lines matter (an error), they are shown whole.
compile() {
  local dir=$1
  shift
  if [ -t 2 ]; then
    ninja -C "$dir" "$@" >&2
  else
    ninja -C "$dir" "$@" >"$dir/ninja.log" 2>&1 || { grep -vE '^\[[0-9]+/[0-9]+\] Building' "$dir/ninja.log" >&2; exit 1; }
  fi
}

binary_is_fresh() {
  [ -x build/release/warmpath ] && [ -z "$(find src web CMakeLists.txt -newer build/release/warmpath -type f -print -quit)" ]
}

# The CMake options of the cuda backend: with the nvcc 13 that is installed, else with the one of PyPI.
cuda_options() {
  cuda_options=(-DWP_CUDA=ON)
  nvcc --version 2>/dev/null | grep -q 'release 13\.' && return
  local venv=build/cuda-venv
  if [ ! -f "$venv/done" ]; then
    say "installing nvcc 13.0 in $venv"
    rm -rf "$venv"
    python3 -m venv "$venv"
    "$venv"/bin/pip install -q --disable-pip-version-check "${cuda_packages[@]}"
    touch "$venv/done"
  fi
  cuda_options+=("-DWP_CUDA_ROOT=$(echo "$PWD/$venv"/lib/python3*/site-packages/nvidia/cu13)")
}

# The cuda backend too, in the same folder: three files of the host differ.
build_with_cuda() {
  install "${packages[@]}"
  mkdir -p build
  cuda_options
  say "building build/release/warmpath with the cuda backend"
  cmake -S . -B build/release -G Ninja -DCMAKE_BUILD_TYPE=Release "${cuda_options[@]}" >build/release.log 2>&1 ||
    { cat build/release.log >&2; exit 1; }
  compile build/release warmpath
}

build_release() {
  binary_is_fresh && return
  install "${packages[@]}"
  mkdir -p build
  say "building build/release/warmpath (the first time takes a few minutes)"
  configure build/release -DCMAKE_BUILD_TYPE=Release -DWP_TESTS=OFF
  compile build/release warmpath
}

setup_tests() {
  install "${packages[@]}" "${test_packages[@]}"
  mkdir -p build
  local stamp="build/venv/${python_packages[*]}"
  if [ ! -f "${stamp// /+}" ]; then
    rm -rf build/venv
    python3 -m venv build/venv
    build/venv/bin/pip install -q --disable-pip-version-check "${python_packages[@]}"
    touch "${stamp// /+}"
  fi
}

# run_programs DIR LABEL [GTEST_ARGS...]: every test program of a build; adds up passed and failed.
passed=0 failed=0
run_programs() {
  local dir=$1 label=$2 program log
  shift 2
  for program in "$dir"/*_test; do
    [ -x "$program" ] || continue
    log="$program.log"
    local begin=$SECONDS status=0
    "$program" "$@" >"$log" 2>&1 || status=$?
    local good bad
    good=$(grep -cE '^\[       OK \]' "$log" || true)
    bad=$(grep -cE '^\[  FAILED  \] .*\([0-9]+ ms\)$' "$log" || true)
    # A program that ended before its own last line (a crash, a sanitizer report) is one more failure.
    [ "$status" -eq 0 ] || [ "$bad" -gt 0 ] || bad=1
    passed=$((passed + good)) failed=$((failed + bad))
    printf '%-8s %-16s %4d passed %3d failed  %4d s\n' "$label" "$(basename "$program")" "$good" "$bad" $((SECONDS - begin))
    [ "$bad" -eq 0 ] || tail -n 60 "$log"
  done
}

# count LABEL COMMAND...: one check that is not a test program.
count() {
  local label=$1 begin=$SECONDS log=build/check.log
  shift
  if "$@" >"$log" 2>&1; then
    passed=$((passed + 1))
    printf '%-25s ok  %4d s\n' "$label" $((SECONDS - begin))
  else
    failed=$((failed + 1))
    printf '%-25s FAILED\n' "$label"
    tail -n 60 "$log"
  fi
}

# Each fuzzer of a build on one fixed and one fresh seed, over its corpus.
run_fuzzers() {
  local dir=$1 runs=$2 program name
  for program in "$dir"/*_fuzz; do
    [ -x "$program" ] || continue
    name=$(basename "$program")
    local corpus=()
    [ -d "testdata/fuzz/${name%_fuzz}" ] && corpus=("testdata/fuzz/${name%_fuzz}")
    for seed in 1 $((RANDOM * 32768 + RANDOM)); do
      count "fuzz $name $seed" "$program" --seed=$seed --runs="$runs" "${corpus[@]}"
    done
  done
}

run_benches_tiny() {
  local program
  for program in build/release/*_bench; do
    [ -x "$program" ] || continue
    count "bench $(basename "$program")" "$program" --smoke --benchmark_min_time=0.001
  done
}

finish() {
  printf '%d passed, %d failed\n' "$passed" "$failed"
  [ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
}

# configure_tests [TARGET...]: the release build with its tests, or of these alone: the same libraries as `./do build`,
# nothing is compiled twice.
configure_tests() {
  mkdir -p build
  cuda_options
  cmake -S . -B build/release -G Ninja -DCMAKE_BUILD_TYPE=Release -DWP_TESTS=ON "${cuda_options[@]}" \
    >build/release.log 2>&1 || { cat build/release.log >&2; exit 1; }
  compile build/release "$@"
}

cmd_setup() { setup_tests; }

cmd_build() {
  case "${1:-}" in
    --cuda) build_with_cuda ;;
    "") build_release ;;
    *) say "do build: expected --cuda or nothing, found $1"; exit 2 ;;
  esac
}

cmd_run() {
  build_release
  exec build/release/warmpath serve "$model" "$@"
}

cmd_tidy() { python3 tools/tidy.py "$@"; }

cmd_test() {
  setup_tests
  count tidy python3 tools/tidy.py
  configure_tests
  count "cuda for sm_120a, sm_121a" ninja -C build/release gpu_other_architectures
  run_programs build/release release
  run_benches_tiny
  run_fuzzers build/release 2000
  # What reads files, texts and tokens of strangers; `./do ci` instruments everything.
  configure build/asan -DCMAKE_BUILD_TYPE=Debug -DWP_SANITIZE=address,undefined
  compile build/asan core_test weights_test text_test cache_test engine_test sim_test ops_test
  run_programs build/asan sanitize
  finish
}

cmd_ci() {
  install "${ci_packages[@]}"
  setup_tests
  # The second compiler, and the thread sanitizer over what runs on several threads.
  CXX=clang++ configure build/clang -DCMAKE_BUILD_TYPE=Release
  compile build/clang
  run_programs build/clang clang
  count "bits: clang, NEON" tools/canonical_bits.sh
  configure build/tsan -DCMAKE_BUILD_TYPE=Debug -DWP_SANITIZE=thread
  compile build/tsan core_test engine_test cache_test serve_test
  run_programs build/tsan thread
  configure build/asan -DCMAKE_BUILD_TYPE=Debug -DWP_SANITIZE=address,undefined
  compile build/asan
  run_fuzzers build/asan 2000
  cmd_test
}

# fuzz_test PROGRAM FILTER RUNS SEED: a test that can go on for long, for as long as that.
fuzz_test() {
  local program=$1 filter=$2 runs=$3 seed=$4
  configure_tests "$program"
  say "seed $seed, $runs runs"
  exec build/release/"$program" --gtest_filter="$filter" --runs="$runs" --seed="$seed"
}

# fuzz [NAME [SEED]]: on libFuzzer for longer; without a name, lists them.
cmd_fuzz() {
  local name=${1:-} seed=${2:-$((RANDOM * 32768 + RANDOM))} seconds=${FUZZ_SECONDS:-900}
  setup_tests
  case "$name" in
    kill) fuzz_test e2e_test 'Kill.*' "${FUZZ_RUNS:-200}" "$seed" ;;
    sim) fuzz_test sim_test 'EngineSim.AnyHistory*' "${FUZZ_RUNS:-1000000}" "$seed" ;;
    "")
      { find src -name '*_fuzz.cpp' -exec basename {} _fuzz.cpp \; && printf '%s\n' kill sim; } | sort
      return
      ;;
  esac
  install "${ci_packages[@]}"
  CXX=clang++ configure build/fuzz -DCMAKE_BUILD_TYPE=Debug -DWP_SANITIZE=address,undefined -DWP_FUZZERS=ON
  compile build/fuzz "${name}_fuzz"
  mkdir -p "build/corpus/$name" "testdata/fuzz/$name"
  build/fuzz/"${name}_fuzz" -seed="$seed" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=4096 "build/corpus/$name" "testdata/fuzz/$name"
}

cmd_bench() {
  setup_tests
  configure_tests
  local program
  for program in build/release/*_bench; do "$program" "$@"; done
}

cmd_help() {
  cat <<'HELP'
./do run [FLAGS]        install what is missing, build, serve the bundled model on 127.0.0.1:8080
./do test               install what is missing, build and run every test
./do build [--cuda]     build build/release/warmpath, with the cuda backend where asked
./do bench [FLAGS]      kernel benchmarks (Google Benchmark flags)
./do fuzz [NAME [SEED]] list the fuzzers, or run one on libFuzzer (FUZZ_SECONDS=900); `kill`: 200 kills of a
                        server at random moments of a replay; `sim`: 1000000 random operations on a simulated
                        engine with all tiers (FUZZ_RUNS=N for another number)
./do tidy               formatting, layers, sizes, dead files, vendor calls
./do ci                 all of test, the second compiler, the thread sanitizer
./do setup              install what tests need and nothing else
HELP
}

command=${1:-help}
[ $# -gt 0 ] && shift
case "$command" in
  setup | build | run | test | fuzz | bench | tidy | ci | help) "cmd_$command" "$@" ;;
  *)
    say "do: expected setup, build, run, test, fuzz, bench, tidy, ci or help, found $command"
    exit 2
    ;;
esac
