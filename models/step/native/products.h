// The products of one panel of a matrix with some rows of x.
#pragma once

#include "rounded.h"

constexpr int kBlock = 96;  // rows at most

// Rows, whole blocks, that stay in a core's cache while panels pass: matrix units are too fast to
// read all weights anew for each block.
int rows_together(const Matrix& w);

// The 32 outputs of each of `count` rows from `row`.
void products(const Matrix& w, int panel, const Rows& x, int row, int count, Floats (*out)[2]);
