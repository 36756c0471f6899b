// y[rows, n] = x[rows, k] * w[n, k]^T, with weights packed in panels of 32 outputs.
//
// Each output is summed over k in one order whatever the number of rows, so a row's result does not
// depend on its neighbours, to the bit. A panel comes from memory once a step and is then read
// from the core's own cache for all further rows.
#pragma once

#include "products.h"

template <class Write>
void panel_of(const Matrix& w, int panel, const Rows& x, int row, int count, const Write& write) {
  Floats out[kBlock][2];
  products(w, panel, x, row, count, out);
  for (int m = 0; m < count; ++m) write(row + m, panel, out[m][0], out[m][1]);
}

// Within team.run: `write(row, panel, low, high)` gets the 32 outputs of each panel and row.
template <class Write>
void matmul(Team& team, const Matrix& w, const Rows& x, int rows, const Write& write) {
  const int panels = w.panels(), blocks = (rows + kBlock - 1) / kBlock;
  team.share(panels * blocks, [&](int item) {
    const int row = item / panels * kBlock;
    panel_of(w, item % panels, x, row, std::min(kBlock, rows - row), write);
  });
}
