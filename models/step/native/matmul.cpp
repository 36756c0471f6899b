#include "matmul.h"

#include <vector>

namespace {

bool is_bfloat16(const float* const* rows, int n, int k) {
  for (int i = 0; i < n; ++i) {
    uint32_t low = 0;
    for (int j = 0; j < k; ++j) low |= load<uint32_t>(rows[i] + j);
    if (low & 0xffff) return false;
  }
  return true;
}

// Rows beyond the last stay as they are: zeros.
template <class Put>
void each_row(const Matrix& w, int panel, const float* const* rows, const Put& put) {
  for (int lane = 0; lane < kPanel && panel * kPanel + lane < w.n; ++lane)
    put(lane, rows[panel * kPanel + lane]);
}

void pack_float32(Matrix& w, int panel, const float* const* rows) {
  float* to = w.weights.as<float>() + static_cast<size_t>(panel) * w.k * kPanel;
  each_row(w, panel, rows, [&](int lane, const float* row) {
    for (int i = 0; i < w.k; ++i) to[static_cast<size_t>(i) * kPanel + lane] = row[i];
  });
}

void pack_bfloat16(Matrix& w, int panel, const float* const* rows) {
  uint32_t* to = w.weights.as<uint32_t>() + static_cast<size_t>(panel) * w.pairs() * kPanel;
  each_row(w, panel, rows, [&](int lane, const float* row) {
    for (int i = 0; i < w.k; ++i)
      to[static_cast<size_t>(i / 2) * kPanel + lane] |=
          load<uint32_t>(row + i) >> 16 << i % 2 * 16;  // its other half is zeros
  });
}

void pack_int8(Matrix& w, int panel, const float* const* rows) {
  const int groups = w.groups(), padded = groups * kGroup;
  uint8_t* to = w.weights.as<uint8_t>() + static_cast<size_t>(panel) * padded * kPanel;
  float* scales = w.scales.as<float>() + static_cast<size_t>(panel) * groups * kPanel;
  std::memset(to, 128, static_cast<size_t>(padded) * kPanel);
  std::vector<int8_t> bytes(padded);
  std::vector<float> own(groups);
  std::vector<int32_t> unused(groups);
  each_row(w, panel, rows, [&](int lane, const float* row) {
    quantise_row(row, w.k, bytes.data(), own.data(), unused.data());
    for (int i = 0; i < padded; ++i)
      to[(static_cast<size_t>(i / 4) * kPanel + lane) * 4 + i % 4] =
          static_cast<uint8_t>(bytes[i] + 128);
    for (int g = 0; g < groups; ++g) scales[g * kPanel + lane] = own[g];
  });
}

}  // namespace

Matrix pack(Team& team, const float* const* rows, int n, int k, const float* bias,
            Format arithmetic) {
  Matrix w;
  w.n = n;
  w.k = k;
  const bool int8 = arithmetic == Format::kInt8;
  w.format = int8 ? Format::kInt8 : is_bfloat16(rows, n, k) ? Format::kBFloat16 : Format::kFloat32;
  w.weights = Memory(w.bytes());
  w.bias = Memory(sizeof(float) * w.panels() * kPanel);
  if (bias) std::memcpy(w.bias.as<float>(), bias, sizeof(float) * n);
  if (int8) w.scales = Memory(sizeof(float) * w.panels() * w.groups() * kPanel);
  const auto pack_panel = w.format == Format::kInt8      ? pack_int8
                          : w.format == Format::kBFloat16 ? pack_bfloat16
                                                          : pack_float32;
  team.run([&] { team.share(w.panels(), [&](int panel) { pack_panel(w, panel, rows); }); });
  return w;
}
