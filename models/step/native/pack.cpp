#include <atomic>

#include "int4.h"
#include "rounded.h"

namespace {

// Whether two numbers fit a word with nothing lost.
bool is_bfloat16(Team& team, const std::vector<WeightRow>& rows, int k) {
  std::atomic<bool> all = true;
  const auto look = [&](int i) {
    if (rows[i].kind == Numbers::kBFloat16 || !all.load(std::memory_order_relaxed)) return;
    std::vector<float> numbers(k);
    read_row(rows[i], k, numbers.data());
    uint32_t low = 0;
    for (int j = 0; j < k; ++j) low |= load<uint32_t>(&numbers[j]);
    if (low & 0xffff) all = false;
  };
  team.run([&] { team.share(static_cast<int>(rows.size()), look); });
  return all;
}

// Groups of so many inputs hold what the rows' own codes share; 0: they have none, or none does.
int shared_group(const std::vector<WeightRow>& rows, int k) {
  int group = kGroup;
  for (const WeightRow& row : rows) {
    if (row.kind != Numbers::kCodes) return 0;
    if (row.group % kGroup && row.group < k) group = kRounded;
    if (row.group % kRounded && row.group < k) return 0;
  }
  return group;
}

Format format_of(Team& team, const Matrix& w, Held held) {
  if (held == Held::kInPlace) return Format::kInPlace;
  if (w.group || held == Held::kInt4) return Format::kInt4;
  if (held == Held::kInt8) return Format::kInt8;
  return is_bfloat16(team, w.rows, w.k) ? Format::kBFloat16 : Format::kFloat32;
}

void put_bfloat16(const float* numbers, int k, uint32_t* words) {
  for (int i = 0; i < k; ++i) words[i / 2] |= load<uint32_t>(numbers + i) >> 16 << i % 2 * 16;
}

void put_int8(const float* numbers, int groups, uint32_t* words) {
  for (int g = 0; g < groups; ++g, words += kGroup / 4 + 1) {
    int8_t bytes[kGroup];
    int32_t unused;
    float scale, sums[2];
    quantise_row(numbers + g * kGroup, kGroup, bytes, &scale, &unused, sums);
    std::memcpy(words, bytes, kGroup);
    for (int i = 0; i < kGroup / 4; ++i) words[i] ^= 0x80808080;
    std::memcpy(words + kGroup / 4, &scale, sizeof scale);
  }
}

void put_row(const Matrix& w, const float* numbers, uint32_t* words) {
  if (w.format == Format::kFloat32) std::memcpy(words, numbers, sizeof(float) * w.k);
  if (w.format == Format::kBFloat16) put_bfloat16(numbers, w.k, words);
  if (w.format == Format::kInt8) put_int8(numbers, w.groups(), words);
}

// Whether a matrix of 4 bit holds its codes.
bool stays(const Matrix& w, const WeightRow& row) {
  return row.kind == Numbers::kCodes && (row.group % w.group == 0 || row.group >= w.k);
}

void put_int4(const Matrix& w, int first, int count, const float* numbers, uint32_t* words) {
  const size_t apart = w.words(), padded = static_cast<size_t>(w.groups()) * kGroup;
  const auto begin = w.rows.begin() + first;
  const bool all = std::all_of(begin, begin + count, [&](auto& row) { return stays(w, row); });
  for (int lane = 0; !all && lane < count; lane += kLanes)
    put_rounded(numbers + lane * padded, padded, w.k, words + lane * apart, apart);
  for (int lane = 0; lane < count; ++lane)
    if (stays(w, begin[lane])) put_given_codes(begin[lane], w.k, w.group, words + lane * apart);
}

// Lanes beyond the last row stay as they are: zeros.
void pack_panel(const Matrix& w, int panel) {
  const size_t words = w.words(), padded = static_cast<size_t>(w.groups()) * kGroup;
  std::vector<float> numbers(padded * kPanel);
  std::vector<uint32_t> rows(words * kPanel);
  const int first = panel * kPanel, count = std::min(kPanel, w.n - first);
  for (int lane = 0; lane < count; ++lane) {
    read_row(w.rows[first + lane], w.k, &numbers[lane * padded]);
    put_row(w, &numbers[lane * padded], &rows[lane * words]);
  }
  if (w.format == Format::kInt4) put_int4(w, first, count, numbers.data(), rows.data());
  auto* to = w.weights.as<uint32_t>() + panel * words * kPanel;
  for (size_t at = 0; at < words; at += kLanes)
    for (int lane = 0; lane < count; ++lane)
      for (size_t i = at; i < std::min(at + kLanes, words); ++i)
        to[i * kPanel + lane] = rows[lane * words + i];
}

}  // namespace

Matrix pack(Team& team, const std::vector<WeightRow>& rows, int k, Held held) {
  Matrix w;
  w.n = static_cast<int>(rows.size());
  w.k = k;
  w.rows = rows;
  w.group = shared_group(rows, k);
  w.format = format_of(team, w, held);
  if (w.format == Format::kInt4 && !w.group) w.group = kRounded;
  w.bias = Memory(sizeof(float) * w.panels() * kPanel);
  for (int i = 0; i < w.n; ++i) w.bias.as<float>()[i] = rows[i].bias;
  if (w.format == Format::kInPlace) return w;
  w.weights = Memory(w.bytes());
  team.run([&] { team.share(w.panels(), [&](int panel) { pack_panel(w, panel); }); });
  w.rows.clear();
  w.rows.shrink_to_fit();
  return w;
}
