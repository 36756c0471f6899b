// Weights as the kernels read them: in panels of 32 outputs, whose words of 32 bits alternate.
#pragma once

#include <vector>

#include "memory.h"
#include "team.h"
#include "weight.h"

constexpr int kPanel = 2 * kLanes;
constexpr int kGroup = 64;  // inputs that share a scale in 8 bit

inline int round_up(int value, int unit) { return (value + unit - 1) / unit * unit; }

// How weights are held, or what rows of x are rounded to before they are multiplied.
enum class Format : int32_t { kFloat32, kBFloat16, kInt8, kInt4, kInPlace };

// Words of 4 bit that say how to read the codes before them: the upper bits are those of a float,
// and hold all of half precision and of bfloat16; the lower are the zero, in 256ths.
constexpr int32_t kZeroMask = 0x1fff;
constexpr float kZeroUnit = 256;
constexpr float kMostZero = 31;
constexpr int kRounded = 32;  // inputs of a group where the group is ours to choose

inline Floats scale_of(Ints words) { return as_floats(words & ~kZeroMask); }
inline Floats zero_of(Ints words) { return __builtin_convertvector(words & kZeroMask, Floats); }

// The lowest bit of a code's four within the word of its eight.
inline int place_of(int code) { return code % 4 * 8 + code % 8 / 4 * 4; }

// Of each byte the lower or the upper half.
inline Ints nibbles(Ints words, bool upper) { return (upper ? words >> 4 : words) & 0x0f0f0f0f; }

// A weight [n, k]. The words of an output are its floats; pairs of bfloat16; for each 64 inputs its
// bytes, 128 more than they stand for, and a scale; or for each group its codes of 4 bit, eight in
// a word, and how to read them. The first four of eight are the lower halves of the word's bytes.
struct Matrix {
  Format format = Format::kFloat32;
  int n = 0, k = 0;
  int group = 0;  // of 4 bit: 32 or 64
  Memory weights;
  Memory bias;                  // float [panels * 32], zeros if there is none
  std::vector<WeightRow> rows;  // in place: the caller's

  int panels() const { return round_up(n, kPanel) / kPanel; }
  int groups() const { return round_up(k, kGroup) / kGroup; }
  int words() const {
    if (format == Format::kFloat32) return k;
    if (format == Format::kBFloat16) return round_up(k, 2) / 2;
    if (format == Format::kInt8) return groups() * (kGroup / 4 + 1);
    return format == Format::kInt4 ? groups() * (kGroup / group) * (group / 8 + 1) : 0;
  }
  size_t panel_bytes() const { return sizeof(uint32_t) * words() * kPanel; }
  size_t bytes() const { return panel_bytes() * panels(); }
  const char* panel(int index) const { return weights.as<char>() + panel_bytes() * index; }
};

// What weights become: the smallest format that loses nothing; nothing, they stay where they are;
// or rounded. Codes become those of 4 bit whatever all else does, unless they stay.
enum class Held : int32_t { kExact, kInPlace, kInt8, kInt4 };

Matrix pack(Team& team, const std::vector<WeightRow>& rows, int k, Held held);
