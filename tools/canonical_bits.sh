#!/usr/bin/env bash
# Promise N5: the cpu backend gives the same bits whatever compiler and instruction set. Builds the canonical kernels
# with Clang for x86-64 and with GCC for aarch64 (NEON, run by qemu), and compares what they return with the value that
# the tests hold GCC's x86-64 build to. Needs clang, g++-aarch64-linux-gnu, qemu-user-static; aarch64 libraries are
# fetched from Debian into build/bits and not installed.
set -euo pipefail
cd "$(dirname "$0")/.."
out=build/bits
mkdir -p $out

sources=$(ls src/core/*.cpp src/device/device.cpp src/kernels/cpu/*.cpp src/kernels/ref/*.cpp src/ops/*.cpp \
  src/model/numerics.cpp src/testing/main/canonical_outputs_main.cpp | grep -vE '_(test|bench)\.cpp$|core/(json|log)\.cpp$')

# objects NAME COMPILER FLAGS...
objects() {
  local name=$1
  shift
  mkdir -p "$out/$name"
  for source in $sources; do echo "$source"; done | xargs -P "$(nproc)" -I{} sh -c \
    '"$@" -std=c++20 -O2 -ffp-contract=off -DNDEBUG -Isrc -c {} -o '"$out/$name"'/$(echo {} | tr / _).o' sh "$@"
}

objects clang clang++ -mavx2 -mfma -mf16c -mbmi -mbmi2 -mpclmul -maes
clang++ -o $out/clang.run $out/clang/*.o -lhwy -lfmt -lspdlog -lxxhash
$out/clang.run

dpkg --print-foreign-architectures | grep -q arm64 || dpkg --add-architecture arm64
root=$PWD/$out/root
if [ ! -d "$root" ]; then
  apt-get update -qq
  (cd $out && apt-get download -qq libhwy-dev:arm64 libhwy1:arm64 libxxhash0:arm64 libfmt9:arm64 libspdlog1.10:arm64 2>/dev/null)
  for package in $out/*.deb; do dpkg -x "$package" "$root"; done
fi
libraries=$root/usr/lib/aarch64-linux-gnu
objects neon aarch64-linux-gnu-g++ -march=armv8-a+crypto -isystem "$root/usr/include"
aarch64-linux-gnu-g++ -o $out/neon.run $out/neon/*.o "$libraries"/lib{hwy.so.1,fmt.so.9,spdlog.so.1.10,xxhash.so.0}
qemu-aarch64-static -L /usr/aarch64-linux-gnu -E LD_LIBRARY_PATH="$libraries:/usr/aarch64-linux-gnu/lib" $out/neon.run
