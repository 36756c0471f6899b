// Weights as the caller holds them, read where they lie.
#pragma once

#include "vector.h"

enum class Numbers : int32_t { kFloat32, kBFloat16, kFloat16, kCodes };

// Row-major [n, k]. Codes are bytes of 0 to 15: scales[row][i / group] * (code - zeros[...]).
struct Weight {
  const void* numbers;
  const float* scales;  // of codes: [n][groups]
  const float* zeros;   // likewise, in units of codes
  const float* bias;    // [n], or null
  Numbers kind;
  int32_t group;  // of codes: inputs; the last may have fewer
};

struct WeightRow {
  const void* numbers;
  const float* scales;
  const float* zeros;
  float bias;
  Numbers kind;
  int group;
};

inline WeightRow row_of(const Weight& weight, int row, int k) {
  const int groups = weight.kind == Numbers::kCodes ? (k + weight.group - 1) / weight.group : 0;
  const size_t size = weight.kind == Numbers::kFloat32 ? 4 : weight.kind == Numbers::kCodes ? 1 : 2;
  const size_t first = static_cast<size_t>(row) * groups;
  return {static_cast<const char*>(weight.numbers) + size * row * k,
          groups ? weight.scales + first : nullptr,
          groups ? weight.zeros + first : nullptr,
          weight.bias ? weight.bias[row] : 0,
          weight.kind,
          weight.group};
}

// Its k numbers.
inline void read_row(const WeightRow& row, int k, float* to) {
  if (row.kind == Numbers::kFloat32) {
    std::memcpy(to, row.numbers, sizeof(float) * k);
  } else if (row.kind == Numbers::kBFloat16) {
    const auto* from = static_cast<const uint16_t*>(row.numbers);
    for (int i = 0; i < k; ++i) {
      const uint32_t bits = static_cast<uint32_t>(from[i]) << 16;
      std::memcpy(to + i, &bits, sizeof bits);
    }
  } else if (row.kind == Numbers::kFloat16) {
    const auto* from = static_cast<const uint16_t*>(row.numbers);
    int i = 0;
    for (; i + kLanes <= k; i += kLanes) store(to + i, Float16::read(from + i));
    for (; i < k; ++i) to[i] = static_cast<float>(load<_Float16>(from + i));
  } else {
    const auto* from = static_cast<const uint8_t*>(row.numbers);
    for (int i = 0; i < k; ++i)
      to[i] = row.scales[i / row.group] * (from[i] - row.zeros[i / row.group]);
  }
}
