// Reads packed weights (kernels/cpu/panels.h) into V16: lanes are the 16 outputs of a panel. A weight's value is
// decoded exactly, then multiplied once by its scale, in every path alike. Any thread.

#if defined(WP_KERNELS_CPU_WEIGHTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef WP_KERNELS_CPU_WEIGHTS_INL_H_
#undef WP_KERNELS_CPU_WEIGHTS_INL_H_
#else
#define WP_KERNELS_CPU_WEIGHTS_INL_H_
#endif

#include <algorithm>

#include "core/assert.h"
#include "kernels/cpu/panels.h"
#include "kernels/cpu/v16-inl.h"

HWY_BEFORE_NAMESPACE();
namespace wp::kernels::cpu {
namespace HWY_NAMESPACE {

// A panel of W. Usage: open(), then group(k) at each multiple of 16, then words of that group.
template <WeightFormat kFormat>
struct Panel {
  static constexpr int kPerWord = static_cast<int>(weights_per_word(kFormat));

  HWY_INLINE void open(const Matrix& W, int64_t panel) {
    words = static_cast<const uint32_t*>(W.data) + panel * words_of(kFormat, W.K) * kLanes;
    scale_2 = W.scale_2;
    const auto* f32 = static_cast<const float*>(W.scale);
    if constexpr (kFormat == WeightFormat::nvfp4) {
      scales = static_cast<const uint8_t*>(W.scale) + panel * (W.K / 16) * kLanes;
    } else if constexpr (kFormat == WeightFormat::fp8_tensor) {
      scale = set(f32[0]);
    } else if constexpr (kFormat == WeightFormat::fp8_row) {
      scale = load(f32 + panel * kLanes);
    } else if constexpr (kFormat == WeightFormat::fp8_block) {
      block_scales = f32 + panel / 8 * ((W.K + 127) / 128);
    }
  }

  // The scale of weights k .. k + 15; k is a multiple of 16.
  HWY_INLINE void group(int64_t k) {
    if constexpr (kFormat == WeightFormat::nvfp4) {
      scale = mul(e4m3_code(bytes(scales + k)), set(scale_2));
    } else if constexpr (kFormat == WeightFormat::fp8_block) {
      scale = set(block_scales[k / 128]);
    }
  }

  // Weights of k = word * kPerWord + 0, 1, ...
  HWY_INLINE void word(int64_t index, V16 (&w)[kPerWord]) const {
    const uint32_t* from = words + index * kLanes;
    if constexpr (kFormat == WeightFormat::f32) {
      w[0] = load(reinterpret_cast<const float*>(from));
    } else {
      const U16 code = load_bits(from);
      if constexpr (kFormat == WeightFormat::bf16) {
        w[0] = float_of(shift_left<16>(code));
        w[1] = float_of(and_bits(code, set_bits(0xFFFF0000u)));
      } else if constexpr (kFormat == WeightFormat::f16) {
        w[0] = f16_code(and_bits(code, set_bits(0xFFFF)));
        w[1] = f16_code(shift_right<16>(code));
      } else if constexpr (kFormat == WeightFormat::nvfp4) {
        w[0] = mul(e2m1_code(code), scale);
        w[1] = mul(e2m1_code(shift_right<4>(code)), scale);
        w[2] = mul(e2m1_code(shift_right<8>(code)), scale);
        w[3] = mul(e2m1_code(shift_right<12>(code)), scale);
        w[4] = mul(e2m1_code(shift_right<16>(code)), scale);
        w[5] = mul(e2m1_code(shift_right<20>(code)), scale);
        w[6] = mul(e2m1_code(shift_right<24>(code)), scale);
        w[7] = mul(e2m1_code(shift_right<28>(code)), scale);
      } else {
        const U16 low = set_bits(0xFF);
        w[0] = mul(e4m3_code(and_bits(code, low)), scale);
        w[1] = mul(e4m3_code(and_bits(shift_right<8>(code), low)), scale);
        w[2] = mul(e4m3_code(and_bits(shift_right<16>(code), low)), scale);
        w[3] = mul(e4m3_code(shift_right<24>(code)), scale);
      }
    }
  }

  const uint32_t* words;
  const uint8_t* scales;
  const float* block_scales;
  float scale_2;
  V16 scale;
};

// Weights k_begin .. k_begin + count of a panel to out [count, 16]; k_begin is a multiple of 16. May write up to seven
// rows more.
template <WeightFormat kFormat>
struct Unpack {
  static HWY_NOINLINE void run(const Matrix& W, int64_t panel, int64_t k_begin, int64_t count, float* out) {
    constexpr int kPerWord = Panel<kFormat>::kPerWord;
    Panel<kFormat> reader;
    reader.open(W, panel);
    for (int64_t k = 0; k < count; k += kLanes) {
      reader.group(k_begin + k);
      const int64_t end = std::min(count, k + kLanes);
      for (int64_t i = k; i < end; i += kPerWord) {
        V16 w[kPerWord];
        reader.word((k_begin + i) / kPerWord, w);
        for (int j = 0; j < kPerWord; ++j) store(w[j], out + (i + j) * kLanes);
      }
    }
  }
};

// Op<format>::run(arguments...) for the format at hand.
template <template <WeightFormat> class Op, class... Arguments>
HWY_INLINE void by_format(WeightFormat format, const Arguments&... arguments) {
  switch (format) {
    case WeightFormat::f32: return Op<WeightFormat::f32>::run(arguments...);
    case WeightFormat::f16: return Op<WeightFormat::f16>::run(arguments...);
    case WeightFormat::bf16: return Op<WeightFormat::bf16>::run(arguments...);
    case WeightFormat::fp8_tensor: return Op<WeightFormat::fp8_tensor>::run(arguments...);
    case WeightFormat::fp8_row: return Op<WeightFormat::fp8_row>::run(arguments...);
    case WeightFormat::fp8_block: return Op<WeightFormat::fp8_block>::run(arguments...);
    case WeightFormat::nvfp4: return Op<WeightFormat::nvfp4>::run(arguments...);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace wp::kernels::cpu
HWY_AFTER_NAMESPACE();

#endif  // WP_KERNELS_CPU_WEIGHTS_INL_H_
