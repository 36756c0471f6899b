// Takes a memory's pages ahead of their first use, while nothing is computed: a step that touches
// them first waits for each, on virtual machines for milliseconds.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>

#include "memory.h"

class Prefault {
 public:
  // The memory must outlive it.
  explicit Prefault(const Memory& memory) : thread_([this, &memory] { populate(memory); }) {}

  ~Prefault() {
    leaving_ = true;
    use(SIZE_MAX);
    thread_.join();
  }

  // From its beginning so many bytes are in use: more may soon be.
  void use(size_t bytes) {
    if (bytes <= used_.load(std::memory_order_relaxed)) return;
    used_ = bytes;
    used_.notify_one();
  }

  // Nothing is taken while there is one, nor soon after: more steps may follow.
  class Pause {
   public:
    explicit Pause(Prefault& prefault) : prefault_(prefault) { prefault_.busy_ = true; }
    ~Pause() {
      prefault_.recent_ = true;
      prefault_.busy_ = false;
    }

   private:
    Prefault& prefault_;
  };

 private:
  static constexpr std::chrono::milliseconds kQuiet{20};
  // Bytes taken beyond those in use; what is never used should not all be taken.
  static constexpr size_t kMost = size_t{2} << 30;

  void populate(const Memory& memory) {
    for (size_t at = 0; at < memory.size() && !leaving_;) {
      const size_t used = used_;
      if (at >= kMost && at - kMost >= used)
        used_.wait(used);
      else if (busy_ || recent_.exchange(false))
        std::this_thread::sleep_for(kQuiet);
      else if (memory.populate(at))
        at += Memory::kPage;
      else
        return;  // they are taken when they are touched
    }
  }

  std::atomic<size_t> used_{0};
  std::atomic<bool> busy_{false}, recent_{false}, leaving_{false};
  std::thread thread_;
};
