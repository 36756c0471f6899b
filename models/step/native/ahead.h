// Asking for memory before it is needed.
#pragma once

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
