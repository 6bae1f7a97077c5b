#!/usr/bin/env bash
# One archive with everything that programs of a build need: for machines without our packages, and without a network.
#   tools/bundle.sh OUT.tar.xz PROGRAM... [-- FILE...]
# Unpacked, PROGRAM runs as ./NAME: a script that starts it with the libraries and the loader beside it. The NVIDIA
# driver's library is the one of the machine. FILEs go along as they are named, relative to the current folder.
set -euo pipefail
[ $# -ge 2 ] || { sed -n '2,5s/^# //p' "$0" >&2; exit 2; }
out=$1 root=$(mktemp -d)
shift
trap 'rm -rf "$root"' EXIT
mkdir -p "$root/bin" "$root/lib"
while [ $# -gt 0 ] && [ "$1" != -- ]; do
  name=$(basename "$1")
  strip -o "$root/bin/$name" "$1"
  ldd "$1" | awk '$2 == "=>" { print $3 } $1 ~ /^\// { print $1 }' | while read -r library; do
    cp -Lu "$library" "$root/lib/"
  done
  printf '#!/bin/sh\nhere=$(dirname "$(readlink -f "$0")")\n%s\n' \
    'exec "$here"/lib/ld-linux-x86-64.so.2 --library-path "$here"/lib "$here"/bin/'"$name"' "$@"' >"$root/$name"
  chmod +x "$root/$name"
  shift
done
# What the driver's library opens by itself must be of the same C library.
for library in libdl.so.2 libpthread.so.0 librt.so.1; do
  cp -L "$(ldconfig -p | awk -v name="$library" '$1 == name && /x86-64/ { print $NF; exit }')" "$root/lib/"
done
# 30 MB of ICU's tables, of which nothing here is read: properties, cases and NFC are compiled into its code. An empty
# table of contents takes their place.
for data in "$root"/lib/libicudata.so.*; do
  [ -f "$data" ] || continue
  version=${data##*.so.}
  printf '%s\n' '__attribute__((aligned(16))) const struct {' \
    '  unsigned short header; unsigned char magic[2]; unsigned short info, unused;' \
    '  unsigned char sizes[4], format[4], versions[8], padding[8]; unsigned count[4];' \
    "} icudt${version}_dat = {32, {0xda, 0x27}, 20, 0, {0, 0, 2, 0}, {'T', 'o', 'C', 'P'}, {1}, {0}, {0}};" |
    cc -x c -shared -fPIC -Wl,-soname,"libicudata.so.$version" -o "$data" -
done
if [ "${1:-}" = -- ]; then
  shift
  cp -r --parents "$@" "$root/"
fi
tar -C "$root" -c . | xz -T0 -6 >"$out"
say=$(du -h "$out" | cut -f1)
echo "$out $say" >&2
