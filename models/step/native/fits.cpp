// Whether a step stays within what there is: the stack reads and writes wherever it is told to.
#include "stack.h"

namespace {

template <class Number>
bool below(const Number* values, int count, Number limit) {
  for (int i = 0; i < count; ++i)
    if (values[i] < 0 || values[i] >= limit) return false;
  return true;
}
}

extern "C" {

bool step_knows(const Step* step, int64_t ids) { return below(step->ids, step->tokens, ids); }

// Spans follow one another and cover all tokens. `places` is the length of the step's tables.
bool step_fits(const Step* step, int32_t positions, int32_t block_size, int32_t places,
               int32_t blocks, int32_t adapters) {
  int64_t covered = 0;
  for (int s = 0; s < step->sequences; ++s) {
    const Span& span = step->spans[s];
    const int64_t end = int64_t{span.start} + span.count;
    if (span.flat != covered || span.start < 0 || span.count < 1 || span.table < 0) return false;
    if (end > positions || span.table + (end - 1) / block_size >= places) return false;
    if (step->adapters[s] < -1 || step->adapters[s] >= adapters) return false;
    covered += span.count;
  }
  return covered == step->tokens && below(step->tables, places, blocks) &&
         below(step->keep, step->kept, int64_t{step->tokens});
}
}
