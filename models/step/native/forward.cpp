// One step: what `Stack` computes of its tokens.
#include <numeric>

#include "stack.h"

// Shares out the attention: some queries of a sequence and key head at a time.
void Stack::divide(Part& part) {
  const int together = queries_together(shape_.kv_format == KvFormat::kBFloat16);
  part.works.clear();
  const int shared = shape_.heads / shape_.kv_heads, rows = static_cast<int>(part.rows.size());
  for (int first = 0, end; first < rows; first = end) {
    const int span = span_of_[part.rows[first]];
    for (end = first + 1; end < rows && span_of_[part.rows[end]] == span;) ++end;
    for (int head = 0; head < shape_.kv_heads; ++head)
      for (int query = first * shared; query < end * shared; query += together)
        part.works.push_back({span, head, query, std::min(together, end * shared - query)});
  }
}

// Those of its rows that have adapters.
void Stack::find_runs(const Step& step, Part& part) const {
  part.runs.clear();
  for (int i = 0; i < static_cast<int>(part.rows.size()); ++i) {
    const int adapter = step.adapters[span_of_[part.rows[i]]];
    if (adapter < 0) continue;
    const bool goes_on = i % kRun && !part.runs.empty() && part.runs.back().adapter == adapter &&
                         part.runs.back().first + part.runs.back().count == i;
    if (goes_on) ++part.runs.back().count;
    else part.runs.push_back({adapter, i, 1});
  }
}

// Which span each token is of, and which rows are computed to the end.
void Stack::plan(const Step& step) {
  span_of_.resize(step.tokens);
  int longest = 0;
  for (int s = 0; s < step.sequences; ++s) {
    const Span& span = step.spans[s];
    longest = std::max(longest, span.start + span.count);
    std::fill_n(span_of_.begin() + span.flat, span.count, s);
    const int newest = (span.start + span.count - 1) / shape_.block_size;
    prefault_->use((step.tables[span.table + newest] + 1) * block_bytes());
  }
  all_.rows.resize(step.tokens);
  std::iota(all_.rows.begin(), all_.rows.end(), 0);
  divide(all_);
  kept_.rows.assign(step.keep, step.keep + step.kept);
  divide(kept_);
  for (Part* part : {&all_, &kept_}) find_runs(step, *part);
  scores_.resize(team_.size());
  const size_t room = static_cast<size_t>(kMostQueries) * score_stride(longest + kLanes);
  for (auto& scores : scores_)
    if (scores.size() < room) scores.resize(room);
}

void Stack::embed(int row, int32_t id) {
  const size_t start = static_cast<size_t>(id) * shape_.hidden;
  float* to = x_.row(row);
  if (shape_.half_embedding) {
    const uint16_t* from = static_cast<const uint16_t*>(embedding_) + start;
    for (int i = 0; i < shape_.hidden; ++i) {
      const uint32_t bits = static_cast<uint32_t>(from[i]) << 16;
      std::memcpy(to + i, &bits, sizeof bits);
    }
  } else {
    std::memcpy(to, static_cast<const float*>(embedding_) + start, sizeof(float) * shape_.hidden);
  }
  if (shape_.embedding_scale != 1)
    for (int i = 0; i < shape_.hidden; ++i) to[i] *= shape_.embedding_scale;
}

void Stack::normalise(const Norm& norm, int row, const float* from) {
  float* to = normed_.row(row);
  if (norm.none()) std::memcpy(to, from, sizeof(float) * shape_.hidden);
  else norm.apply(from, to, shape_.hidden);
  normed_.round(shape_.arithmetic, row);
}

// What was held back of a row goes where it belongs.
void Stack::add_back(const Norm& norm, int row, float* to) {
  float* from = held_.row(row);
  if (!norm.none()) norm.apply(from, from, shape_.hidden);
  for (int i = 0; i < shape_.hidden; ++i) to[i] += shape_.residual_scale * from[i];
}

// Queries or keys of one row, normed and rotated.
void Stack::turn(const Layer& layer, const Norm& norm, float* heads, int count,
                 int position) const {
  const int numbers = count * shape_.head_dim;
  if (!norm.none() && !layer.norms_last) norm.apply(heads, heads, numbers);
  const int half = layer.rotary_dim / 2;
  const float* cosine = layer.cosines + static_cast<size_t>(position) * half;
  const float* sine = layer.sines + static_cast<size_t>(position) * half;
  for (float* head = heads; head < heads + numbers; head += shape_.head_dim)
    for (int i = 0; i < half; ++i) {
      const float low = head[i], high = head[i + half];
      head[i] = low * cosine[i] - high * sine[i];
      head[i + half] = high * cosine[i] + low * sine[i];
    }
  if (!norm.none() && layer.norms_last) norm.apply(heads, heads, numbers);
}

template <class T>
Pages<T> Stack::pages_of(const Layer& layer, const Step& step, const Span& span) const {
  const size_t tiles = shape_.block_size / kLanes;
  const size_t tile = static_cast<size_t>(shape_.kv_heads) * shape_.head_dim * kLanes * 2;
  auto* first = pool_.as<typename T::Stored>() + (&layer - layers_.data()) * tiles * tile;
  return {first, shape_.layers * tiles, step.tables + span.table, shape_.block_size,
          shape_.kv_heads, shape_.head_dim};
}

// Queries stay where they are, rotated, scaled and settled; keys and values go to their block.
template <class T>
void Stack::place(const Layer& layer, const Step& step, int row) {
  const Span& span = step.spans[span_of_[row]];
  const int dim = shape_.head_dim, position = span.start + row - span.flat;
  float* query = qkv_.row(row);
  float* key = query + shape_.heads * dim;
  const float* value = key + shape_.kv_heads * dim;
  turn(layer, layer.q_norm, query, shape_.heads, position);
  for (int head = 0; head < shape_.heads; ++head)
    for (int i = 0; i < dim; i += kLanes)
      T::settle(query + head * dim, i, layer.scale * load<Floats>(query + head * dim + i));
  turn(layer, layer.k_norm, key, shape_.kv_heads, position);
  const bool last = position + 1 == span.start + span.count;
  const Pages<T> pages = pages_of<T>(layer, step, span);
  for (int head = 0; head < shape_.kv_heads; ++head)
    pages.write(position, head, key + head * dim, value + head * dim, last);
}

template <class T>
void Stack::attend_to(const Layer& layer, const Step& step, const Part& part, const Work& work) {
  const Span& span = step.spans[work.span];
  const int dim = shape_.head_dim, shared = shape_.heads / shape_.kv_heads;
  Query queries[kMostQueries];
  for (int i = 0; i < work.count; ++i) {
    const int to = (work.query + i) / shared, head = work.head * shared + (work.query + i) % shared;
    const int row = part.rows[to], end = span.start + row - span.flat + 1;
    const int first = layer.window ? std::max(0, end - layer.window) : 0;
    const float sink = layer.sinks.empty() ? -INFINITY : layer.sinks[head];
    queries[i] = {qkv_.row(row) + head * dim, mixed_.row(to) + head * dim, first, end, sink};
  }
  const Pages<T> pages = pages_of<T>(layer, step, span);
  float* scores = scores_[Team::member()].data();
  if (by_units<T>()) attend_by_units(pages, work.head, queries, work.count, layer.cap, scores);
  else attend(pages, work.head, queries, work.count, layer.cap, scores);
}

// All rows leave their keys and values; those of `part` go on.
void Stack::run_layer(Layer& layer, const Step& step, const Part& part) {
  const auto into_v = [&](int row, int panel, Floats low, Floats high) {
    float* to = qkv_.row(row) + layer.qkv.n + panel * kPanel;
    store(to, low);
    if (panel * kPanel + kLanes < layer.v.n) store(to + kLanes, high);
  };
  const bool held[] = {layer.parallel || !layer.behind.none(), !layer.inner_behind.none()};
  const auto add = [&](bool held) {
    return [&, held](int row, int panel, Floats low, Floats high) {
      float* to = (held ? held_.row(row) : x_.row(part.rows[row])) + panel * kPanel;
      const Floats residual = floats(shape_.residual_scale);
      store(to, held ? low : load<Floats>(to) + residual * low);
      store(to + kLanes, held ? high : load<Floats>(to + kLanes) + residual * high);
    };
  };
  const auto add_held = [&](const Norm& norm) {
    team_.share(part.rows.size(), [&](int i) { add_back(norm, i, x_.row(part.rows[i])); });
  };
  const auto in_format = [this](auto work) {
    if (shape_.kv_format == KvFormat::kFloat32) work(Float32{});
    else if (shape_.kv_format == KvFormat::kBFloat16) work(BFloat16{});
    else work(Float16{});
  };

  team_.share(step.tokens, [&](int row) { normalise(layer.norm, row, x_.row(row)); });
  const Adapted every{&narrow_, &all_.runs}, adapted{&narrow_, &part.runs};
  const Rows normed = normed_.rows(shape_.arithmetic);
  every.begin(team_, layer.qkv_low, normed_);
  matmul(team_, layer.qkv, normed, step.tokens, layer.qkv_low, every, into(qkv_, 0));
  matmul(team_, layer.v, normed, step.tokens, layer.v_low, every, into_v);
  in_format([&](auto format) {
    using T = decltype(format);
    team_.share(step.tokens, [&](int row) { place<T>(layer, step, row); });
    const int works = static_cast<int>(part.works.size());
    team_.share(works, [&](int i) { attend_to<T>(layer, step, part, part.works[i]); });
  });
  const int rows = static_cast<int>(part.rows.size());
  mixed_.round_all(team_, shape_.arithmetic, rows);
  adapted.begin(team_, layer.o_low, mixed_);
  matmul(team_, layer.o, mixed_.rows(shape_.arithmetic), rows, layer.o_low, adapted, add(held[0]));
  if (held[0] && !layer.parallel) add_held(layer.behind);
  team_.share(rows, [&](int i) { normalise(layer.inner_norm, i, x_.row(part.rows[i])); });
  if (layer.experts) layer.experts->run(team_, shape_.arithmetic, normed_, rows, add(held[1]));
  else layer.gated.run(team_, shape_.arithmetic, normed_, rows, add(held[1]), adapted);
  if (held[1] || layer.parallel) add_held(layer.inner_behind);
}

void Stack::forward(const Step& step) {
  const Prefault::Pause pause(*prefault_);
  const int rows = std::max(step.tokens, step.kept);
  for (Buffer* buffer : {&x_, &normed_, &qkv_, &mixed_, &held_})
    buffer->reserve(shape_.arithmetic, rows);
  for (auto& [width, inner] : inners_) inner.reserve(shape_.arithmetic, rows);
  for (Layer& layer : layers_)
    if (layer.experts) layer.experts->reserve(shape_.arithmetic, rows);
  if (most_rank_) narrow_.reserve(shape_.arithmetic, rows, most_rank_);
  plan(step);
  const auto logits = [&](int row, int panel, Floats low, Floats high) {
    float* to = step.logits + static_cast<size_t>(row) * shape_.vocab + panel * kPanel;
    const Floats both[] = {capped(shape_.logit_scale * low, shape_.logit_cap),
                           capped(shape_.logit_scale * high, shape_.logit_cap)};
    std::memcpy(to, both, sizeof(float) * std::min(kPanel, shape_.vocab - panel * kPanel));
  };
  team_.run([&] {
    team_.share(step.tokens, [&](int row) { embed(row, step.ids[row]); });
    for (Layer& layer : layers_) run_layer(layer, step, &layer == &layers_.back() ? kept_ : all_);
    team_.share(step.kept, [&](int i) { normalise(norm_, i, x_.row(step.keep[i])); });
    matmul(team_, head_, normed_.rows(shape_.arithmetic), step.kept, logits);
  });
}
