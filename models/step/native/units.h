// Products by a processor's matrix units: Intel's AMX, in tiles of 16 rows.
//
// Of bfloat16 a tile sums the even and the odd of 32 inputs apart, in float32. What becomes of a row
// depends on no other row, but on its being multiplied so: where there are units, they multiply all
// rows. Of bytes sums are whole numbers, the same to the bit however they come about.
#pragma once

#include <type_traits>

#include "ahead.h"
#include "products.h"

#if defined(__AMX_TILE__) && defined(__AMX_BF16__) && defined(__AMX_INT8__) && defined(__linux__)

#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>

constexpr int kUnitRows = 16;   // of x in a tile
constexpr int kUnitPairs = 16;  // of inputs in a tile, or fours of bytes
constexpr int kUnitsAhead = 4 * kAhead;  // bytes: units are through with weights that much sooner

// Linux gives the registers to a process that asks.
inline bool has_units() {
  constexpr int kRequest = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
  static const bool granted = syscall(SYS_arch_prctl, kRequest, kTileData) == 0;
  return granted;
}

// Compilers do not know that the instructions for tiles read memory: it is to be written by now.
inline void written(const void* from) { asm volatile("" ::"r"(from) : "memory"); }

// As `ldtilecfg` reads it.
struct alignas(64) TileShapes {
  uint8_t palette = 1, first_row = 0, unused[14] = {};
  uint16_t bytes[16] = {};
  uint8_t rows[16] = {};
};

// Of a core, while this lives: 0 to 3 for sums, 4 and 5 for rows of x, 6 and 7 for weights.
class UnitTiles {
 public:
  // Up to twice kUnitRows rows, which are multiplied in so many pairs at a time.
  explicit UnitTiles(int rows, int pairs = kUnitPairs) {
    const int upper = std::min(rows, kUnitRows), lower = rows - upper;
    const int heights[] = {upper, upper, lower, lower, upper, lower, pairs, pairs};
    TileShapes shapes;
    for (int tile = 0; tile < 8; ++tile)
      if (heights[tile]) shapes.rows[tile] = heights[tile], shapes.bytes[tile] = kLine;
    shapes.bytes[4] = shapes.bytes[5] = pairs * 4;
    if (!lower) shapes.bytes[5] = 0;
    written(&shapes);
    _tile_loadconfig(&shapes);
  }
  ~UnitTiles() { _tile_release(); }
};

// Rows of T with the weights: T is uint16_t for bfloat16, int8_t for bytes.
template <class T>
inline void multiply_upper() {
  if constexpr (std::is_same_v<T, int8_t>) {
    _tile_dpbsud(0, 4, 6);
    _tile_dpbsud(1, 4, 7);
  } else {
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
  }
}

template <class T>
inline void multiply_lower() {
  if constexpr (std::is_same_v<T, int8_t>) {
    _tile_dpbsud(2, 5, 6);
    _tile_dpbsud(3, 5, 7);
  } else {
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
}

// Of as many inputs as a tile holds, x being `stride` numbers from row to row; and what it is
// multiplied with for two times sixteen outputs, `apart` bytes from row to row.
template <class Lower, class T>
inline void add_unit(Lower, const void* low, const void* high, size_t apart, const T* x,
                     size_t stride) {
  _tile_loadd(6, low, apart);
  _tile_loadd(7, high, apart);
  _tile_loadd(4, x, sizeof *x * stride);
  multiply_upper<T>();
  if constexpr (Lower::value) {
    _tile_loadd(5, x + kUnitRows * stride, sizeof *x * stride);
    multiply_lower<T>();
  }
}

// Of 32 inputs of bfloat16 or 64 bytes: `weights` as they lie in a panel.
template <class Lower, class T>
inline void add_unit(Lower lower, const char* weights, const T* x, size_t stride) {
  add_unit(lower, weights, weights + kLine, 2 * kLine, x, stride);
}

template <class Lower>
inline void zero_units(Lower) {
  _tile_zero(0);
  _tile_zero(1);
  if constexpr (Lower::value) {
    _tile_zero(2);
    _tile_zero(3);
  }
}

// A row's sums are 2 * kLine bytes, `apart` from those of the next.
template <class Lower>
inline void store_units(Lower, void* out, size_t apart = 2 * kLine) {
  char* to = static_cast<char*>(out);
  _tile_stored(0, to, apart);
  _tile_stored(1, to + kLine, apart);
  if constexpr (Lower::value) {
    _tile_stored(2, to + kUnitRows * apart, apart);
    _tile_stored(3, to + kUnitRows * apart + kLine, apart);
  }
}

// As `tiles` does it: `work(lower, row, rows, out, ahead)` for up to twice kUnitRows rows at a time;
// `lower` tells whether there are more than kUnitRows.
template <class Work>
inline void each_pass(const Matrix& w, int panel, int row, int count, Floats (*out)[2],
                      const Work& work) {
  constexpr int kAtOnce = 2 * kUnitRows;
  const int passes = (count + kAtOnce - 1) / kAtOnce;
  for (int pass = 0; count > 0; ++pass, row += kAtOnce, out += kAtOnce, count -= kAtOnce) {
    const int rows = std::min(kAtOnce, count);
    const UnitTiles tiles(rows);
    const Ahead ahead = ahead_of(w, panel, pass, passes, kUnitsAhead);
    if (rows > kUnitRows) work(std::true_type{}, row, rows, out, ahead);
    else work(std::false_type{}, row, rows, out, ahead);
  }
}

// Behind a row's end are zeros, with which no number may be multiplied that is none.
template <class Lower>
inline void add_units(Lower lower, const Matrix& w, const char* weights, const uint16_t* x,
                      size_t stride, Ahead ahead) {
  const int whole = w.words() / kUnitPairs, rest = w.words() % kUnitPairs;
  for (int unit = 0; unit < whole; ++unit) {
    for (int line = 0; line < kUnitPairs; ++line) ahead.ask();
    add_unit(lower, weights, x, stride);
    weights += kUnitPairs * 2 * kLine;
    x += 2 * kUnitPairs;
  }
  if (rest == 0) return;
  alignas(64) char last[kUnitPairs * 2 * kLine] = {};
  std::memcpy(last, weights, static_cast<size_t>(rest) * 2 * kLine);
  written(last);
  add_unit(lower, last, x, stride);
}

// Both of bfloat16.
inline void unit_tiles(const Matrix& w, int panel, const Rows& x, int row, int count,
                       Floats (*out)[2]) {
  each_pass(w, panel, row, count, out, [&](auto lower, int row, int, auto out, Ahead ahead) {
    const uint16_t* from = x.halves + static_cast<size_t>(row) * x.stride;
    zero_units(lower);
    add_units(lower, w, w.panel(panel), from, x.stride, ahead);
    store_units(lower, out);
  });
}

// Adds a group's products to the sums of `rows` rows; `words` are the group's scales. It asks for as
// many weights as the group has, one after another, so that memory is read all the while.
inline void add_scaled(const Ints (*products)[2], const char* words, const Rows& x, int row,
                       int rows, int groups, int group, Ahead& ahead, Floats (*out)[2]) {
  constexpr int kAsked = kGroup / 4 + 1;
  const Floats low = load<Floats>(words), high = load<Floats>(words + kLine);
  for (int m = 0; m < rows; ++m) {
    if (m < kAsked) ahead.ask();
    const int at = (row + m) * groups + group;
    const Ints offset = ints(x.offsets[at]);
    const float scale = x.scales[at];
    out[m][0] += __builtin_convertvector(products[m][0] + offset, Floats) * (low * scale);
    out[m][1] += __builtin_convertvector(products[m][1] + offset, Floats) * (high * scale);
  }
  for (int m = rows; m < kAsked; ++m) ahead.ask();
}

// Both of 8 bit. While units multiply a group, the rest of the core scales the one before it.
inline void byte_unit_tiles(const Matrix& w, int panel, const Rows& x, int row, int count,
                            Floats (*out)[2]) {
  constexpr int kGroupBytes = (kGroup / 4 + 1) * 2 * kLine;
  const int groups = w.groups(), stride = groups * kGroup;
  each_pass(w, panel, row, count, out, [&](auto lower, int row, int rows, auto out, Ahead ahead) {
    const char* p = w.panel(panel);
    const int8_t* bytes = x.bytes + static_cast<size_t>(row) * stride;
    Ints products[2][2 * kUnitRows][2];  // of even and of odd groups
    for (int m = 0; m < rows; ++m) out[m][0] = out[m][1] = Floats{};
    for (int g = 0; g <= groups; ++g, bytes += kGroup, p += kGroupBytes) {
      if (g < groups) {
        zero_units(lower);
        add_unit(lower, p, bytes, stride);
        store_units(lower, products[g % 2]);
      }
      if (g == 0) continue;
      const int before = g - 1;
      add_scaled(products[before % 2], p - 2 * kLine, x, row, rows, groups, before, ahead, out);
    }
  });
}

#else

inline bool has_units() { return false; }
inline void unit_tiles(const Matrix&, int, const Rows&, int, int, Floats (*)[2]) {}
inline void byte_unit_tiles(const Matrix&, int, const Rows&, int, int, Floats (*)[2]) {}

#endif
