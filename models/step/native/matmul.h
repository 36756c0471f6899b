// y[rows, n] = x[rows, k] * w[n, k]^T, with weights packed in panels of 32 outputs.
//
// Each output is summed over k in one order whatever the number of rows, so a row's result does not
// depend on its neighbours, to the bit. A panel comes from memory once a step and is then read
// from the core's own cache for all further rows, up to the many that stay there beside it.
#pragma once

#include "products.h"

template <class Write>
void panel_of(const Matrix& w, int panel, const Rows& x, int row, int count, const Write& write) {
  Floats out[kBlock][2];
  products(w, panel, x, row, count, out);
  for (int m = 0; m < count; ++m) write(row + m, panel, out[m][0], out[m][1]);
}

// Rows of an item of work: as many as stay in cache, unless too few items would be left to share.
inline int block_of(const Team& team, const Matrix& w, int rows) {
  constexpr int kItems = 8;  // of a member
  const int most = rows_together(w), blocks = (rows + most - 1) / most;
  if (w.panels() * blocks < kItems * team.size()) return kBlock;
  return std::max(kBlock, round_up((rows + blocks - 1) / std::max(blocks, 1), kBlock));
}

// Within team.run: `write(row, panel, low, high)` gets the 32 outputs of each panel and row.
template <class Write>
void matmul(Team& team, const Matrix& w, const Rows& x, int rows, const Write& write) {
  const int block = block_of(team, w, rows), blocks = (rows + block - 1) / block;
  const int panels = w.panels();
  team.share(panels * blocks, [&](int item) {
    const int first = item / panels * block, end = std::min(first + block, rows);
    for (int row = first; row < end; row += kBlock)
      panel_of(w, item % panels, x, row, std::min(kBlock, end - row), write);
  });
}
