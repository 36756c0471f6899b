// Floats of a step's rows, and the same as they are multiplied.
#pragma once

#include "lines.h"
#include "rounded.h"

struct Buffer {
  Lines<float> values;
  Lines<uint16_t> halves;
  Lines<int8_t> bytes;
  Lines<float> scales;
  Lines<int32_t> offsets;
  Lines<float> sums;
  int width = 0, stride = 0;

  float* row(int i) { return values.data() + static_cast<size_t>(i) * stride; }
  int groups() const { return round_up(width, kGroup) / kGroup; }

  // Never made smaller.
  void reserve(Format arithmetic, int rows) {
    stride = round_up(width, kPanel);
    const size_t size = static_cast<size_t>(rows) * stride;
    if (values.size() < size) values.resize(size);
    if (arithmetic == Format::kBFloat16 && halves.size() < size) halves.resize(size);
    const size_t grouped = static_cast<size_t>(rows) * groups();
    if (arithmetic != Format::kInt8 || scales.size() >= grouped) return;
    bytes.resize(grouped * kGroup);
    scales.resize(grouped);
    offsets.resize(grouped);
    sums.resize(grouped * 2);
  }

  // A row whose floats are there, as it is multiplied.
  void round(Format arithmetic, int i) {
    const float* from = row(i);
    if (arithmetic == Format::kBFloat16) {
      uint16_t* to = &halves[static_cast<size_t>(i) * stride];
      for (int j = 0; j < width; j += kLanes) store(to + j, to_bfloat16(load<Floats>(from + j)));
    } else if (arithmetic == Format::kInt8) {
      const size_t first = static_cast<size_t>(i) * groups();
      quantise_row(from, width, &bytes[first * kGroup], &scales[first], &offsets[first],
                   &sums[2 * first]);
    }
  }

  // A row of a buffer as wide, as it is there to be multiplied.
  void copy(Format arithmetic, int i, const Buffer& from, int row) {
    const auto take = [&](auto& to, const auto& these, size_t size) {
      std::copy_n(these.begin() + row * size, size, to.begin() + i * size);
    };
    if (arithmetic == Format::kInt8) {
      take(bytes, from.bytes, static_cast<size_t>(groups()) * kGroup);
      take(scales, from.scales, groups());
      take(offsets, from.offsets, groups());
      take(sums, from.sums, 2 * groups());
    } else {
      take(values, from.values, stride);
      if (arithmetic == Format::kBFloat16) take(halves, from.halves, stride);
    }
  }

  // Within team.run.
  void round_all(Team& team, Format arithmetic, int rows) {
    if (arithmetic != Format::kFloat32)
      team.share(rows, [&](int row) { round(arithmetic, row); });
  }

  Rows rows(Format arithmetic) const {
    return {arithmetic,   values.data(), stride,        halves.data(),
            bytes.data(), scales.data(), offsets.data(), sums.data()};
  }
};

// Writes the outputs of rows to a buffer's, the first of them to `first`.
inline auto into(Buffer& buffer, int first) {
  return [&buffer, first](int row, int panel, Floats low, Floats high) {
    float* to = buffer.row(first + row) + panel * kPanel;
    store(to, low);
    store(to + kLanes, high);
  };
}
