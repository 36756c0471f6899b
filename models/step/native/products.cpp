// By how weights and rows are held, up to `kRows` rows at a time.
//
// Each `multiply` is a function of its own, never inlined: what is done with the sums also wants
// registers, and would push some of the sums out of them in the middle of the loop.
#include "products.h"

#include "ahead.h"
#include "units.h"

namespace {

#if defined(__AVX512F__)
constexpr int kTile = 12;     // rows whose sums fit the registers
constexpr int kByteTile = 6;  // likewise, with the integer sums of a group beside them
#else
constexpr int kTile = 3;
constexpr int kByteTile = 2;
#endif

template <int M>
struct Sums {
  Floats at[M][2];
};

struct Lanes {
  Ints low, high;
};

inline Lanes lanes_at(const char* from) {
  return {load<Ints>(from), load<Ints>(from + sizeof(Ints))};
}

template <int M>
inline void add_products(Sums<M>& sums, const float* x, size_t stride, Floats low, Floats high) {
#pragma GCC unroll 12
  for (int m = 0; m < M; ++m) {
    const float value = x[m * stride];
    sums.at[m][0] += value * low;
    sums.at[m][1] += value * high;
  }
}

struct InFloats {
  static constexpr int kRows = kTile;

  template <int M>
  [[gnu::noinline]] static Sums<M> multiply(const Matrix& w, const char* p, const Rows& x, int row,
                                            Ahead ahead) {
    const float* a = x.values + static_cast<size_t>(row) * x.stride;
    Sums<M> sums{};
    for (int i = 0; i < w.k; ++i, p += 2 * kLine) {
      ahead.ask();
      const Lanes both = lanes_at(p);
      add_products(sums, a + i, x.stride, as_floats(both.low), as_floats(both.high));
    }
    return sums;
  }
};

// Weights of bfloat16 with floats.
struct InHalves {
  static constexpr int kRows = kTile;

  template <int M>
  [[gnu::noinline]] static Sums<M> multiply(const Matrix& w, const char* p, const Rows& x, int row,
                                            Ahead ahead) {
    const float* a = x.values + static_cast<size_t>(row) * x.stride;
    const int pairs = w.words();
    Sums<M> sums{};
    for (int i = 0; i < pairs; ++i, p += 2 * kLine) {
      ahead.ask();
      const Lanes both = lanes_at(p);
#pragma GCC unroll 2
      for (int second = 0; second < 2; ++second)
        add_products(sums, a + 2 * i + second, x.stride, half_of(both.low, second),
                     half_of(both.high, second));
    }
    return sums;
  }
};

// Both of bfloat16.
struct InPairs {
  static constexpr int kRows = kTile;

  template <int M>
  [[gnu::noinline]] static Sums<M> multiply(const Matrix& w, const char* p, const Rows& x, int row,
                                            Ahead ahead) {
    const size_t stride = x.stride;
    const uint16_t* a = x.halves + static_cast<size_t>(row) * stride;
    const int pairs = w.words();
    Sums<M> sums{};
    for (int i = 0; i < pairs; ++i, p += 2 * kLine) {
      ahead.ask();
      const Lanes both = lanes_at(p);
#pragma GCC unroll 12
      for (int m = 0; m < M; ++m) {
        const int32_t pair = load<int32_t>(a + m * stride + 2 * i);
        sums.at[m][0] = dot2(sums.at[m][0], both.low, pair);
        sums.at[m][1] = dot2(sums.at[m][1], both.high, pair);
      }
    }
    return sums;
  }
};

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

// The integer sums of one group.
template <int M>
struct Parts {
  Ints at[M][2];

  // Four bytes of each output with four of each row.
  void add(Ints low, Ints high, const int8_t* bytes, size_t stride) {
#pragma GCC unroll 12
    for (int m = 0; m < M; ++m) {
      const auto four = load<int32_t>(bytes + m * stride);
      at[m][0] = dot4(at[m][0], low, four);
      at[m][1] = dot4(at[m][1], high, four);
    }
  }
};

// Both of 8 bit.
struct InBytes {
  static constexpr int kRows = kByteTile;

  template <int M>
  [[gnu::noinline]] static Sums<M> multiply(const Matrix& w, const char* p, const Rows& x, int row,
                                            Ahead ahead) {
    const int groups = w.groups(), stride = groups * kGroup;
    const int8_t* bytes = x.bytes + static_cast<size_t>(row) * stride;
    Sums<M> sums{};
    for (int g = 0; g < groups; ++g) {
      Parts<M> parts;
#pragma GCC unroll 12
      for (int m = 0; m < M; ++m)
        parts.at[m][0] = parts.at[m][1] = ints(x.offsets[(row + m) * groups + g]);
#pragma GCC unroll 4
      for (int i = 0; i < kGroup; i += 4, p += 2 * kLine) {
        ahead.ask();
        const Lanes both = lanes_at(p);
        parts.add(both.low, both.high, bytes + g * kGroup + i, stride);
      }
      ahead.ask();
      const Lanes scales = lanes_at(p);
      p += 2 * kLine;
      const Floats low = as_floats(scales.low), high = as_floats(scales.high);
#pragma GCC unroll 12
      for (int m = 0; m < M; ++m) {
        const float scale = x.scales[(row + m) * groups + g];
        sums.at[m][0] += __builtin_convertvector(parts.at[m][0], Floats) * (low * scale);
        sums.at[m][1] += __builtin_convertvector(parts.at[m][1], Floats) * (high * scale);
      }
    }
    return sums;
  }
};

// Codes of 4 bit, as they lie or already apart in bytes, with 8 bit.
template <int G, bool kApart>
struct InCodes {
  static constexpr int kRows = kByteTile;

  template <int M>
  [[gnu::noinline]] static Sums<M> multiply(const Matrix& w, const char* p, const Rows& x, int row,
                                            Ahead ahead) {
    const int groups = w.groups(), stride = groups * kGroup;
    const int8_t* bytes = x.bytes + static_cast<size_t>(row) * stride;
    Sums<M> sums{};
    for (int at = 0; at < stride; at += G) {
      Parts<M> parts{};
#pragma GCC unroll 4
      for (int i = at; i < at + G; i += 8) {
        ahead.ask();
        Lanes both = lanes_at(p);
        p += 2 * kLine;
        const Lanes first = kApart ? both : Lanes{nibbles(both.low, false), nibbles(both.high, false)};
        parts.add(first.low, first.high, bytes + i, stride);
        if constexpr (kApart) both = lanes_at(p), p += 2 * kLine;
        const Lanes second = kApart ? both : Lanes{nibbles(both.low, true), nibbles(both.high, true)};
        parts.add(second.low, second.high, bytes + i + 4, stride);
      }
      ahead.ask();
      const Lanes words = lanes_at(p);
      p += 2 * kLine;
      const Floats scales[] = {scale_of(words.low), scale_of(words.high)};
      const Floats zeros[] = {zero_of(words.low), zero_of(words.high)};
#pragma GCC unroll 12
      for (int m = 0; m < M; ++m) {
        const float scale = x.scales[(row + m) * groups + at / kGroup];
        const float* own = x.sums + ((row + m) * groups * 2 + at / kRounded);
        const float sum = G == kGroup ? own[0] + own[1] : own[0];
#pragma GCC unroll 2
        for (int half = 0; half < 2; ++half) {
          const Floats part = __builtin_convertvector(parts.at[m][half], Floats);
          sums.at[m][half] += (part - zeros[half] * sum) * (scales[half] * scale);
        }
      }
    }
    return sums;
  }
};

// The codes of a panel, each in a byte, for rows that need several tiles.
inline void part_codes(const Matrix& w, const char* p, char* to) {
  const int blocks = w.groups() * kGroup / w.group;
  for (int block = 0; block < blocks; ++block) {
    for (int i = 0; i < w.group; i += 8, p += 2 * kLine)
      for (int upper = 0; upper < 2; ++upper, to += 2 * kLine) {
        store(to, nibbles(load<Ints>(p), upper));
        store(to + kLine, nibbles(load<Ints>(p + kLine), upper));
      }
    std::memcpy(to, p, 2 * kLine);
    to += 2 * kLine, p += 2 * kLine;
  }
}

// Codes of 4 bit with floats.
struct InFloatCodes {
  static constexpr int kRows = kByteTile;

  template <int M>
  [[gnu::noinline]] static Sums<M> multiply(const Matrix& w, const char* p, const Rows& x, int row,
                                            Ahead ahead) {
    const float* a = x.values + static_cast<size_t>(row) * x.stride;
    Sums<M> sums{};
    for (int at = 0; at < w.k; at += w.group) {
      const Lanes words = lanes_at(p + w.group / 8 * 2 * kLine);
      const Floats scales[] = {scale_of(words.low), scale_of(words.high)};
      const Floats zeros[] = {zero_of(words.low) / kZeroUnit, zero_of(words.high) / kZeroUnit};
      const int end = std::min(at + w.group, w.k);
      for (int i = at; i < end; ++i) {
        if (i % 8 == 0) ahead.ask();
        const Lanes both = lanes_at(p + i % w.group / 8 * 2 * kLine);
        const int shift = place_of(i);
        const Ints low = both.low >> shift & 15, high = both.high >> shift & 15;
        add_products(sums, a + i, x.stride,
                     (__builtin_convertvector(low, Floats) - zeros[0]) * scales[0],
                     (__builtin_convertvector(high, Floats) - zeros[1]) * scales[1]);
      }
      p += (w.group / 8 + 1) * 2 * kLine;
    }
    return sums;
  }
};

using Output = Floats[2];

template <class How, int M>
void tile(const Matrix& w, const char* weights, const Rows& x, int row, Ahead ahead, Output* out) {
  const Sums<M> sums = How::template multiply<M>(w, weights, x, row, ahead);
  for (int m = 0; m < M; ++m) out[m][0] = sums.at[m][0], out[m][1] = sums.at[m][1];
}

template <class How, int M>
void last_tile(const Matrix& w, const char* weights, const Rows& x, int row, int count, Ahead ahead,
               Output* out) {
  if constexpr (M > 0) {
    if (count == M) return tile<How, M>(w, weights, x, row, ahead, out);
    last_tile<How, M - 1>(w, weights, x, row, count, ahead, out);
  }
}

// `weights` are those of the panel, as they are multiplied.
template <class How>
void tiles(const Matrix& w, int panel, const char* weights, const Rows& x, int row, int count,
           Output* out) {
  constexpr int M = How::kRows;
  const int passes = (count + M - 1) / M;
  for (int pass = 0; count > 0; count -= M, row += M, out += M, ++pass) {
    const Ahead ahead = ahead_of(w, panel, pass, passes);
    if (count >= M) tile<How, M>(w, weights, x, row, ahead, out);
    else last_tile<How, M - 1>(w, weights, x, row, count, ahead, out);
  }
}

template <int G>
void code_tiles(const Matrix& w, int panel, const Rows& x, int row, int count, Output* out) {
  const char* weights = w.panel(panel);
  if (count <= kByteTile)
    return tiles<InCodes<G, false>>(w, panel, weights, x, row, count, out);
  static thread_local std::vector<char> apart;
  apart.resize(2 * w.panel_bytes());
  part_codes(w, weights, apart.data());
  tiles<InCodes<G, true>>(w, panel, apart.data(), x, row, count, out);
}

// The caller's rows as they lie, with floats: not fast, and nothing is copied.
void rows_in_place(const Matrix& w, int panel, const Rows& x, int row, int count, Output* out) {
  static thread_local std::vector<float> weights;
  weights.assign(round_up(w.k, kLanes), 0);
  for (int lane = 0; lane < std::min(kPanel, w.n - panel * kPanel); ++lane) {
    read_row(w.rows[panel * kPanel + lane], w.k, weights.data());
    for (int m = 0; m < count; ++m) {
      const float* a = x.values + static_cast<size_t>(row + m) * x.stride;
      Floats parts[4] = {};
      for (int i = 0; i < w.k; i += kLanes)
        parts[i / kLanes % 4] += load<Floats>(a + i) * load<Floats>(&weights[i]);
      out[m][lane / kLanes][lane % kLanes] = sum((parts[0] + parts[1]) + (parts[2] + parts[3]));
    }
  }
}

void multiply(const Matrix& w, int panel, const Rows& x, int row, int count, Output* out) {
  const auto all = [&]<class How>(How) {
    tiles<How>(w, panel, w.panel(panel), x, row, count, out);
  };
  switch (w.format) {
    case Format::kFloat32: return all(InFloats{});
    case Format::kBFloat16:
      if (x.format != Format::kBFloat16) return all(InHalves{});
      return has_units() ? unit_tiles(w, panel, x, row, count, out) : all(InPairs{});
    case Format::kInt8:
      if (count <= kByteTile || !has_units()) return all(InBytes{});
      return byte_unit_tiles(w, panel, x, row, count, out);
    case Format::kInt4:
      if (x.format != Format::kInt8) return all(InFloatCodes{});
      if (w.group == kGroup) return code_tiles<kGroup>(w, panel, x, row, count, out);
      return code_tiles<kRounded>(w, panel, x, row, count, out);
    case Format::kInPlace: return rows_in_place(w, panel, x, row, count, out);
  }
}

}  // namespace

int rows_together(const Matrix& w) {
  constexpr size_t kCache = 768 << 10;
  const size_t bytes = sizeof(uint16_t) * (w.k + 1) * kBlock;
  return has_units() ? kBlock * static_cast<int>(std::max<size_t>(1, kCache / bytes)) : kBlock;
}

void products(const Matrix& w, int panel, const Rows& x, int row, int count, Floats (*out)[2]) {
  multiply(w, panel, x, row, count, out);
  const Floats low = load<Floats>(w.bias.as<float>() + panel * kPanel);
  const Floats high = load<Floats>(w.bias.as<float>() + panel * kPanel + kLanes);
  for (int m = 0; m < count; ++m) out[m][0] += low, out[m][1] += high;
}
