// Vectors that begin with a line of memory: what is read a line at a time never reads two for it.
#pragma once

#include <cstddef>
#include <new>
#include <vector>

template <class T>
struct LineAllocator {
  using value_type = T;
  LineAllocator() = default;
  template <class U>
  LineAllocator(const LineAllocator<U>&) {}

  T* allocate(size_t count) {
    return static_cast<T*>(::operator new(count * sizeof(T), std::align_val_t{64}));
  }
  void deallocate(T* from, size_t) { ::operator delete(from, std::align_val_t{64}); }
  bool operator==(const LineAllocator&) const { return true; }
};

template <class T>
using Lines = std::vector<T, LineAllocator<T>>;
