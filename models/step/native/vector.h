// Sixteen numbers at a time, in the compiler's own vectors: any processor's, whatever its width.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <initializer_list>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

constexpr int kLanes = 16;

using Floats = float __attribute__((vector_size(64)));
using Ints = int32_t __attribute__((vector_size(64)));
using Half16 = uint16_t __attribute__((vector_size(32)));
using Bytes16 = int8_t __attribute__((vector_size(16)));

// The instructions that this was compiled for, as far as they matter here.
inline const char* instructions() {
#if defined(__AVX512VNNI__) && defined(__AVX512BF16__)
  return "AVX-512 with VNNI and BF16";
#elif defined(__AVX512VNNI__)
  return "AVX-512 with VNNI";
#elif defined(__AVX512F__)
  return "AVX-512";
#elif defined(__AVXVNNI__)
  return "AVX2 with VNNI";
#elif defined(__AVX2__)
  return "AVX2";
#elif defined(__ARM_NEON)
  return "NEON";
#else
  return "no vector instructions";
#endif
}

// Whether products of bfloat16 are faster than those of float32.
#if defined(__AVX512BF16__)
constexpr bool kMultipliesBFloat16 = true;
#else
constexpr bool kMultipliesBFloat16 = false;
#endif

template <class T>
inline T load(const void* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

template <class T>
inline void store(void* to, T value) {
  std::memcpy(to, &value, sizeof value);
}

inline Floats floats(float value) { return value - Floats{}; }
inline Ints ints(int32_t value) { return value - Ints{}; }
inline Floats as_floats(Ints bits) { return (Floats)bits; }
inline Ints as_ints(Floats value) { return (Ints)value; }
inline Floats larger(Floats a, Floats b) { return a > b ? a : b; }
inline Floats absolute(Floats a) { return as_floats(as_ints(a) & 0x7fffffff); }

// Of each pair of bfloat16 the first or the second.
inline Floats half_of(Ints pairs, bool second) {
  return as_floats(second ? pairs & static_cast<int>(0xffff0000) : pairs << 16);
}

// Adds to each lane the two products of its pair of bfloat16 with the other pair.
inline Floats dot2(Floats sum, Ints pairs, int32_t pair) {
#if defined(__AVX512BF16__)
  return (Floats)_mm512_dpbf16_ps((__m512)sum, (__m512bh)pairs, (__m512bh)_mm512_set1_epi32(pair));
#else
  const Ints other = ints(pair);
  sum += half_of(pairs, false) * half_of(other, false);
  return sum + half_of(pairs, true) * half_of(other, true);
#endif
}

// Combines the two halves of N numbers, then theirs, until one is left.
template <int N, class T, class Combine>
inline T folded(const T* numbers, const Combine& combine) {
  if constexpr (N == 1) {
    return numbers[0];
  } else {
    T halves[N / 2];
    for (int i = 0; i < N / 2; ++i) halves[i] = combine(numbers[i], numbers[i + N / 2]);
    return folded<N / 2>(halves, combine);
  }
}

inline float sum(Floats v) {
  float lanes[kLanes];
  store(lanes, v);
  return folded<kLanes>(lanes, [](float a, float b) { return a + b; });
}

inline float largest(Floats v) {
  float lanes[kLanes];
  store(lanes, v);
  return folded<kLanes>(lanes, [](float a, float b) { return a > b ? a : b; });
}

// Likewise, by halves of a vector: rows that are rounded to 8 bit wait for it at every group.
template <class Combine>
inline int32_t folded(Ints v, const Combine& combine) {
  using Ints8 = int32_t __attribute__((vector_size(32)));
  using Ints4 = int32_t __attribute__((vector_size(16)));
  const auto* lanes = reinterpret_cast<const char*>(&v);
  const Ints8 eight = combine(load<Ints8>(lanes), load<Ints8>(lanes + sizeof(Ints8)));
  const auto* halves = reinterpret_cast<const char*>(&eight);
  const Ints4 four = combine(load<Ints4>(halves), load<Ints4>(halves + sizeof(Ints4)));
  return combine(combine(four[0], four[2]), combine(four[1], four[3]));
}

inline int32_t sum(Ints v) {
  return folded(v, [](auto a, auto b) { return a + b; });
}

inline int32_t largest(Ints v) {
  return folded(v, [](auto a, auto b) { return a > b ? a : b; });
}

// Rounds to the nearest integer, |x| < 2^22.
inline Ints nearest(Floats x) {
  const Floats magic = floats(12582912.0f);
  return as_ints(x + magic) - as_ints(magic);
}

// e^x to two units in the last place; 0 below -87, and no larger than e^88.
inline Floats exponential(Floats x) {
  const Floats clamped = x < -87.0f ? floats(-87.0f) : x > 88.0f ? floats(88.0f) : x;
  const Ints power = nearest(clamped * 1.44269504f);
  const Floats whole = __builtin_convertvector(power, Floats);
  const Floats r = clamped - whole * 0.693359375f + whole * 2.12194440e-4f;
  Floats p = floats(1.0f / 5040);
  for (float term : {1.0f / 720, 1.0f / 120, 1.0f / 24, 1.0f / 6, 0.5f, 1.0f, 1.0f})
    p = p * r + term;
  const Floats result = p * as_floats((power + 127) << 23);
  return x < -87.0f ? Floats{} : result;
}

inline Floats silu(Floats x) { return x / (1.0f + exponential(-x)); }

inline Floats gelu_tanh(Floats x) {
  const Floats inner = 1.5957691216f * (x + 0.044715f * x * x * x);  // 2 * sqrt(2 / pi)
  return x / (1.0f + exponential(-inner));
}

// By the error function, to 2e-7 of x: Abramowitz and Stegun, 7.1.26.
inline Floats gelu(Floats x) {
  const Floats z = 0.70710678f * absolute(x);
  const Floats t = 1.0f / (1.0f + 0.3275911f * z);
  Floats p = floats(1.061405429f);
  for (float term : {-1.453152027f, 1.421413741f, -0.284496736f, 0.254829592f}) p = p * t + term;
  const Floats rest = 0.5f * p * t * exponential(-z * z);  // of what is beyond |x|
  return x * (x < 0.0f ? rest : 1.0f - rest);
}

// cap * tanh(x / cap); a cap of 0 is none.
inline Floats capped(Floats x, float cap) {
  return cap ? cap - 2 * cap / (1.0f + exponential(x * (2 / cap))) : x;
}

// To the nearest, ties to even.
inline Half16 to_bfloat16(Floats value) {
#if defined(__AVX512BF16__)
  return (Half16)_mm512_cvtneps_pbh((__m512)value);
#else
  const Ints bits = as_ints(value);
  const Ints rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
  const Ints no_number = bits >> 16 | 0x40;
  return __builtin_convertvector(value == value ? rounded : no_number, Half16);
#endif
}

// How what is stored is multiplied, and with what: sixteen numbers with one, all of them floats.
struct AsFloats {
  static constexpr int kTogether = 1;
  using Lanes = Floats;
  static float factor(const float* factors, int at) { return factors[at]; }
  static Floats add(Floats sum, Floats lanes, float factor) { return sum + factor * lanes; }
  static void settle(float* factors, int at, Floats values) { store(factors + at, values); }
};

// Sixteen pairs of bfloat16 with one pair. They take half the place that they had as floats.
struct AsPairs {
  static constexpr int kTogether = 2;
  using Lanes = Ints;
  static int32_t factor(const float* factors, int at) {
    return load<int32_t>(reinterpret_cast<const uint16_t*>(factors) + at);
  }
  static Floats add(Floats sum, Ints lanes, int32_t factor) { return dot2(sum, lanes, factor); }
  static void settle(float* factors, int at, Floats values) {
    store(reinterpret_cast<uint16_t*>(factors) + at, to_bfloat16(values));
  }
};

// How keys and values are stored, and read as they are multiplied.
struct Float32 : AsFloats {
  using Stored = float;
  static Floats read(const float* from) { return load<Floats>(from); }
  static Floats stored(Floats value) { return value; }
};

#if defined(__AVX512BF16__)
struct BFloat16 : AsPairs {
  using Stored = uint16_t;
  static Ints read(const uint16_t* from) { return load<Ints>(from); }
  static Half16 stored(Floats value) { return to_bfloat16(value); }
};
#else
struct BFloat16 : AsFloats {
  using Stored = uint16_t;
  static Floats read(const uint16_t* from) {
    return as_floats(__builtin_convertvector(load<Half16>(from), Ints) << 16);
  }
  static Half16 stored(Floats value) { return to_bfloat16(value); }
};
#endif

struct Float16 : AsFloats {
  using Stored = uint16_t;
  static Floats read(const uint16_t* from) {
#if defined(__AVX512F__)
    return (Floats)_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
#else
    Floats value;
    for (int i = 0; i < kLanes; ++i) value[i] = static_cast<float>(load<_Float16>(from + i));
    return value;
#endif
  }
  static Half16 stored(Floats value) {
    const Floats most = floats(65504);
    const Floats bounded = value > most ? most : value < -most ? -most : value;
#if defined(__AVX512F__)
    return (Half16)_mm512_cvtps_ph((__m512)bounded, _MM_FROUND_TO_NEAREST_INT);
#else
    Half16 halves;
    for (int i = 0; i < kLanes; ++i) {
      const auto half = static_cast<_Float16>(bounded[i]);
      halves[i] = load<uint16_t>(&half);
    }
    return halves;
#endif
  }
};
