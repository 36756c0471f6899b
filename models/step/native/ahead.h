// Asking for memory before it is needed.
#pragma once

#include "matrix.h"

constexpr int kAhead = 4096;  // bytes of weights that are asked for before they are needed
constexpr int kLine = 64;     // bytes of memory that come together

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

// Of a panel whose rows take several passes. A single one asks for what it soon needs itself, several
// share in asking for the next panel: so memory is read all the while, not only by the first of them.
inline Ahead ahead_of(const Matrix& w, int panel, int pass, int passes, int bytes = kAhead) {
  const size_t size = w.panel_bytes();
  const char* next = w.panel(panel) + (passes == 1 ? bytes : size);
  return {next + size / passes * pass, 2 * kLine / passes};
}
