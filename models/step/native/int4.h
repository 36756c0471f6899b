// Rows of a weight as words of 4 bit.
#pragma once

#include <algorithm>

#include "matrix.h"

// How to read codes: the scale to the nearest of 11 bits, the zero in 256ths, as far as they go.
inline Ints scale_words(Floats scale, Floats zero) {
  const Ints unit = nearest(zero * kZeroUnit);
  const Ints bound = unit < 0 ? Ints{} : unit > kZeroMask ? ints(kZeroMask) : unit;
  return ((as_ints(scale) + (kZeroMask + 1) / 2) & ~kZeroMask) | bound;
}

// The caller's codes as they are: for each group its codes, and how to read them.
inline void put_given_codes(const WeightRow& row, int k, int group, uint32_t* words) {
  const auto* codes = static_cast<const uint8_t*>(row.numbers);
  for (int at = 0; at < k; at += group, words += group / 8 + 1) {
    std::fill_n(words, group / 8, 0);
    for (int i = 0; i < std::min(group, k - at); ++i)
      words[i / 8] |= static_cast<uint32_t>(codes[at + i]) << place_of(i);
    const int own = at / row.group;
    words[group / 8] = scale_words(floats(row.scales[own]), floats(row.zeros[own]))[0];
  }
}

// A group's numbers of sixteen outputs, and what is known of them.
struct Group {
  Floats at[kRounded];
  Floats low{}, high{}, sum{};

  // From rows that are `stride` apart.
  Group(const float* rows, size_t stride) {
    for (int i = 0; i < kRounded; ++i) {
      for (int lane = 0; lane < kLanes; ++lane) at[i][lane] = rows[lane * stride + i];
      low = at[i] < low ? at[i] : low;
      high = larger(high, at[i]);
      sum += at[i];
    }
  }
};

inline Floats inverse_of(Floats x) { return x > 1e-30f ? 1 / x : Floats{}; }

inline Ints code_of(Floats exact) {
  return nearest(exact < 0 ? Floats{} : exact > 15 ? floats(15) : exact);
}

// Numbers are about scale * code + least; least is not above 0, which is then a code.
struct Fit {
  Floats scale, least;

  Ints code(Floats x) const { return code_of((x - least) * inverse_of(scale)); }
};

// The best fit of the codes that another gives, and how much the numbers' squares exceed its error.
// Where its zero would be more than words can say, as of numbers that are nearly equal: the other.
inline Fit refined(const Group& x, const Fit& fit, Floats& gain) {
  Floats codes{}, squares{}, products{};
  const Floats inverse = inverse_of(fit.scale), zero = -fit.least * inverse;
  for (int i = 0; i < kRounded; ++i) {
    const Floats code = __builtin_convertvector(code_of(x.at[i] * inverse + zero), Floats);
    codes += code, squares += code * code, products += code * x.at[i];
  }
  constexpr float count = kRounded;
  const Floats spread = count * squares - codes * codes;
  Floats scale = (count * products - codes * x.sum) * inverse_of(spread);
  Floats least = (x.sum - scale * codes) / count;
  scale = least > 0 ? products * inverse_of(squares) : scale;
  least = least > 0 ? Floats{} : least;
  const Ints told = least >= -kMostZero * scale;
  scale = told ? scale : fit.scale;
  least = told ? least : fit.least;
  gain = 2 * (scale * products + least * x.sum) - scale * scale * squares -
         2 * scale * least * codes - count * least * least;
  return {scale, least};
}

// Of the ranges that clip a group's extremes a little or not, refined, the nearest.
inline Fit nearest_fit(const Group& x) {
  constexpr float kParts[] = {1.0f, 0.9f, 0.8f, 0.7f};
  Fit best{};
  Floats most{};
  const auto consider = [&](const Fit& fit) {
    Floats gain;
    const Fit found = refined(x, fit, gain);
    best.scale = gain > most ? found.scale : best.scale;
    best.least = gain > most ? found.least : best.least;
    most = larger(gain, most);
  };
  for (int low = 0; low < 4; ++low)
    for (int high = std::max(0, low - 1); high < std::min(4, low + 2); ++high) {
      const Floats least = x.low * kParts[low];
      consider({(x.high * kParts[high] - least) / 15, least});
    }
  for (int again = 0; again < 2; ++again) consider(best);
  return best;
}

// Sixteen rows of numbers, with zeros up to whole groups. Both rows and words are so far apart.
inline void put_rounded(const float* rows, size_t stride, int k, uint32_t* words, size_t apart) {
  for (int at = 0; at < k; at += kRounded, words += kRounded / 8 + 1) {
    const Group x(rows + at, stride);
    Fit fit = nearest_fit(x);
    const Ints how = scale_words(fit.scale, -fit.least * inverse_of(fit.scale));
    fit = {scale_of(how), -zero_of(how) * scale_of(how) / kZeroUnit};
    Ints put[kRounded / 8 + 1] = {};
    for (int i = 0; i < kRounded; ++i) put[i / 8] |= fit.code(x.at[i]) << place_of(i);
    put[kRounded / 8] = how;
    for (int i = 0; i <= kRounded / 8; ++i)
      for (int lane = 0; lane < kLanes; ++lane) words[lane * apart + i] = put[i][lane];
  }
}
