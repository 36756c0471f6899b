// The products of one panel of a matrix with some rows of x.
#pragma once

#include "rounded.h"

constexpr int kBlock = 96;  // rows at most, which stay in a core's cache while panels pass

// The 32 outputs of each of `count` rows from `row`.
void products(const Matrix& w, int panel, const Rows& x, int row, int count, Floats (*out)[2]);
