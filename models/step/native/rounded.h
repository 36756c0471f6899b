// Rows of x as they are multiplied.
#pragma once

#include <algorithm>

#include "matrix.h"

// Floats, and the same rounded to bfloat16, or to 8 bit with a scale each 64 of a row. Behind a
// row's end are zeros.
struct Rows {
  Format format;
  const float* values;
  int stride;  // numbers from row to row
  const uint16_t* halves = nullptr;
  const int8_t* bytes = nullptr;     // [row][groups * 64]
  const float* scales = nullptr;     // [row][groups]
  const int32_t* offsets = nullptr;  // [row][groups]: -128 times the sum of a group's bytes
  const float* sums = nullptr;       // [row][groups * 2]: of each 32 bytes, in the unit of zeros
};

inline void quantise_row(const float* x, int k, int8_t* bytes, float* scales, int32_t* offsets,
                         float* sums) {
  for (int g = 0; g * kGroup < k; ++g) {
    const float* part = x + g * kGroup;
    float last[kGroup];
    if (const int rest = k - g * kGroup; rest < kGroup) {
      std::fill(std::copy_n(part, rest, last), last + kGroup, 0.0f);
      part = last;
    }
    Ints top{};  // the bits of numbers without a sign are in their order
    for (int i = 0; i < kGroup; i += kLanes) {
      const Ints bits = as_ints(absolute(load<Floats>(part + i)));
      top = bits > top ? bits : top;
    }
    const int32_t top_bits = largest(top);
    const float most = load<float>(&top_bits);
    const float inverse = most > 0 ? 127.0f / most : 0.0f;
    Ints halves[2] = {};
    for (int i = 0; i < kGroup; i += kLanes) {
      const Ints rounded = nearest(load<Floats>(part + i) * inverse);
      halves[i * 2 / kGroup] += rounded;
      store(bytes + g * kGroup + i, __builtin_convertvector(rounded, Bytes16));
    }
    scales[g] = most / 127.0f;
    const int32_t first = sum(halves[0]), second = sum(halves[1]);
    offsets[g] = -128 * (first + second);
    sums[2 * g] = first / kZeroUnit;
    sums[2 * g + 1] = second / kZeroUnit;
  }
}
