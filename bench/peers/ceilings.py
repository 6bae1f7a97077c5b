#!/usr/bin/env python3
"""What one GPU gives at best, through PyTorch: device copy, bf16 product, upload from pinned memory.

Prints one line each: median, least and greatest of 15 timed calls after 3 untimed ones. Random inputs, never zeros.
"""
import torch


def rates(work, call, repeat=15):
    for _ in range(3):
        call()
    seconds = []
    for _ in range(repeat):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        call()
        end.record()
        end.synchronize()
        seconds.append(begin.elapsed_time(end) * 1e-3)
    found = sorted(work / s for s in seconds)
    return f"{found[repeat // 2]:.1f} ({found[0]:.1f} to {found[-1]:.1f})"


def main():
    source = torch.randint(0, 255, (4 << 30,), dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    print("copy, read and written, GB/s", rates(2 * source.numel() / 1e9, lambda: target.copy_(source)))
    del source, target
    a, b = (torch.randn(8192, 8192, device="cuda").bfloat16() for _ in range(2))
    c = torch.empty_like(a)
    print("bf16 product 8192^3, TFLOP/s", rates(2 * 8192**3 / 1e12, lambda: torch.matmul(a, b, out=c)))
    pinned = torch.empty(1 << 30, dtype=torch.uint8).pin_memory()
    target = torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
    print("upload from pinned memory, GB/s", rates((1 << 30) / 1e9, lambda: target.copy_(pinned, non_blocking=True)))


main()
