// y[rows, n] = x[rows, k] * w[n, k]^T, with weights packed in panels of 32 outputs.
//
// Each output is summed over k in one order whatever the number of rows, so a row's result does not
// depend on its neighbours, to the bit. A panel comes from memory once a step and is then read
// from the core's own cache for all further rows.
#pragma once

#include <algorithm>

#include "memory.h"
#include "team.h"
#include "vector.h"

constexpr int kPanel = 2 * kLanes;
constexpr int kAhead = 4096;  // bytes of weights that are asked for before they are needed
constexpr int kLine = 64;     // bytes of memory that come together
constexpr int kGroup = 64;  // inputs that share a scale in 8 bit
#if defined(__AVX512F__)
constexpr int kTile = 12;     // rows of x whose sums fit the registers
constexpr int kByteTile = 6;  // likewise, with the integer sums of a group beside them
#else
constexpr int kTile = 3;
constexpr int kByteTile = 2;
#endif

inline int round_up(int value, int unit) { return (value + unit - 1) / unit * unit; }

// How weights are held, and what rows of x are rounded to before they are multiplied.
enum class Format : int32_t { kFloat32, kBFloat16, kInt8 };

// A weight [n, k] as the kernels read it.
struct Matrix {
  Format format = Format::kFloat32;
  int n = 0, k = 0;
  // float [panel][k][32]; or u32 [panel][k/2][32]: two bfloat16; or u8 [panel][k/4][32][4]
  Memory weights;
  Memory scales;   // int8: float [panel][k/64][32]
  Memory bias;     // float [panels * 32], zeros if there is none

  int panels() const { return round_up(n, kPanel) / kPanel; }
  int groups() const { return round_up(k, kGroup) / kGroup; }
  int pairs() const { return round_up(k, 2) / 2; }
  size_t bytes() const {
    const size_t outputs = static_cast<size_t>(panels()) * kPanel;
    if (format == Format::kInt8) return outputs * groups() * kGroup;
    return format == Format::kFloat32 ? outputs * k * 4 : outputs * pairs() * 4;
  }
};

// Rows of x: floats, and the same as they are multiplied: rounded to bfloat16, or to 8 bit with a
// scale each 64 of a row. Behind a row's end are zeros.
struct Rows {
  Format format;
  const float* values;
  int stride;  // numbers from row to row
  const uint16_t* halves = nullptr;
  const int8_t* bytes = nullptr;    // [row][groups * 64]
  const float* scales = nullptr;    // [row][groups]
  const int32_t* offsets = nullptr;  // [row][groups]: -128 times the sum of a group's bytes
};

// To be multiplied in `arithmetic`. Weights are held in 8 bit for that of 8 bit, else as the caller's
// float32 where nothing smaller holds the same numbers.
Matrix pack(Team& team, const float* const* rows, int n, int k, const float* bias,
            Format arithmetic);

inline void quantise_row(const float* x, int k, int8_t* bytes, float* scales, int32_t* offsets) {
  for (int g = 0; g * kGroup < k; ++g) {
    float part[kGroup] = {};
    std::memcpy(part, x + g * kGroup, sizeof(float) * std::min(kGroup, k - g * kGroup));
    Floats top{};
    for (int i = 0; i < kGroup; i += kLanes) top = larger(top, absolute(load<Floats>(part + i)));
    const float most = largest(top);
    const float inverse = most > 0 ? 127.0f / most : 0.0f;
    Ints total{};
    for (int i = 0; i < kGroup; i += kLanes) {
      const Ints rounded = nearest(load<Floats>(part + i) * inverse);
      total += rounded;
      store(bytes + g * kGroup + i, __builtin_convertvector(rounded, Bytes16));
    }
    scales[g] = most / 127.0f;
    offsets[g] = -128 * sum(total);
  }
}

// Adds to each lane the four products of its unsigned with its signed bytes.
inline Ints dot4(Ints sum, Ints unsigned_bytes, int32_t signed_bytes) {
#if defined(__AVX512VNNI__)
  const __m512i signed_all = _mm512_set1_epi32(signed_bytes);
  return (Ints)_mm512_dpbusd_epi32((__m512i)sum, (__m512i)unsigned_bytes, signed_all);
#elif defined(__AVXVNNI__)
  const auto* u = reinterpret_cast<const __m256i*>(&unsigned_bytes);
  auto* s = reinterpret_cast<__m256i*>(&sum);
  for (int half = 0; half < 2; ++half)
    s[half] = _mm256_dpbusd_avx_epi32(s[half], u[half], _mm256_set1_epi32(signed_bytes));
  return sum;
#else
  for (int byte = 0; byte < 4; ++byte)
    sum += (unsigned_bytes >> (8 * byte) & 0xff) * static_cast<int8_t>(signed_bytes >> (8 * byte));
  return sum;
#endif
}

// Weights that are asked for before they are needed, at each 128 bytes that a tile multiplies: a
// core that is busy with many rows does not do so early enough by itself.
struct Ahead {
  const char* next;
  int step;
  void ask() {
    __builtin_prefetch(next, 0, 2);
    __builtin_prefetch(next + kLine, 0, 2);
    next += step;
  }
};

template <int M>
struct Sums {
  Floats at[M][2];
};

template <int M>
inline void add_products(Sums<M>& sums, const float* x, size_t stride, Floats low, Floats high) {
#pragma GCC unroll 12
  for (int m = 0; m < M; ++m) {
    const float value = x[m * stride];
    sums.at[m][0] += value * low;
    sums.at[m][1] += value * high;
  }
}

// A function of its own, never inlined: what is done with the sums also wants registers, and would
// push some of the sums out of them in the middle of the loop.
template <int M>
[[gnu::noinline]] Sums<M> multiply(const Matrix& w, int panel, const Rows& x, int row,
                                  Ahead ahead) {
  const int k = w.k;
  const size_t stride = x.stride;
  const float* a = x.values + static_cast<size_t>(row) * stride;
  Sums<M> sums{};
  if (w.format == Format::kFloat32) {
    const float* p = w.weights.as<float>() + static_cast<size_t>(panel) * k * kPanel;
    for (int i = 0; i < k; ++i, p += kPanel) {
      ahead.ask();
      add_products(sums, a + i, stride, load<Floats>(p), load<Floats>(p + kLanes));
    }
  } else {
    const int pairs = w.pairs();
    const uint32_t* p = w.weights.as<uint32_t>() + static_cast<size_t>(panel) * pairs * kPanel;
    for (int i = 0; i < pairs; ++i, p += kPanel) {
      ahead.ask();
      const Ints both[] = {load<Ints>(p), load<Ints>(p + kLanes)};
#pragma GCC unroll 2
      for (int second = 0; second < 2; ++second)
        add_products(sums, a + 2 * i + second, stride, half_of(both[0], second),
                     half_of(both[1], second));
    }
  }
  return sums;
}

template <int M>
[[gnu::noinline]] Sums<M> multiply_pairs(const Matrix& w, int panel, const Rows& x, int row,
                                  Ahead ahead) {
  const int pairs = w.pairs();
  const size_t stride = x.stride;
  const uint16_t* a = x.halves + static_cast<size_t>(row) * stride;
  const uint32_t* p = w.weights.as<uint32_t>() + static_cast<size_t>(panel) * pairs * kPanel;
  Sums<M> sums{};
  for (int i = 0; i < pairs; ++i, p += kPanel) {
    ahead.ask();
    const Ints low = load<Ints>(p), high = load<Ints>(p + kLanes);
#pragma GCC unroll 12
    for (int m = 0; m < M; ++m) {
      const int32_t pair = load<int32_t>(a + m * stride + 2 * i);
      sums.at[m][0] = dot2(sums.at[m][0], low, pair);
      sums.at[m][1] = dot2(sums.at[m][1], high, pair);
    }
  }
  return sums;
}

template <int M>
[[gnu::noinline]] Sums<M> multiply_bytes(const Matrix& w, int panel, const Rows& x, int row,
                                  Ahead ahead) {
  const int groups = w.groups(), stride = groups * kGroup;
  const uint8_t* p = w.weights.as<uint8_t>() + static_cast<size_t>(panel) * stride * kPanel;
  const float* scales = w.scales.as<float>() + static_cast<size_t>(panel) * groups * kPanel;
  const int8_t* bytes = x.bytes + static_cast<size_t>(row) * stride;
  Sums<M> sums{};
  for (int g = 0; g < groups; ++g, scales += kPanel) {
    Ints parts[M][2];
#pragma GCC unroll 12
    for (int m = 0; m < M; ++m) parts[m][0] = parts[m][1] = ints(x.offsets[(row + m) * groups + g]);
#pragma GCC unroll 4
    for (int i = 0; i < kGroup; i += 4, p += 4 * kPanel) {
      ahead.ask();
      const Ints low = load<Ints>(p), high = load<Ints>(p + 4 * kLanes);
#pragma GCC unroll 12
      for (int m = 0; m < M; ++m) {
        const int32_t four = load<int32_t>(bytes + m * stride + g * kGroup + i);
        parts[m][0] = dot4(parts[m][0], low, four);
        parts[m][1] = dot4(parts[m][1], high, four);
      }
    }
    const Floats low = load<Floats>(scales), high = load<Floats>(scales + kLanes);
#pragma GCC unroll 12
    for (int m = 0; m < M; ++m) {
      const float scale = x.scales[(row + m) * groups + g];
      sums.at[m][0] += __builtin_convertvector(parts[m][0], Floats) * (low * scale);
      sums.at[m][1] += __builtin_convertvector(parts[m][1], Floats) * (high * scale);
    }
  }
  return sums;
}

template <Format F, int M, class Write>
void tile(const Matrix& w, int panel, const Rows& x, int row, Ahead ahead, const Write& write) {
  const Sums<M> sums = [&] {
    if constexpr (F == Format::kInt8) return multiply_bytes<M>(w, panel, x, row, ahead);
    else if constexpr (F == Format::kBFloat16) return multiply_pairs<M>(w, panel, x, row, ahead);
    else return multiply<M>(w, panel, x, row, ahead);
  }();
  const Floats low = load<Floats>(w.bias.as<float>() + panel * kPanel);
  const Floats high = load<Floats>(w.bias.as<float>() + panel * kPanel + kLanes);
  for (int m = 0; m < M; ++m) write(row + m, panel, sums.at[m][0] + low, sums.at[m][1] + high);
}

template <Format F, int M, class Write>
void last_tile(const Matrix& w, int panel, const Rows& x, int row, int count, Ahead ahead,
               const Write& write) {
  if constexpr (M > 0) {
    if (count == M) return tile<F, M>(w, panel, x, row, ahead, write);
    last_tile<F, M - 1>(w, panel, x, row, count, ahead, write);
  }
}

// One tile asks for what it soon needs itself, several share in asking for the next panel: so
// memory is read all the while, not only by the first of them.
template <Format F, int M, class Write>
void tiles(const Matrix& w, int panel, const Rows& x, int row, int count, const Write& write) {
  const int passes = (count + M - 1) / M;
  const size_t size = w.bytes() / w.panels();
  const char* next = w.weights.as<char>() + panel * size + (passes == 1 ? kAhead : size);
  for (int pass = 0; count > 0; count -= M, row += M, ++pass) {
    const Ahead ahead{next + size / passes * pass, 2 * kLine / passes};
    if (count >= M) tile<F, M>(w, panel, x, row, ahead, write);
    else last_tile<F, M - 1>(w, panel, x, row, count, ahead, write);
  }
}

// Within team.run: `write(row, panel, low, high)` gets the 32 outputs of each panel and row.
template <class Write>
void matmul(Team& team, const Matrix& w, const Rows& x, int rows, const Write& write) {
  constexpr int kBlock = 8 * kTile;  // rows that stay in a core's cache while panels pass
  const int panels = w.panels(), blocks = (rows + kBlock - 1) / kBlock;
  team.share(panels * blocks, [&](int item) {
    const int panel = item % panels, row = item / panels * kBlock;
    const int count = std::min(kBlock, rows - row);
    if (w.format == Format::kInt8)
      tiles<Format::kInt8, kByteTile>(w, panel, x, row, count, write);
    else if (w.format == Format::kBFloat16 && x.format == Format::kBFloat16)
      tiles<Format::kBFloat16, kTile>(w, panel, x, row, count, write);
    else
      tiles<Format::kFloat32, kTile>(w, panel, x, row, count, write);
  });
}
