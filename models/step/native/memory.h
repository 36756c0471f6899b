// Zeroed memory that takes pages when they are first written, large ones where there are any. What
// is small is common memory: a process may have only so many mappings.
#pragma once

#include <sys/mman.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>
#include <utility>

class Memory {
 public:
  Memory() = default;
  explicit Memory(size_t bytes) : size_(bytes + kPage), small_(bytes < kSmall) {
    if (small_) {
      const size_t whole = (bytes + kSmallPage) / kSmallPage * kSmallPage;
      place_ = std::aligned_alloc(kSmallPage, whole);
      if (!place_) throw std::bad_alloc();
      start_ = reinterpret_cast<uintptr_t>(std::memset(place_, 0, whole));
      return;
    }
    place_ = mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (place_ == MAP_FAILED) throw std::bad_alloc();
    start_ = (reinterpret_cast<uintptr_t>(place_) + kPage - 1) / kPage * kPage;
#if defined(MADV_HUGEPAGE)
    madvise(reinterpret_cast<void*>(start_), bytes, MADV_HUGEPAGE);
#endif
  }
  Memory(Memory&& other) noexcept { *this = std::move(other); }
  Memory& operator=(Memory&& other) noexcept {
    std::swap(place_, other.place_);
    std::swap(size_, other.size_);
    std::swap(start_, other.start_);
    std::swap(small_, other.small_);
    return *this;
  }
  ~Memory() {
    if (small_) std::free(place_);
    else if (place_) munmap(place_, size_);
  }

  size_t size() const { return place_ ? size_ - kPage : 0; }

  // Takes pages for the part that begins `at` bytes; what is written there stays. Whether it could.
  bool populate(size_t at) const {
    if (small_) return true;
#if defined(MADV_POPULATE_WRITE)
    const size_t bytes = std::min(kPage, size() - at);
    return madvise(reinterpret_cast<void*>(start_ + at), bytes, MADV_POPULATE_WRITE) == 0;
#else
    return false;
#endif
  }

  template <class T>
  T* as() const { return reinterpret_cast<T*>(start_); }

  static constexpr size_t kPage = 2 << 20;
  static constexpr size_t kSmall = 256 << 10, kSmallPage = 4096;

 private:
  void* place_ = nullptr;
  size_t size_ = 0;
  uintptr_t start_ = 0;
  bool small_ = false;
};
