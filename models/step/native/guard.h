// Exceptions end at the border to C: the caller gets 1, and 0 if all went well.
#pragma once

#include <exception>

template <class Work>
int guarded(const Work& work) {
  try {
    work();
    return 0;
  } catch (const std::exception&) {
    return 1;
  }
}
